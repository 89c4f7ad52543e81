"""Split-K reduction in a cluster, through distributed shared memory.

The CTAs of a cluster share each tile. Each CTA leaves its sums in its own shared memory, where the
owner of the tile reads them. Two
mbarriers for each warpgroup carry that: ``given``, of the owner, one for each other CTA; and
``taken``, of the other CTA, which then may leave the next sums. Nothing goes through global
memory, no other kernel is needed, and a cluster is on the GPU as a whole.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.lower.analysis.consumers import consumers
from warploom.lower.analysis.rings import mbarriers
from warploom.lower.emit import barriers
from warploom.lower.emit.named_barriers import one_consumer
from warploom.lower.emit.threads import leader, orchestrated
from warploom.lower.nests.fragment_order import ANY_ORDER
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scalar import ThreadScalar
from warploom.tile.statement import Block, Given, Loop, Statement, Taken


def reduce_in_clusters(program: TileProgram) -> TileProgram:
    """Give the reductions of a program whose tiles are registers of warpgroups their barriers.

    Raises
    ------
    Decline
        If accumulators are not in registers.
    """
    if program.arch != SM90A.name:
        raise Decline(
            f"reduce_through='cluster': on {program.arch} sums go through the workspace only; "
            "leave the hint out."
        )
    reduction = _Reduction(program)
    body = tuple(reduction.statement(statement) for statement in program.block)
    # The workspace is not needed.
    host = tuple(one for one in program.host if not isinstance(one, tirx.AllocBuffer))
    return program.replace(body=(*reduction.start(), *body), host=host).decided(
        f"sums: from {reduction.parts - 1} CTAs of a cluster to the last, through "
        f"{', '.join(place.name for place in reduction.places.values())} in shared memory"
    )


class _Reduction:
    """The tiles and barriers of one program."""

    def __init__(self, program: TileProgram) -> None:
        self.program = program
        self.parts, self.warpgroups = program.hints.split_k, consumers(program)
        self.given = mbarriers("given", (self.parts - 1) * self.warpgroups)
        self.taken = mbarriers("taken", self.warpgroups)
        #: Each warpgroup's part of an accumulator -> where the sums of all are left.
        self.places: dict[Buffer, Buffer] = {}
        #: Of the phase of the barriers: tiles that have nothing to compute have none.
        self.parity = ThreadScalar("reduced")

    def start(self) -> list[Stmt]:
        """Allocations, and the initialisation of the barriers: one arrival each."""
        statements: list[Stmt] = [tirx.AllocBuffer(place) for place in self.places.values()]
        statements += self.parity.define(0)
        for barrier in (self.given, self.taken):
            statements.append(tirx.AllocBuffer(barrier))
            for number in range(int(barrier.shape[0])):
                place = ir.address(barrier, number)
                statements.append(ir.evaluate(T.ptx.mbarrier.init.shared.b64(place, T.uint32(1))))
        return statements

    def statement(self, node: Statement) -> Stmt:
        """A statement of the program."""
        match node:
            case Given(body=copies):
                return self._give(copies)
            case Loop(var=loop_var, body=(Taken(body=nests),)):
                taken = node.with_blocks([self._take(loop_var, nests)])
                return ir.seq([taken, orchestrated([self._next()])])
        return node.with_each(self.statement)

    def _give(self, copies: Block) -> Stmt:
        program, own = self.program, self.program.var("warpgroup")
        rank = program.var("cta_in_cluster")
        theirs, declared = barriers.remote_view(self.given, self.parts - 1)
        number = (self.parts - 2 - rank) * self.warpgroups + own
        moves = []
        for copy in copies:
            tile = copy.source.source
            moves.append(_nest(tile, lambda y, x, tile=tile: tirx.BufferStore(
                self._place(tile), tile[y, x], [own, y, x]
            )))  # fmt: skip
        return orchestrated(
            [
                # The sums of the last tile have been read.
                *_wait(self.taken, own, T.bitwise_xor(self.parity.value, 1)),
                *moves,
                one_consumer(program),
                ir.when(leader(program), [*declared, _arrive(theirs, number)]),
                self._next(),
            ]
        )

    def _take(self, loop_var: Var, nests: Block) -> Stmt:
        program, own = self.program, self.program.var("warpgroup")
        rank = self.parts - 2 - loop_var
        theirs, declared = barriers.remote_view(self.taken, rank)
        moves: list[Stmt] = []
        for nest in nests:
            tile = nest.stores[0].buffer
            view, declaration = barriers.remote_view(self._place(tile), rank)
            moves += [*declaration, _nest(tile, lambda y, x, tile=tile, view=view: tirx.BufferStore(
                tile, tile[y, x] + view[own, y, x], [y, x]
            ))]  # fmt: skip
        return orchestrated(
            [
                *_wait(self.given, loop_var * self.warpgroups + own, self.parity.value),
                *moves,
                one_consumer(program),
                ir.when(leader(program), [*declared, _arrive(theirs, own)]),
            ]
        )

    def _next(self) -> Stmt:
        """The barriers are in their next phase."""
        return self.parity.set(T.bitwise_xor(self.parity.value, 1))

    def _place(self, tile: Buffer) -> Buffer:
        """Where a CTA leaves its sums of an accumulator."""
        if tile not in self.places:
            self.places[tile] = tirx.decl_buffer(
                (self.warpgroups, *tile.shape), str(tile.dtype), f"{tile.name}_sums",
                scope="shared",
            )  # fmt: skip
        return self.places[tile]


def _nest(tile: Buffer, store: Any) -> Stmt:
    y, x = (Var(name, "int32") for name in ("y", "x"))
    return ir.nest([y, x], map(int, tile.shape), [store(y, x)], {ANY_ORDER: 1})


def _arrive(view: Buffer, number: Any) -> Stmt:
    """Arrive once in another CTA, which then sees the writes of this warpgroup's threads."""
    where = ir.address(view, number)
    return ir.evaluate(T.ptx.mbarrier.arrive.release.cluster.shared__cluster.b64(where))


def _wait(barrier: Buffer, number: Any, parity: Any) -> list[Stmt]:
    """Wait for a phase, and see the writes of the threads that have arrived in it.

    The waits of rings order copies; these waits order loads and stores.
    """
    complete = ThreadScalar("complete", "uint32")
    try_wait = T.ptx.mbarrier.try_wait.parity.acquire.cluster.shared__cta.b64(
        complete.value, ir.address(barrier, number), T.Cast("uint32", parity)
    )
    poll = tirx.While(T.EQ(complete.value, T.uint32(0)), ir.evaluate(try_wait))
    return [*complete.define(0), poll]
