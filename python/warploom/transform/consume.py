"""The program of a warpgroup that computes: everything but loads.

It waits for the stages of rings before their first use, gives them back after their last, and puts
the waits for products and the barriers around shared tiles that warpgroups write themselves.
"""

from __future__ import annotations

from typing import Any, Protocol

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir
from warploom.tile.effects import Effects, together
from warploom.tile.mbarriers import SCOPE as MBARRIER
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
    Statement,
    Turn,
    While,
    walk,
)
from warploom.transform import barriers
from warploom.transform.barriers import Position, Ring
from warploom.transform.named_barriers import (
    consumers_sync,
    warpgroup_barrier,
    warpgroup_sync,
)
from warploom.transform.own_barriers import by_one_consumer, own_tiles
from warploom.transform.pin_registers import pin, pin_one
from warploom.transform.ping_pong import of_player, stages_of
from warploom.transform.plan_pipeline import PipelinePlan, RingUse, is_consumer_tile
from warploom.transform.prints import by_one_thread
from warploom.transform.take_turns import in_turns
from warploom.transform.wait_products import Group, Products, fence


class Supply(Protocol):
    """Who fills the stages of rings, and how: what differs between lowerings.

    Attributes
    ----------
    refills_after_loops : bool
        Whether a stage that was read in a loop must be given back when the loop is over too.
    """

    refills_after_loops: bool

    def start(self) -> list[Stmt]:
        """Statements before all others."""

    def load(self, load: Load) -> list[Stmt]:
        """Statements in place of a load."""

    def by_hand(self, statement: ForLoader) -> list[Stmt]:
        """Statements in place of one that the author left to the thread that loads."""

    def before_loop(self, loop: Loop) -> list[Stmt]:
        """Statements directly before a loop; no product is under way."""

    def release(self, ring: Ring, stage: Any) -> list[Stmt]:
        """Statements of a warpgroup that has read a stage for the last time."""


