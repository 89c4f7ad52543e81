"""Splits a program into that of the tensor core's thread and that of the consumer warpgroups.

Both get the control flow and the scalars; MMAs go to one, everything else but loads to the
other. Each waits for the rings of loads that it reads and gives their stages back, and the tiles
that both touch go to and fro (:mod:`warploom.lower.blackwell.tile_barriers`). A tile is released
right after the last statement that touches it and waited for right before the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.lower.analysis.known_scalars import assigned, contains, variables_for
from warploom.lower.analysis.own_barriers import own_operands
from warploom.lower.analysis.rings import PipelinePlan, Ring, is_consumer_tile
from warploom.lower.blackwell.emit_mmas import emit_mma
from warploom.lower.blackwell.loop_heads import LoopHeads
from warploom.lower.blackwell.operand_places import OperandPlaces
from warploom.lower.blackwell.plan_tensor_memory import TensorMemory, after_sync
from warploom.lower.blackwell.role_order import roles_of
from warploom.lower.blackwell.tensor_memory_chunks import is_accumulator, is_wait
from warploom.lower.blackwell.tile_barriers import (
    Role,
    TileBarriers,
    commit,
    held_by,
    on_the_way_to,
    threads_arrive,
)
from warploom.lower.blackwell.tile_states import Streams, TileStates
from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import Position
from warploom.lower.emit.named_barriers import consumers_sync
from warploom.lower.emit.own_barriers import by_one_consumer
from warploom.lower.emit.prints import by_one_thread
from warploom.tile import ir
from warploom.tile.mbarriers import SCOPE as MBARRIER
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_shared
from warploom.tile.statement import (
    Allocation,
    BarrierOperation,
    Block,
    Branch,
    ForLoader,
    Load,
    Loop,
    Mma,
    Orchestrated,
    Scalar,
    Statement,
    While,
)

#: In the order of :data:`Streams`.
ROLES = (Role.TENSOR_CORE, Role.THREADS)


class RoleSplitter:
    """The split of one program.

    Parameters
    ----------
    tile_barriers : dict
        Tile -> its barriers.
    memory : TensorMemory
        Where accumulators are.
    """

    def __init__(
        self,
        program: TileProgram,
        plan: PipelinePlan,
        tile_barriers: dict[Buffer, TileBarriers],
        memory: TensorMemory,
    ) -> None:
        self.program, self.plan, self.tile_barriers = program, plan, tile_barriers
        self.memory = memory
        self.warpgroups = int(program.id("warpgroup").extents[0])
        self.tile_states = TileStates(program, tile_barriers)
        self.heads = LoopHeads(tile_barriers)
        self.positions = {
            (role, ring.name): Position.named(f"{ring.name}_{role.name.lower()}", ring.stages)
            for ring in plan.rings
            for role in ROLES
        }
        self.places = OperandPlaces(
            program, plan, self.positions, tile_barriers, memory, self.warpgroups
        )
        self.multiplied = own_operands(program)
        #: The barriers ``empty`` of other CTAs that this one releases stages of.
        self.remote: dict[str, barriers.Remote] = {}
        #: Tiles whose loads or stores by threads have not been waited for.
        self.under_way: set[Buffer] = set()

    def run(self) -> Streams:
        """The two programs."""
        starts: Streams = ([], [])
        for role in ROLES:
            for (owner, _), position in self.positions.items():
                starts[role].extend(position.define(0) if owner is role else [])
            for pair in self.tile_barriers.values():
                starts[role].extend(pair.define(role))
        rings = [ring for ring in self.plan.rings if Role.THREADS in self.users(ring)]
        self.remote, peers = barriers.find_peers(rings, self.program)
        starts[Role.THREADS].extend(peers)
        bodies = self._block(self.program.block)
        for tile, pair in self.tile_barriers.items():
            returning = self.tile_states.state[tile] == on_the_way_to(Role.THREADS)
            running = returning or self.tile_states.state[tile] == held_by(Role.TENSOR_CORE)
            # No thread reads the last result, yet its tensor memory is freed at the end; and the
            # last commit of a pair of CTAs arrives in both, which have to be there.
            if (running and is_accumulator(tile)) or (returning and pair.pairs):
                self.tile_states.move(tile, held_by(Role.THREADS), bodies)
        return [*starts[0], *bodies[0]], [*starts[1], *bodies[1]]

    def users(self, ring: Ring) -> list[Role]:
        """Return the roles that read a ring."""
        use = next(use for use in self.plan.uses if use.ring is ring)
        roles = {role for tile in ring.tiles for role in roles_of(use.block, tile)}
        return [role for role in ROLES if role in roles]

    # -- statements ----------------------------------------------------------------------------

    def _block(self, statements: Block) -> Streams:
        spans = [
            (use.ring, role, *self._span(statements, use.ring, role))
            for use in self.plan.of_block(statements)
            for role in self.users(use.ring)
        ]
        out: Streams = ([], [])
        for number, statement in enumerate(statements):
            for ring, role, first, _ in spans:
                if number == first:
                    at = self.positions[role, ring.name]
                    out[role].append(barriers.wait(ring.full, at.index, at.phase.value))
                    if role is Role.TENSOR_CORE:
                        out[role].append(after_sync())
            self._statement(statement, out)
            for ring, role, _, last in spans:
                if number == last:
                    out[role].extend(self._release(ring, role))
        return out

    def _span(self, statements: Block, ring: Ring, role: Role) -> tuple[int, int]:
        """The first and the last statement of a block in which a role touches a ring."""
        numbers = [
            i for i, statement in enumerate(statements)
            if any(role in roles_of((statement,), tile) for tile in ring.tiles)
        ]  # fmt: skip
        return numbers[0], numbers[-1]

    def _release(self, ring: Ring, role: Role) -> list[Stmt]:
        at = self.positions[role, ring.name]
        if role is Role.TENSOR_CORE:
            cluster = self.program.id("cta_in_cluster")
            mask = ring.released_in(cluster.vars[0] if cluster else 0)
            return [commit(ring.empty, at.index, mask, bool(ring.pairs)), *at.advance()]
        remote = self.remote.get(ring.name)
        arrive = threads_arrive(ring.empty, at.index, self.program.var("lane"), remote)
        return [*arrive, *at.advance()]

    def _statement(self, statement: Statement, out: Streams) -> None:
        match statement:
            case Load() | ForLoader():
                return
            case BarrierOperation():
                self._operation(statement, out)
            case Scalar():
                out[0].append(statement.raw)
                out[1].append(statement.raw)
            case Allocation(buffer=buffer, allocates=allocates):
                elsewhere = is_shared(buffer) or buffer.scope() == MBARRIER
                if not allocates or not (elsewhere or is_accumulator(buffer)):
                    out[1].append(statement.raw)
            case Mma():
                self._touch(statement, Role.TENSOR_CORE, out, self._mmas)
            case Orchestrated(body=body):
                for inner in body:
                    self._orchestrated(inner, out)
            case Statement(blocks=()):
                self._touch(statement, Role.THREADS, out, self._synchronised)
            case Loop() | While():
                self._loop(statement, out)
            case Branch():
                self._branch(statement, out)
            case _:
                bodies = self._block(statement.blocks[0])
                for role in ROLES:
                    out[role].extend(
                        [ir.with_body(statement.raw, bodies[role])] if bodies[role] else []
                    )

    def _operation(self, operation: BarrierOperation, out: Streams) -> None:
        """An operation on an mbarrier of the author; they are initialised before the roles part."""
        if operation.operation.kind == "wait":
            out[Role.THREADS].append(operation.raw)
            if self.multiplied:
                out[Role.TENSOR_CORE].extend([operation.raw, after_sync()])
        elif operation.operation.kind == "arrive":
            if self.multiplied:
                tiles = ", ".join(sorted(tile.name for tile in self.multiplied))
                raise Decline(
                    f"The author's arrival at {operation.operation.barriers.name} may come before "
                    f"the MMA that reads {tiles} is complete; "
                    " let a pipelined loop load the tile."
                )
            arrive = by_one_consumer(self.program, operation.raw)
            out[Role.THREADS].extend([consumers_sync(self.warpgroups), arrive])

    def _orchestrated(self, statement: Statement, out: Streams) -> None:
        """A statement of the threads that brings its own synchronisation."""
        if statement.allocates:
            out[Role.THREADS].append(statement.raw)
        else:
            self._touch(statement, Role.THREADS, out, self._placed)

    def _placed(self, statement: Statement) -> list[Stmt]:
        return [self.places.placed(statement, Role.THREADS)]

    def _touch(
        self, statement: Statement, role: Role, out: Streams, write: Callable[[Any], list[Stmt]]
    ) -> None:
        """Add the code of a statement to a role, after the barriers of its tiles."""
        tiles = self.tile_states.tiles_of(statement)
        for tile in tiles:
            self.tile_states.move(tile, held_by(role), out)
        statements = write(statement)
        out[role].extend(statements)
        self.tile_states.touched(tiles, role, statements[-1])
        if is_wait(statement.raw):
            for tile in self.under_way:
                self.tile_states.last[role, tile] = statements[-1]
            self.under_way = set()
        elif isinstance(statement.raw, TilePrimitiveCall) and role is Role.THREADS:
            self.under_way.update(tile for tile in tiles if is_accumulator(tile))

    def _mmas(self, mma: Mma) -> list[Stmt]:
        """The MMA of each consumer warpgroup, into an accumulator of its own."""
        warpgroup = self.program.var("warpgroup")
        parts = [
            ir.substitute(self.places.placed(mma, Role.TENSOR_CORE, number), {warpgroup: number})
            for number in map(ir.as_expr, range(self.warpgroups))
        ]
        return [statement for part in parts for statement in emit_mma(part, self.memory.copies)]

    def _synchronised(self, statement: Statement) -> list[Stmt]:
        """A statement of the threads, with a barrier where they read each other's shared memory."""
        placed = by_one_thread(self.places.placed(statement, Role.THREADS), self.program)
        sync = consumers_sync(self.warpgroups)
        own = [t for t in statement.effects.writes if is_consumer_tile(t, self.plan)]
        if any(tile not in self.tile_barriers for tile in own):
            return [sync, placed, ir.evaluate(T.ptx.fence.proxy.async_.shared__cta()), sync]
        # Tile barriers synchronise passed tiles, except between uses of the threads.
        touched = self.tile_states.tiles_of(statement)
        again = any(is_shared(tile) and tile in self.tile_states.used for tile in touched)
        return [sync, placed] if again else [placed]

    # -- control flow --------------------------------------------------------------------------

    def _loop(self, loop: Loop | While, out: Streams) -> None:
        (body,), heads = loop.blocks, self.heads.of(loop)
        for tile, head in heads.items():
            self.tile_states.move(tile, head, out)
            if head == held_by(Role.THREADS):
                # By the iteration before.
                self.tile_states.used.add(tile)
        bodies = self._block(body)
        for tile, head in heads.items():
            self.tile_states.move(tile, head, bodies)
        if isinstance(loop, While):
            bodies = self._known_by_both(loop, bodies)
        self._add(loop, [[body] for body in bodies], out)
        self.tile_states.remember(self.heads.roles(loop), out)

    def _known_by_both(self, loop: While, bodies: Streams) -> Streams:
        """The bodies of a while loop, whose condition the tensor core's thread has to know, too.

        Raises
        ------
        Decline
            If it takes part in the loop, and threads alone know a tile in the condition.
        """
        tiles = [tile for tile in ir.uses(loop.condition) if ir.is_buffer(tile) and is_shared(tile)]
        if not tiles or not bodies[Role.TENSOR_CORE]:
            return bodies
        if contains(loop, Mma) or assigned(loop) & variables_for(self.program.block, Mma):
            raise Decline(
                f"The condition of a while loop reads the tile {tiles[0].name}, which threads "
                "write, and the thread that issues MMAs takes part in it; count the iterations by "
                "scalars, or end the loop by an element of global memory."
            )
        return [], bodies[Role.THREADS]

    def _branch(self, branch: Branch, out: Streams) -> None:
        for tile, state in self.heads.around(branch).items():
            self.tile_states.move(tile, state, out)
        before = dict(self.tile_states.state)
        results = []
        for part in branch.blocks:
            self.tile_states.state = dict(before)
            bodies = self._block(part)
            for tile, state in before.items():
                self.tile_states.move(tile, state, bodies)
            results.append(bodies)
        self._add(branch, [[result[role] for result in results] for role in ROLES], out)
        self.tile_states.remember(self.heads.roles(branch), out)

    def _add(
        self, owner: Loop | While | Branch, bodies: list[list[list[Stmt]]], out: Streams
    ) -> None:
        """A loop or branch for each role that has something to do in it."""
        for role in ROLES:
            if not any(bodies[role]):
                continue
            if isinstance(owner, Branch):
                out[role].append(ir.when(owner.condition, *bodies[role]))
            else:
                out[role].append(ir.with_body(owner.raw, bodies[role][0]))
