"""Tiles that clusters take over from others that have not started: cluster launch control.

The grid has a cluster for each tile. Those that the GPU has started ask for the next one when they
are about to need it: a thread of the first CTA cancels the launch of another cluster, whose tile is
theirs then. The answer comes to the shared memory of every CTA, where all roles read it. A few
answers may be on the way: a ring with two mbarriers for each of them.

* ``full``, in every CTA: one arrival, of the CTA's own asking thread, and the bytes of the answer.
* ``empty``, in the first CTA: one arrival of each reader of each CTA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt

from warploom.lower.analysis.rings import mbarriers
from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import Position
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scalar import ThreadScalar
from warploom.tile.statement import Loop, Statement, block

#: Answers that may be on the way: one that is being read, one for the role that is a tile ahead,
#: one to come.
ANSWERS = 3
#: 32-bit words of an answer.
_WORDS = 4
_BYTES = 4 * _WORDS
#: The value for the first CTA of a cluster where no cluster is left to take over.
_NONE = 0xFFFFFFFF

_TRY_CANCEL = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"


@dataclass
class LaunchControl:
    """The tiles of one program.

    Attributes
    ----------
    program : TileProgram
        The program.
    tiles : Loop
        Its loop over tiles.
    readers : int
        Threads, and warps of consumers, that read an answer in each CTA, the thread that
        multiplies apart.
    group : int
        CTAs that have one thread that multiplies.
    """

    program: TileProgram
    tiles: Loop
    readers: int
    group: int
    answers: Buffer = field(init=False)
    full: Buffer = field(init=False)
    empty: Buffer = field(init=False)

    def __post_init__(self) -> None:
        self.answers = tirx.decl_buffer((ANSWERS, _WORDS), "uint32", "answers", scope="shared")
        self.full = mbarriers("answers_full", ANSWERS)
        self.empty = mbarriers("answers_empty", ANSWERS)

    @property
    def size(self) -> int:
        """CTAs of a cluster."""
        cluster = self.program.id("cta_in_cluster")
        return 1 if cluster is None else int(cluster.extents[0])

    def describe(self) -> str:
        """A sentence for the record of decisions."""
        return f"tiles: asked for by a warp, {ANSWERS} answers ahead"

    def allocate(self) -> list[Stmt]:
        """Allocations of all that is in shared memory."""
        return [tirx.AllocBuffer(buffer) for buffer in (self.answers, self.full, self.empty)]

    def initialise(self) -> list[Stmt]:
        """Statements that initialise the barriers."""
        arrivals = self.size * self.readers + self.size // self.group
        return [barriers.initialise(self.full, 1), barriers.initialise(self.empty, arrivals)]

    def follow(self, statements: Sequence[Stmt], name: str, warp: bool = False) -> list[Stmt]:
        """The program of a role, whose loop over tiles now takes those that come.

        Parameters
        ----------
        name : str
            Of the role, for its variables.
        warp : bool
            Whether whole warps execute it, or one thread does.
        """
        reader = _Reader(self, name, warp)

        def followed(statement: Statement) -> Stmt:
            if not is_dynamic(statement):
                return statement.with_each(followed)
            body = ir.substitute(statement.raw.body, {statement.var: reader.tile.value})
            return reader.while_there_are(statement.extent, [body])

        return [*reader.start(), *map(followed, block(statements))]

    def ask(self) -> list[Stmt]:
        """The program of the thread that asks, in every CTA: the first one's asks for all."""
        reader = _Reader(self, "asking", warp=False)
        at = reader.at
        parity = T.bitwise_xor(at.phase.value, 1)
        free = barriers.wait(self.empty, at.index, parity)
        expect = barriers.expect(self.full, at.index, _BYTES)
        everywhere = ".multicast::cluster::all" if self.size > 1 else ""
        cancel = T.ptx[f"{_TRY_CANCEL}{everywhere}.b128"](
            ir.address(self.answers, at.index, 0), ir.address(self.full, at.index)
        )
        asks = self.program.var("cta_in_cluster") == 0 if self.size > 1 else True
        body = [expect, ir.when(asks, [free, ir.evaluate(cancel)])]
        return [*reader.start(), reader.while_there_are(self.tiles.extent, body)]


def is_dynamic(statement: Statement) -> bool:
    """Whether a statement is the loop over tiles that are handed out as the kernel runs."""
    return isinstance(statement, Loop) and statement.dynamic


class _Reader:
    """A role that reads the answers."""

    def __init__(self, control: LaunchControl, name: str, warp: bool) -> None:
        self.control, self.warp = control, warp
        self.tile = ThreadScalar(f"{name}_tile")
        self.at = Position.named(f"{name}_answer", ANSWERS)
        self.remote = barriers.remote_view(control.empty, 0) if control.size > 1 else None

    def start(self) -> list[Stmt]:
        """Its variables; its first tile is that of its own cluster."""
        cta, size = self.control.program.var("cta"), self.control.size
        first = T.truncdiv(cta, size) if size > 1 else cta
        declared = self.remote[1] if self.remote else []
        return [*declared, *self.tile.define(first), *self.at.define(0)]

    def while_there_are(self, tiles: Any, body: Sequence[Stmt]) -> Stmt:
        """A loop over the tiles that come, of ``tiles`` in all."""
        return tirx.While(self.tile.value < tiles, ir.seq([*body, *self._next(tiles)]))

    def _next(self, none: Any) -> list[Stmt]:
        """Read the next answer; the tile is ``none`` if there is no other cluster."""
        control, at = self.control, self.at
        there = ThreadScalar("there", "uint32")
        # Scripts have no scalar variables of 128 bits: an array of one, by its alignment.
        answer = tirx.decl_buffer((1,), "uint128", "answer", scope="local", data_alignment=16)
        cta = ThreadScalar("first_cta", "uint32")
        query = T.ptx.clusterlaunchcontrol.query_cancel
        place = ir.address(control.answers, at.index, 0)
        first = query.get_first_ctaid__x.b32.b128(cta.value, answer[0], pred=there.value)
        tile = T.truncdiv(T.Cast("int32", cta.value), control.size)
        return [
            barriers.wait(control.full, at.index, at.phase.value),
            tirx.AllocBuffer(answer),
            tirx.AllocBuffer(there.buffer),
            *cta.define(T.uint32(_NONE)),
            ir.evaluate(T.ptx["ld.shared.b128"](answer[0], place)),
            ir.evaluate(query.is_canceled.pred.b128(there.value, answer[0])),
            ir.evaluate(first),
            self.tile.set(T.Select(cta.value == T.uint32(_NONE), none, tile)),
            # An engine writes the next answer: as the manual's example of query_cancel has it.
            ir.evaluate(T.ptx.fence.proxy.async_.shared__cta()),
            *self._read(),
            *at.advance(),
        ]

    def _read(self) -> list[Stmt]:
        """Tell the first CTA that this role has read the answer."""
        control, at = self.control, self.at
        if self.remote is None:
            arrival = barriers.arrive(control.empty, at.index)
        else:
            arrival = barriers.arrive_remote(self.remote[0], at.index)
        if not self.warp:
            return [arrival]
        first = control.program.var("lane") == 0
        return [ir.evaluate(T.cuda.warp_sync()), ir.when(first, [arrival])]