class Consumer:
    """Walks a program and makes it that of a warpgroup that computes."""

    def __init__(
        self, program: TileProgram, plan: PipelinePlan, positions: dict[str, Position],
        supply: Supply,
    ) -> None:  # fmt: skip
        self.program, self.plan = program, plan
        self.positions, self.supply = positions, supply
        self.products = Products()
        #: Ring -> the stage that products under way still read.
        self.last = {ring.name: ir.Scalar(f"{ring.name}_last") for ring in plan.rings}
        self.current: dict[Buffer, tuple[Buffer, Any]] = {}
        #: Whether one warpgroup executes the current statement, without the others.
        self.alone = False
        self.own = own_tiles(program)
        #: Tiles in registers that instructions other than products write.
        written = _touched_by_threads(program.block).writes
        self.computed = {tile for tile in written if is_tile(tile) and not is_shared(tile)}
        self.accumulators = {one.d for one in walk(program.block) if isinstance(one, Mma)}

    def run(self) -> list[Stmt]:
        """Its statements."""
        start = [s for position in self.positions.values() for s in position.define(0)]
        start += [s for last in self.last.values() for s in last.define(0)]
        start += self.supply.start()
        body = self._block(self.program.block)
        return [*start, *body, *self.products.wait_all_but(0)]

    # -- statements ----------------------------------------------------------------------------

    def _block(self, statements: Block) -> list[Stmt]:
        opened = self.plan.of_block(statements)
        result: list[Stmt] = []
        for number, one in enumerate(statements):
            turns = [use for use in opened if number == use.first and in_turns(use)]
            for use in opened:
                if number == use.first and use not in turns:
                    result += self._open(use)
            result += self._turn(one, turns) if isinstance(one, Turn) else self._statement(one)
            for use in opened:
                if number == use.last and use not in turns:
                    result += self._close(use)
        return result

    def _statement(self, one: Statement) -> list[Stmt]:
        match one:
            case Load():
                ring = self.plan.ring_of(one)
                filled = Effects(frozenset(), frozenset(ring.tiles))
                statements = self.supply.load(one)
                return [*self.products.before(filled), *statements] if statements else []
            case ForLoader():
                return self.supply.by_hand(one)
            case BarrierOperation():
                return self._operation(one)
            case Allocation(buffer=buffer):
                return [] if _in_shared_memory(buffer) and one.allocates else [one.raw]
            case Orchestrated():
                return [*self.products.before(one.effects), self._placed(one)]
            case First():
                return self._of_first(one)
            case Mma():
                return self._product(one)
            case Loop(alternate=True):
                return self._alternate(one)
            case Loop():
                return self._loop(one)
            case Branch():
                return self._branch(one)
            case Marked() | While():
                return [ir.with_body(one.raw, self._block(one.blocks[0]))]
        return [one.raw] if one.allocates else self._plain(one)

    def _operation(self, one: BarrierOperation) -> list[Stmt]:
        """What becomes of an operation on an mbarrier of the author."""
        if one.operation.kind == "init":  # before the roles part
            return []
        if one.operation.kind == "wait":
            return [one.raw]
        # The arrival says that all threads have come here, and their products with them.
        released = Effects(frozenset(), frozenset(self.own))
        arrive = by_one_consumer(self.program, one.raw)
        return [*self.products.before(released), all_consumers(self.program), arrive]

    def _plain(self, one: Statement) -> list[Stmt]:
        found = one.effects
        mine = warpgroup_barrier(self.program.var("warpgroup"))
        before = self.products.before_computing(found, self.computed, mine)
        written = any(is_shared(buffer) for buffer in found.writes)
        placed = by_one_thread(self._placed(one), self.program, self.alone)
        if not written:
            return [*before, placed, *self._apart(found)]
        # Everyone has read the old contents; everyone sees the new ones, the tensor core too.
        return [
            *before,
            self._sync(),
            placed,
            ir.evaluate(T.ptx.fence.proxy.async_.shared__cta()),
            self._sync(),
        ]

    def _apart(self, found: Effects) -> list[Stmt]:
        """After the start of an accumulator beside others: its registers are its own.

        ptxas copies equal values late, to the second accumulator while the product into the first
        is under way, and then it serialises both (C7517).
        """
        started = found.writes & self.accumulators
        return pin(started) if started and not found.reads and len(self.accumulators) > 1 else []

    def _sync(self) -> Stmt:
        """A barrier of those that execute the current statement."""
        return (one_consumer if self.alone else all_consumers)(self.program)

    def _product(self, one: Mma) -> list[Stmt]:
        found = one.effects
        own = Effects(found.reads - found.writes, found.writes)
        # A product may follow another into the same accumulator, but not into its operands.
        clash = [g for g in self.products.groups if g.writes & own.reads or g.reads & own.writes]
        before: list[Stmt] = []
        if clash:
            index = self.products.groups.index(clash[-1])
            before = self.products.wait_all_but(len(self.products.groups) - 1 - index)
        older = bool(self.products.held)
        after = self.products.issue(Group(own.reads, own.writes))
        # Stages that earlier products read are given back while this one runs.
        freed = self.products.wait_all_but(1) if older else []
        under_way = {tile for group in self.products.groups[:-1] for tile in group.writes}
        # The compiler may keep scale-d, an integer, in a register of D that has the same value.
        words = {tile for tile in found.writes if str(tile.dtype) != "float32"}
        written = ((found.reads | words) & self.computed) - under_way
        return [*before, *fence(written), self._placed(one), *after, *freed]

    def _placed(self, one: Statement) -> Stmt:
        """A statement with the current stage in place of each tile."""
        return place_tiles(one.raw, self.current)

    def _branch(self, one: Branch) -> list[Stmt]:
        if not _needs_order(one):
            *before, placed = self._plain(one)
            # All threads take the same side: it is one jump, and not a choice for each element.
            tiles = one.effects.writes & self.computed
            then, *other = ir.children(placed)
            other = [[side] for side in other]
            return [*before, ir.when(placed.condition, [*pin_one(tiles), then], *other)]
        before = self.products.wait_all_but(0)
        bodies = [[*self._block(inner), *self.products.wait_all_but(0)] for inner in one.blocks]
        return [*before, ir.when(one.condition, *bodies)]

    def _turn(self, one: Turn, uses: list[RingUse]) -> list[Stmt]:
        """What one warpgroup does, whose turn the stage tells; the others pass over it."""
        before = self.products.wait_all_but(0)
        body = [s for use in uses for s in self._open(use)]
        body += self._block(one.body)
        body += self.products.wait_all_but(0)
        after: list[Stmt] = []
        for use in uses:
            at = self.positions[use.ring.name]
            body += self.supply.release(use.ring, at.index)
            after += at.advance()
        stage = self.positions[uses[0].ring.name].index
        mine = T.EQ(T.truncmod(stage, one.count), self.program.var("warpgroup"))
        return [*before, ir.when(mine, body), *after]

    def _of_first(self, one: First) -> list[Stmt]:
        """What the first warpgroup does while the others go on."""
        before = self.products.wait_all_but(0)
        self.alone = True
        body = [*self._block(one.body), *self.products.wait_all_but(0)]
        self.alone = False
        return [*before, ir.when(T.EQ(self.program.var("warpgroup"), 0), body)]

    def _alternate(self, one: Loop) -> list[Stmt]:
        """The tiles of one warpgroup, which passes over the stages of those of the other."""
        before = self.products.wait_all_but(0)
        self.alone = True
        body = [*self._block(one.body), *self.products.wait_all_but(0)]
        self.alone = False
        passes: list[Stmt] = []
        for use in self.plan.uses:
            passes += self.positions[use.ring.name].advance_by(stages_of(use, one))
        return [*before, *of_player(one, self.program.var("warpgroup"), body, passes)]

    def _loop(self, one: Loop) -> list[Stmt]:
        before = [*self.products.wait_all_but(0), *self.supply.before_loop(one)]
        saved = self.products, dict(self.current)
        self.products = Products()
        self._block(one.body)  # only to learn what is under way at its end
        touched = _touched_by_threads(one.body)
        # ptxas serialises products that threads wait for in the next iteration, unless they are
        # complete where the loop begins anew.
        stays = not any(group.conflicts(touched) for group in self.products.groups)
        later = one.var > one.start
        self.products = self.products.guarded(later) if stays else Products()
        self.current = saved[1]
        body = self._block(one.body)
        if not stays:
            body += self.products.wait_all_but(0)
        if not self.supply.refills_after_loops:
            self.products = Products(self.products.groups)
        after: list[Stmt] = []
        if not one.has_iterations:
            # Whether there was an iteration is known here only: further on, the extent may be that
            # of another time round a loop outside.
            after = self.products.guarded(one.extent > 0).wait_all_but(0)
            self.products = Products()
        return [*before, ir.with_body(one.raw, body), *after]

    # -- rings ---------------------------------------------------------------------------------

    def _open(self, use: RingUse) -> list[Stmt]:
        """Wait for the stage; from here on its tiles are those of the stage."""
        at = self.positions[use.ring.name]
        for tile, buffer in use.ring.tiles.items():
            self.current[tile] = (buffer, at.index)
        return [barriers.wait(use.ring.full, at.index, at.phase.value)]

    def _close(self, use: RingUse) -> list[Stmt]:
        """After the last use: give the stage back, now or when its products are complete."""
        ring, at = use.ring, self.positions[use.ring.name]
        reader = self.products.reader_of(ring.tiles)
        if reader is None:
            return [*self.supply.release(ring, at.index), *at.advance()]
        if ring.stages == 1:
            # The next load needs the stage that this product reads.
            index = self.products.groups.index(reader)
            before = self.products.wait_all_but(len(self.products.groups) - 1 - index)
            return [*before, *self.supply.release(ring, at.index), *at.advance()]
        last = self.last[ring.name]
        before = self.products.finish(last)
        self.products.when_done(reader, last, lambda: self.supply.release(ring, last.value))
        return [*before, last.set(at.index), *at.advance()]


