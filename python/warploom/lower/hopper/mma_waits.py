"""Where warpgroups wait for wgmma: an analysis of the whole program, before anything is emitted.

Threads execute a program in its order, and MMAs run beside them. The analysis follows
:class:`~warploom.lower.hopper.mma_groups.InFlight` from statement to statement and notes, for each,
the waits around it. The emission then visits every statement once and asks for its waits.

The set of MMAs in flight where a loop begins anew is a fixpoint. Before a loop nothing is, so the
state at the head of its body is that at the end of the body (the back edge), with stages to release
in later iterations only. The states of a loop form a chain:

    nothing in flight  <  what one iteration leaves  <  what two leave  < ...  <  drained

``drained`` waits for all groups at the end of the body, which makes "nothing in flight" right. The
analysis goes up until the body leaves the state that it began with. It ends: all iterations issue
the same MMAs and groups that newer groups repeat are dropped, so there are finitely many states,
and after :data:`ROUNDS` of them it drains. It drains at once if threads touch tiles of MMAs in
flight at the back edge: ptxas serialises MMAs that threads wait for in the next iteration.

Threads meet twice around a shared tile that they write: when all have read the old contents, and
when all have written the new ones. Of a tile with two copies, which iterations use in turn, a copy
was read last in the iteration before the last. If no MMA of that iteration is in flight where
threads meet in the last one, they need not meet again before they write the copy
(:attr:`Waits.free`).

Since nothing is in flight before a loop, the MMAs that it leaves in flight do not depend on where
it stands. That is computed once for each loop: the work is linear in the depth of nests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx import Buffer, Stmt

from warploom.lower.analysis.alternating import alternating
from warploom.lower.analysis.own_barriers import own_tiles
from warploom.lower.analysis.rings import PipelinePlan, RingUse
from warploom.lower.hopper.mma_groups import Event, Group, Guard, InFlight
from warploom.lower.hopper.slice_k import of_slice_step
from warploom.lower.hopper.supply import Supply
from warploom.lower.hopper.wait_plan import Close, WaitPlan, Waits
from warploom.tile.effects import Effects, together
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_shared, is_tile
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

#: Iterations of a loop that are looked at before it is drained. All programs known need two.
ROUNDS = 4


def plan_waits(program: TileProgram, plan: PipelinePlan, supply: Supply) -> WaitPlan:
    """Where warpgroups wait for the MMAs of a program.

    Parameters
    ----------
    program : TileProgram
    plan : PipelinePlan
        Its rings of loads.
    supply : Supply
        The role that loads.
    """
    analysis = _Analysis(program, plan, supply)
    end = analysis.block(program.block, InFlight())
    analysis.wait_plan.end = end.wait_all_but(0)
    return analysis.wait_plan


class _Analysis:
    """The walk: :attr:`now` has the MMAs that may be in flight before the next statement."""

    def __init__(self, program: TileProgram, plan: PipelinePlan, supply: Supply) -> None:
        self.plan, self.supply = plan, supply
        self.own = frozenset(own_tiles(program))
        self.computed = computed_tiles(program)
        self.now = InFlight()
        self.wait_plan = WaitPlan()
        #: MMA with a sparse A -> what stands for its registers of metadata.
        self.metadata: dict[Stmt, Buffer] = {}
        #: Tile with two copies -> what stands for the copy that an iteration does not use.
        self.other: dict[Buffer, Buffer] = {}
        #: The tiles of two copies of the loop whose body the current statement is a part of.
        self.in_turn: frozenset[Buffer] = frozenset()
        #: Loop -> the MMAs in flight behind it.
        self.behind: dict[Loop, InFlight] = {}

    def block(self, statements: Block, head: InFlight) -> InFlight:
        """The MMA groups in flight at the end of a block that begins with a state."""
        self.now = head.copy()
        self._block(statements)
        return self.now

    def _block(self, statements: Block) -> None:
        for step in steps(self.plan, statements):
            statement = step.statement
            self._statement(statement, self.wait_plan.of.setdefault(statement, Waits()))
            for use in step.closes:
                self.wait_plan.closes[use.name] = self._close(use)

    def _statement(self, statement: Statement, waits: Waits) -> None:
        match statement:
            case ForLoader() | Allocation():
                pass
            case Load():
                if self.supply.loads_in_place(statement):
                    tiles = frozenset(self.plan.ring_of(statement).tiles)
                    waits.before = self.now.before(Effects(frozenset(), tiles))
            case BarrierOperation():
                if statement.operation.kind not in ("init", "wait"):
                    # The arrival says that all threads have come here, and their MMAs with them.
                    waits.before = self.now.before(Effects(frozenset(), self.own))
            case Orchestrated():
                waits.before = self.now.before(statement.effects)
            case Mma():
                self._mma(statement, waits)
            case SliceStep() | First() | Loop(ping_pong=True) | While():
                self._apart(statement, waits)
            case Branch() if needs_order(statement):
                self._apart(statement, waits)
            case Loop():
                self._loop(statement, waits)
            case Marked():
                self._block(statement.body)
            case _ if not statement.allocates:
                waits.before = self.now.before_computing(statement.effects, self.computed)
                waits.free = self._free(statement)

    def _free(self, statement: Statement) -> frozenset[Buffer]:
        """Tiles of two copies that it writes, if no MMA in flight reads the other copy."""
        reading = {tile for group in self.now.groups for tile in group.reads}
        written = self.in_turn & statement.effects.writes
        return frozenset(tile for tile in written if self.other[tile] not in reading)

    def _apart(self, statement: Statement, waits: Waits) -> None:
        """A body that not all threads execute, or not once, has no MMA in flight at its ends."""
        waits.before = self.now.wait_all_but(0)
        waits.ends = []
        in_turn, self.in_turn = self.in_turn, frozenset()
        for inner in statement.blocks:
            self._block(inner)
            waits.ends.append(self.now.wait_all_but(0))
        self.in_turn = in_turn

    def _mma(self, mma: Mma, waits: Waits) -> None:
        effects, now = mma.effects, self.now
        metadata = self._metadata_registers(mma)
        own = Effects((effects.reads - effects.writes) | metadata, effects.writes)
        waits.before = [*now.before(Effects(frozenset(), metadata)), *now.before_mma(own)]
        older = bool(now.held)
        now.issue(Group(own.reads, own.writes))
        # Stages that earlier MMAs read are released while this one runs.
        waits.after = now.wait_all_but(1) if older else []
        under_way = {tile for group in now.groups[:-1] for tile in group.writes}
        # The compiler may keep scale-d, an integer, in a register of D that has the same value.
        words = {tile for tile in effects.writes if str(tile.dtype) != "float32"}
        waits.operands = frozenset(((effects.reads | words) & self.computed) - under_way)

    def _metadata_registers(self, mma: Mma) -> frozenset[Buffer]:
        """What stands for the registers of metadata that threads load before an MMA.

        The manual does not say when the tensor core reads them, so they stay as they are until it
        has finished, like those of A.
        """
        if mma.metadata is None:
            return frozenset()
        name = f"{mma.metadata.source.name}_registers"
        made = self.metadata.setdefault(mma.raw, tirx.decl_buffer((1,), "uint32", name))
        return frozenset({made})

    def _close(self, use: RingUse) -> Close:
        """A stage is released now, or when the MMAs that read it are complete."""
        ring = use.ring
        reader = self.now.reader_of(ring.tiles)
        if reader is None:
            return Close([], True)
        if ring.stages == 1:
            # The next load needs the stage that this MMA reads.
            return Close(self.now.read_no_more(ring.tiles), True)
        before = self.now.finish(ring.name)
        self.now.hold(reader, ring.name)
        return Close(before, False)

    # -- loops ---------------------------------------------------------------------------------

    def _loop(self, loop: Loop, waits: Waits) -> None:
        waits.before = self.now.wait_all_but(0)
        if loop not in self.behind:
            self.behind[loop] = self._behind(loop, waits)
        self.now = self.behind[loop].copy()

    def _behind(self, loop: Loop, waits: Waits) -> InFlight:
        """Return the MMAs in flight behind a loop; note the waits in its body and behind it."""
        around = self.in_turn
        end, waits.ends = self._fixpoint(loop)
        self.in_turn = around
        # Behind the loop, what is touched may be either copy.
        end = end.forgetting(self.other)
        if not self.supply.refills_after_loops:
            end = InFlight(end.groups)
        if loop.has_iterations:
            return end
        # Whether there was an iteration is known here only: further on, the extent may be that of
        # another time round a loop outside.
        waits.after = end.guarded(Guard(loop, later=False)).wait_all_but(0)
        return InFlight()

    def _fixpoint(self, loop: Loop) -> tuple[InFlight, list[list[Event]]]:
        """Return the MMAs in flight at the end of the last iteration, and the waits of each end."""
        in_turn = alternating(loop)
        touched = touched_by_threads(loop.body)
        mmas = (mma for mma in walk(loop.body) if isinstance(mma, Mma))
        metadata = frozenset().union(*map(self._metadata_registers, mmas))
        # Threads wait for the copy that they write where they write it.
        touched = Effects(touched.reads, (touched.writes - in_turn) | metadata)
        self.in_turn = in_turn
        for tile in in_turn - set(self.other):
            self.other[tile] = tirx.decl_buffer(tile.shape, str(tile.dtype), f"other_{tile.name}")
        head = InFlight()
        for _ in range(ROUNDS):
            end = self.block(loop.body, head)
            back = end.without_repeated().guarded(Guard(loop, later=True))
            back = back.alternated(in_turn, self.other)
            if any(group.conflicts(touched) for group in back.groups):
                break
            if back.same_as(head):
                self.wait_plan.heads[loop] = head
                return end, [[]]
            head = back
        self.wait_plan.heads[loop] = InFlight()
        if head.groups:
            end = self.block(loop.body, InFlight())
        return end, [end.wait_all_but(0)]


@dataclass(frozen=True)
class Step:
    """A statement of a block, and the rings whose use begins or ends with it.

    Attributes
    ----------
    opens, closes : list of RingUse
        Stages that are waited for before it, and read for the last time in it.
    slices : list of RingUse
        Stages that one warpgroup of slice-K uses.
    """

    statement: Statement
    opens: list[RingUse]
    slices: list[RingUse]
    closes: list[RingUse]


def steps(plan: PipelinePlan, statements: Block) -> Iterator[Step]:
    """The statements of a block, with the rings of a plan."""
    uses = plan.of_block(statements)
    slices = [use for use in uses if of_slice_step(use)]
    own = [use for use in uses if not of_slice_step(use)]
    for number, statement in enumerate(statements):
        yield Step(
            statement,
            [use for use in own if use.first == number],
            [use for use in slices if use.first == number],
            [use for use in own if use.last == number],
        )


def computed_tiles(program: TileProgram) -> frozenset[Buffer]:
    """Tiles in registers that instructions other than MMAs write."""
    written = touched_by_threads(program.block).writes
    return frozenset(tile for tile in written if is_tile(tile) and not is_shared(tile))


def touched_by_threads(statements: Block) -> Effects:
    """Return the reads and writes of all statements but MMAs and loads."""
    return together(
        touched_by_threads(sum(statement.blocks, ())) if statement.blocks else statement.effects
        for statement in statements
        if not isinstance(statement, (ForLoader, Mma, Load, Allocation))
    )


def needs_order(statement: Statement) -> bool:
    """Whether some part of a statement waits for others, or others wait for it."""
    if isinstance(statement, (Orchestrated, ForLoader, BarrierOperation, Mma, Load)):
        return True
    if statement.blocks:
        return any(needs_order(inner) for block in statement.blocks for inner in block)
    return any(is_shared(buffer) for buffer in statement.effects.writes)
