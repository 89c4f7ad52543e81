"""The program of a warpgroup that computes: everything but loads.

It waits for the stages of rings before their first use, gives them back after their last, and puts
barriers around shared tiles that warpgroups write themselves. Where it waits for MMAs an analysis
has said before (:mod:`warploom.lower.hopper.mma_waits`); each statement is visited once.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt

from warploom.lower.analysis.rings import PipelinePlan, RingUse
from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import Position
from warploom.lower.emit.copy_by_threads import is_by_threads, see_copied
from warploom.lower.emit.named_barriers import all_consumers, one_consumer, warpgroup_barrier
from warploom.lower.emit.own_barriers import by_one_consumer
from warploom.lower.emit.place_tiles import place_tiles
from warploom.lower.emit.prints import by_one_thread
from warploom.lower.hopper.mma_groups import Event, Meet, Release, Wait
from warploom.lower.hopper.mma_waits import computed_tiles, needs_order, plan_waits, steps
from warploom.lower.hopper.pin_registers import meet_after, pin, pin_one
from warploom.lower.hopper.ping_pong import of_ping_pong_warpgroup, stages_of
from warploom.lower.hopper.supply import Supply
from warploom.lower.hopper.wait_plan import Waits
from warploom.tile import ir
from warploom.tile.effects import Effects
from warploom.tile.mbarriers import SCOPE as MBARRIER
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scalar import ThreadScalar
from warploom.tile.scopes import is_shared
from warploom.tile.statement import (
    Allocation,
    BarrierOperation,
    Block,
    Branch,
    First,
    ForLoader,
    Load,
    Loop,
    Marked,
    Mma,
    Orchestrated,
    SliceStep,
    Statement,
    While,
    walk,
)


class Consumer:
    """Walks a program and makes it that of a warpgroup that computes."""

    def __init__(
        self, program: TileProgram, plan: PipelinePlan, positions: dict[str, Position],
        supply: Supply,
    ) -> None:  # fmt: skip
        self.program, self.plan = program, plan
        self.positions, self.supply = positions, supply
        self.waits = plan_waits(program, plan, supply)
        self.rings = {ring.name: ring for ring in plan.rings}
        #: Ring -> the stage that MMAs in flight still read.
        self.last = {ring.name: ThreadScalar(f"{ring.name}_last") for ring in plan.rings}
        self.current: dict[Buffer, tuple[Buffer, Any]] = {}
        #: Whether one warpgroup executes the current statement, without the others.
        self.alone = False
        #: Shared tiles that threads have written since they met.
        self.unseen: frozenset[Buffer] = frozenset()
        self.computed = computed_tiles(program)
        self.accumulators = {mma.d for mma in walk(program.block) if isinstance(mma, Mma)}

    def run(self) -> list[Stmt]:
        """Its statements."""
        start = [s for position in self.positions.values() for s in position.define(0)]
        start += [s for last in self.last.values() for s in last.define(0)]
        start += self.supply.start()
        body = self._block(self.program.block)
        return [*start, *body, *self._wait(self.waits.end)]

    # -- statements ----------------------------------------------------------------------------

    def _block(self, statements: Block) -> list[Stmt]:
        result: list[Stmt] = []
        for step in steps(self.plan, statements):
            statement = step.statement
            if not _computes(statement) or statement.effects.touched & self.unseen:
                result += self._meet()
            for use in step.opens:
                result += self._open(use)
            waits = self.waits.of[statement]
            result += self._wait(waits.before)
            if isinstance(statement, SliceStep):
                result += self._slice_step(statement, step.slices)
            else:
                result += self._statement(statement, waits)
            result += self._wait(waits.after)
            for use in step.closes:
                result += self._close(use)
        return [*result, *self._meet()]

    def _statement(self, statement: Statement, waits: Waits) -> list[Stmt]:
        """A statement without the waits before and after it."""
        match statement:
            case Load():
                return self.supply.load(statement) if self.supply.loads_in_place(statement) else []
            case ForLoader():
                return self.supply.by_hand(statement)
            case BarrierOperation():
                return self._operation(statement)
            case Allocation(buffer=buffer):
                return [] if _in_shared_memory(buffer) and statement.allocates else [statement.raw]
            case Orchestrated():
                return [self._placed(statement)]
            case First():
                return self._of_first(statement)
            case Mma():
                return self._mma(statement, waits)
            case Loop(ping_pong=True):
                return self._ping_pong(statement)
            case Loop() | While():
                before = self._before_loop(statement) if isinstance(statement, Loop) else []
                return [*before, ir.with_body(statement.raw, self._bodies(statement)[0])]
            case Branch():
                return self._branch(statement)
            case Marked():
                return [ir.with_body(statement.raw, self._block(statement.body))]
        return [statement.raw] if statement.allocates else self._plain(statement, waits.free)

    def _before_loop(self, loop: Loop) -> list[Stmt]:
        """Loads ahead; and threads meet if they do not in the loop before they write a copy."""
        meets = any(self.waits.of[inner].free for inner in loop.body)
        return [*self.supply.before_loop(loop), *([self._sync()] if meets else [])]

    def _bodies(self, statement: Statement) -> list[list[Stmt]]:
        """The blocks of a statement, each with the waits at its end."""
        pairs = zip(statement.blocks, self.waits.of[statement].ends, strict=True)
        return [[*self._block(inner), *self._wait(end)] for inner, end in pairs]

    def _operation(self, operation: BarrierOperation) -> list[Stmt]:
        """Return the code of an operation on an mbarrier of the author."""
        if operation.operation.kind == "init":  # before the roles part
            return []
        if operation.operation.kind == "wait":
            return [operation.raw]
        return [all_consumers(self.program), by_one_consumer(self.program, operation.raw)]

    def _plain(self, statement: Statement, free: frozenset[Buffer]) -> list[Stmt]:
        effects = statement.effects
        written = frozenset(buffer for buffer in effects.writes if is_shared(buffer))
        placed = by_one_thread(self._placed(statement), self.program, self.alone)
        if not written:
            return [placed, *self._apart(effects)]
        # Everyone has read the old contents.
        before = [] if written <= free else self._meet() or [self._sync()]
        self.unseen |= written
        return [*before, placed]

    def _meet(self) -> list[Stmt]:
        """Everyone sees what threads have written to shared memory, the tensor core too."""
        if not self.unseen:
            return []
        self.unseen = frozenset()
        return [ir.evaluate(T.ptx.fence.proxy.async_.shared__cta()), self._sync()]

    def _apart(self, effects: Effects) -> list[Stmt]:
        """After the start of an accumulator beside others: its registers are its own.

        ptxas copies equal values late, to the second accumulator while the MMA into the first is in
        flight, and then it serialises both (C7517).
        """
        started = effects.writes & self.accumulators
        return pin(started) if started and not effects.reads and len(self.accumulators) > 1 else []

    def _sync(self) -> Stmt:
        """A barrier of those that execute the current statement."""
        return (one_consumer if self.alone else all_consumers)(self.program)

    def _mma(self, mma: Mma, waits: Waits) -> list[Stmt]:
        """An MMA as a group of its own, after the writes of threads to its registers."""
        fence = ir.evaluate(T.ptx.wgmma.fence.sync.aligned())
        commit = ir.evaluate(T.ptx.wgmma.commit_group.sync.aligned())
        # Threads load the metadata of a sparse A first; that fence is part of the MMA.
        fences = [fence] if mma.metadata is None else []
        return [*pin(waits.operands), *fences, self._placed(mma), commit]

    def _placed(self, statement: Statement) -> Stmt:
        """A statement with the current stage in place of each tile."""
        return place_tiles(statement.raw, self.current)

    def _branch(self, statement: Branch) -> list[Stmt]:
        if needs_order(statement):
            return [ir.when(statement.condition, *self._bodies(statement))]
        placed = by_one_thread(self._placed(statement), self.program, self.alone)
        # All threads take the same side: it is one jump, and not a choice for each element.
        inside = set(allocations((statement.raw,)))
        tiles = (statement.effects.writes & self.computed) - inside
        then, *otherwise = ir.children(placed)
        branch = ir.when(placed.condition, [*pin_one(tiles), then], *([side] for side in otherwise))
        return [branch, *self._apart(statement.effects)]

    def _slice_step(self, step: SliceStep, uses: list[RingUse]) -> list[Stmt]:
        """Return the code of one warpgroup, chosen by the stage; the others pass over it."""
        body = [s for use in uses for s in self._open(use)]
        body += self._bodies(step)[0]
        after: list[Stmt] = []
        for use in uses:
            at = self.positions[use.ring.name]
            body += self.supply.release(use.ring, at.index)
            after += at.advance()
        stage = self.positions[uses[0].ring.name].index
        mine = T.EQ(T.truncmod(stage, step.count), self.program.var("warpgroup"))
        return [ir.when(mine, body), *after]

    def _of_first(self, first: First) -> list[Stmt]:
        """Return the code of the first warpgroup while the other warpgroups go on."""
        body = self._of_one_warpgroup(first)
        return [ir.when(T.EQ(self.program.var("warpgroup"), 0), body)]

    def _ping_pong(self, loop: Loop) -> list[Stmt]:
        """The tiles of one warpgroup, which passes over the stages of those of the other."""
        body = self._of_one_warpgroup(loop)
        passes: list[Stmt] = []
        for use in self.plan.uses:
            passes += self.positions[use.ring.name].advance_by(stages_of(use, loop))
        return of_ping_pong_warpgroup(loop, self.program.var("warpgroup"), body, passes)

    def _of_one_warpgroup(self, part: First | Loop) -> list[Stmt]:
        """The body of a statement that one warpgroup executes without the others."""
        self.alone = True
        (body,) = self._bodies(part)
        self.alone = False
        return body

    # -- waits ---------------------------------------------------------------------------------

    def _wait(self, events: list[Event]) -> list[Stmt]:
        """Carry out waits that the analysis has planned."""
        result: list[Stmt] = []
        for event in events:
            match event:
                case Meet(tile=tile):
                    result += meet_after(tile, warpgroup_barrier(self.program.var("warpgroup")))
                case Wait(pending=pending, results=results, releases=releases):
                    result.append(ir.evaluate(T.ptx.wgmma.wait_group.sync.aligned(pending)))
                    result += pin(results)
                    result += [s for release in releases for s in self._release(release)]
        return result

    def _release(self, release: Release) -> list[Stmt]:
        """Release the stage that MMAs of a ring have read, if there is such a stage."""
        statements = self.supply.release(self.rings[release.ring], self.last[release.ring].value)
        for guard in reversed(release.guards):
            statements = [ir.when(guard.condition, statements)]
        return statements

    # -- rings ---------------------------------------------------------------------------------

    def _open(self, use: RingUse) -> list[Stmt]:
        """Wait for the stage; from here on its tiles are those of the stage."""
        at = self.positions[use.ring.name]
        for tile, buffer in use.ring.tiles.items():
            self.current[tile] = (buffer, at.index)
        full = barriers.wait(use.ring.full, at.index, at.phase.value)
        return [full, see_copied()] if any(map(is_by_threads, use.ring.loads)) else [full]

    def _close(self, use: RingUse) -> list[Stmt]:
        """After the last use: give the stage back, or remember it until its MMAs are complete."""
        ring, at = use.ring, self.positions[use.ring.name]
        close = self.waits.closes[use.name]
        keep = (
            self.supply.release(ring, at.index) if close.at_once
            else [self.last[ring.name].set(at.index)]
        )  # fmt: skip
        return [*self._wait(close.before), *keep, *at.advance()]


def _computes(statement: Statement) -> bool:
    """Whether a statement is no more than an MMA, a load, an allocation or code of all threads."""
    return not statement.blocks and not isinstance(
        statement, (ForLoader, BarrierOperation, Orchestrated)
    )


def _in_shared_memory(buffer: Buffer) -> bool:
    return is_shared(buffer) or buffer.scope() == MBARRIER