def consumers(program: TileProgram) -> int:
    """Warpgroups that compute; before the roles, all that there are."""
    return int(program.id("warpgroup").extents[0])


def positions(plan: PipelinePlan) -> dict[str, Position]:
    """Where a role is in each ring."""
    return {use.ring.name: Position.named(use.ring.name, use.ring.stages) for use in plan.uses}


def one_consumer(program: TileProgram) -> Stmt:
    """A barrier of the threads of one warpgroup."""
    return warpgroup_sync(program.var("warpgroup"))


def all_consumers(program: TileProgram) -> Stmt:
    """A barrier of all warpgroups that compute."""
    if consumers(program) == 1:
        return one_consumer(program)
    return consumers_sync(consumers(program))


def consumer_tiles(program: TileProgram, plan: PipelinePlan) -> list[Stmt]:
    """Allocations of shared tiles that no ring replaces, and of the author's mbarriers."""
    return [
        one.raw
        for one in walk(program.block)
        if isinstance(one, Allocation) and one.allocates
        and (one.buffer.scope() == MBARRIER or is_consumer_tile(one.buffer, plan))
    ]  # fmt: skip


def _in_shared_memory(buffer: Buffer) -> bool:
    return is_shared(buffer) or buffer.scope() == MBARRIER


def read_by_threads(ring: Ring, plan: PipelinePlan) -> bool:
    """Whether threads read a tile of a ring themselves, beside the tensor core."""
    use = next(use for use in plan.uses if use.ring is ring)
    return any(
        one.effects.reads & set(ring.tiles)
        for one in use.block
        if not isinstance(one, (Mma, Load, Allocation))
    )


def _needs_order(one: Statement) -> bool:
    """Whether some part of a statement waits for others, or others wait for it."""
    if isinstance(one, (Orchestrated, ForLoader, BarrierOperation, Mma, Load)):
        return True
    if one.blocks:
        return any(_needs_order(inner) for block in one.blocks for inner in block)
    return any(is_shared(buffer) for buffer in one.effects.writes)


def _touched_by_threads(statements: Block) -> Effects:
    """What statements other than products and loads read and write."""
    return together(
        _touched_by_threads(sum(one.blocks, ())) if one.blocks else one.effects
        for one in statements
        if not isinstance(one, (ForLoader, Mma, Load, Allocation))
    )


def place_tiles(statement: Stmt, current: dict[Buffer, tuple[Buffer, Any]]) -> Stmt:
    """A statement on stages of rings in place of tiles."""

    def tile_region(one: TensorRegion) -> Any:
        if one.source not in current:
            return one
        buffer, stage = current[one.source]
        return ir.region(buffer, (stage, 1), *ir.ranges(one))

    def load(one: TensorLoad) -> Any:
        if one.source not in current:
            return one
        buffer, stage = current[one.source]
        return buffer[(stage, *one.indices)]

    def store(one: tirx.BufferStore) -> Stmt:
        if one.buffer not in current:
            return one
        buffer, stage = current[one.buffer]
        return tirx.BufferStore(buffer, one.value, [stage, *one.indices], one.span)

    if isinstance(statement, TilePrimitiveCall):
        args = [
            tile_region(arg) if isinstance(arg, TensorRegion) else arg for arg in statement.args
        ]
        return ir.tile_call(statement, *args)
    callbacks = [(TensorRegion, tile_region), (TensorLoad, load), (tirx.BufferStore, store)]
    return tvm_ffi.structural_map(statement, callbacks, order="post")
