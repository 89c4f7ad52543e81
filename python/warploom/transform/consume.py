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

from warploom.language.mbarrier import SCOPE as MBARRIER
from warploom.language.mbarrier import Operation, read_operation
from warploom.tile import ir
from warploom.tile.effects import Effects, effects
from warploom.tile.kinds import is_for_loading_thread, is_gemm, is_load
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_shared, is_tile
from warploom.tile.statement import is_nest
from warploom.transform import barriers
from warploom.transform.barriers import Position, Ring
from warploom.transform.named_barriers import (
    consumers_sync,
    warpgroup_barrier,
    warpgroup_sync,
)
from warploom.transform.own_barriers import by_one_consumer, own_tiles
from warploom.transform.pin_registers import pin, pin_one
from warploom.transform.ping_pong import is_alternate, of_player, stages_of
from warploom.transform.plan_pipeline import PipelinePlan, RingUse, is_consumer_tile
from warploom.transform.prints import by_one_thread
from warploom.transform.stage_stores import is_orchestrated
from warploom.transform.take_turns import in_turns, is_for_first, is_turn
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

    def load(self, load: TilePrimitiveCall) -> list[Stmt]:
        """Statements in place of a load."""

    def by_hand(self, statement: Stmt) -> list[Stmt]:
        """Statements in place of one that the author left to the thread that loads."""

    def before_loop(self, loop: tirx.For) -> list[Stmt]:
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
        written = _touched_by_threads(list(program.body)).writes
        self.computed = {tile for tile in written if is_tile(tile) and not is_shared(tile)}
        self.accumulators = _accumulators(list(program.body))

    def run(self) -> list[Stmt]:
        """Its statements."""
        start = [s for position in self.positions.values() for s in position.define(0)]
        start += [s for last in self.last.values() for s in last.define(0)]
        start += self.supply.start()
        body = self._block(list(self.program.body))
        return [*start, *body, *self.products.wait_all_but(0)]

    # -- statements ----------------------------------------------------------------------------

    def _block(self, statements: list[Stmt]) -> list[Stmt]:
        opened = self.plan.of_block(statements)
        result: list[Stmt] = []
        for number, one in enumerate(statements):
            turns = [use for use in opened if number == use.first and in_turns(use)]
            for use in opened:
                if number == use.first and use not in turns:
                    result += self._open(use)
            result += self._turn(one, turns) if is_turn(one) else self._statement(one)
            for use in opened:
                if number == use.last and use not in turns:
                    result += self._close(use)
        return result

    def _statement(self, one: Stmt) -> list[Stmt]:
        if is_load(one):
            ring = self.plan.ring_of(one)
            filled = Effects(frozenset(), frozenset(ring.tiles))
            statements = self.supply.load(one)
            return [*self.products.before(filled), *statements] if statements else []
        if is_for_loading_thread(one):
            return self.supply.by_hand(one)
        if (operation := read_operation(one)) is not None:
            return self._operation(one, operation)
        if isinstance(one, tirx.AllocBuffer) and _in_shared_memory(one.buffer):
            return []
        if is_orchestrated(one):
            return [*self.products.before(effects(one)), self._placed(one)]
        if is_for_first(one):
            return self._of_first(one)
        if is_gemm(one):
            return self._product(one)
        if is_nest(one) or not ir.children(one):
            if isinstance(one, (tirx.AllocBuffer, tirx.DeclBuffer)):
                return [one]
            return self._plain(one)
        if is_alternate(one):
            return self._alternate(one)
        if isinstance(one, tirx.For):
            return self._loop(one)
        if isinstance(one, tirx.IfThenElse):
            return self._branch(one)
        return [ir.with_body(one, self._block(ir.flatten(one.body)))]

    def _operation(self, one: Stmt, operation: Operation) -> list[Stmt]:
        """What becomes of an operation on an mbarrier of the author."""
        if operation.kind == "init":  # before the roles part
            return []
        if operation.kind == "wait":
            return [one]
        # The arrival says that all threads have come here, and their products with them.
        released = Effects(frozenset(), frozenset(self.own))
        arrive = by_one_consumer(self.program, one)
        return [*self.products.before(released), all_consumers(self.program), arrive]

    def _plain(self, one: Stmt) -> list[Stmt]:
        found = effects(one)
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

    def _product(self, one: TilePrimitiveCall) -> list[Stmt]:
        found = effects(one)
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

    def _placed(self, one: Stmt) -> Stmt:
        """A statement with the current stage in place of each tile."""
        return place_tiles(one, self.current)

    def _branch(self, one: tirx.IfThenElse) -> list[Stmt]:
        if not _needs_order(one):
            *before, placed = self._plain(one)
            # All threads take the same side: it is one jump, and not a choice for each element.
            tiles = effects(one).writes & self.computed
            then, *other = ir.children(placed)
            other = [[side] for side in other]
            return [*before, ir.when(placed.condition, [*pin_one(tiles), then], *other)]
        before = self.products.wait_all_but(0)
        bodies = []
        for body in ir.children(one):
            bodies.append([*self._block(ir.flatten(body)), *self.products.wait_all_but(0)])
        return [*before, ir.when(one.condition, *bodies)]

    def _turn(self, one: tirx.AttrStmt, uses: list[RingUse]) -> list[Stmt]:
        """What one warpgroup does, whose turn the stage tells; the others pass over it."""
        before = self.products.wait_all_but(0)
        body = [s for use in uses for s in self._open(use)]
        body += self._block(ir.flatten(one.body))
        body += self.products.wait_all_but(0)
        after: list[Stmt] = []
        for use in uses:
            at = self.positions[use.ring.name]
            body += self.supply.release(use.ring, at.index)
            after += at.advance()
        stage = self.positions[uses[0].ring.name].index
        mine = T.EQ(T.truncmod(stage, one.value), self.program.var("warpgroup"))
        return [*before, ir.when(mine, body), *after]

    def _of_first(self, one: tirx.AttrStmt) -> list[Stmt]:
        """What the first warpgroup does while the others go on."""
        before = self.products.wait_all_but(0)
        self.alone = True
        body = [*self._block(ir.flatten(one.body)), *self.products.wait_all_but(0)]
        self.alone = False
        return [*before, ir.when(T.EQ(self.program.var("warpgroup"), 0), body)]

    def _alternate(self, one: tirx.For) -> list[Stmt]:
        """The tiles of one warpgroup, which passes over the stages of those of the other."""
        before = self.products.wait_all_but(0)
        tile = ir.flatten(one.body)
        self.alone = True
        body = [*self._block(tile), *self.products.wait_all_but(0)]
        self.alone = False
        passes: list[Stmt] = []
        for use in self.plan.uses:
            passes += self.positions[use.ring.name].advance_by(stages_of(use, one))
        return [*before, *of_player(one, self.program.var("warpgroup"), body, passes)]

    def _loop(self, one: tirx.For) -> list[Stmt]:
        before = [*self.products.wait_all_but(0), *self.supply.before_loop(one)]
        saved = self.products, dict(self.current)
        self.products = Products()
        inner = ir.flatten(one.body)
        self._block(inner)  # only to learn what is under way at its end
        touched = _touched_by_threads(inner)
        # ptxas serialises products that threads wait for in the next iteration, unless they are
        # complete where the loop begins anew.
        stays = not any(group.conflicts(touched) for group in self.products.groups)
        later = one.loop_var > one.min
        self.products = self.products.guarded(later) if stays else Products()
        self.current = saved[1]
        body = self._block(inner)
        if not stays:
            body += self.products.wait_all_but(0)
        if not self.supply.refills_after_loops:
            self.products = Products(self.products.groups)
        after: list[Stmt] = []
        if not (isinstance(one.extent, tirx.IntImm) and int(one.extent) > 0):
            # Whether there was an iteration is known here only: further on, the extent may be that
            # of another time round a loop outside.
            after = self.products.guarded(one.extent > 0).wait_all_but(0)
            self.products = Products()
        return [*before, ir.with_body(one, body), *after]

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
    found: list[Stmt] = []

    def visit(statements: list[Stmt]) -> None:
        for one in statements:
            if isinstance(one, tirx.AllocBuffer):
                own = one.buffer.scope() == MBARRIER or is_consumer_tile(one.buffer, plan)
                found.extend([one] if own else [])
            elif not is_nest(one):
                for body in ir.children(one):
                    visit(ir.flatten(body))

    visit(list(program.body))
    return found


def _in_shared_memory(buffer: Buffer) -> bool:
    return is_shared(buffer) or buffer.scope() == MBARRIER


def read_by_threads(ring: Ring, plan: PipelinePlan) -> bool:
    """Whether threads read a tile of a ring themselves, beside the tensor core."""
    use = next(use for use in plan.uses if use.ring is ring)
    return any(
        not is_gemm(one) and not is_load(one) and not isinstance(one, tirx.AllocBuffer)
        and effects(one).reads & set(ring.tiles)
        for one in use.block
    )  # fmt: skip


def _needs_order(statement: Stmt) -> bool:
    """Whether some part of a statement waits for others, or others wait for it."""
    if is_orchestrated(statement) or is_for_loading_thread(statement):
        return True
    if read_operation(statement) is not None:
        return True
    if is_nest(statement) or not ir.children(statement):
        shared = any(is_shared(buffer) for buffer in effects(statement).writes)
        return is_gemm(statement) or is_load(statement) or shared
    return any(_needs_order(one) for body in ir.children(statement) for one in ir.flatten(body))


def _touched_by_threads(statements: list[Stmt]) -> Effects:
    """What statements other than products and loads read and write."""
    reads: frozenset[Buffer] = frozenset()
    writes: frozenset[Buffer] = frozenset()
    for one in statements:
        if is_for_loading_thread(one):
            continue
        inner = [] if is_nest(one) else ir.children(one)
        for body in inner:
            found = _touched_by_threads(ir.flatten(body))
            reads, writes = reads | found.reads, writes | found.writes
        if not inner and not (is_gemm(one) or is_load(one) or isinstance(one, tirx.AllocBuffer)):
            found = effects(one)
            reads, writes = reads | found.reads, writes | found.writes
    return Effects(reads, writes)


def _accumulators(statements: list[Stmt]) -> frozenset[Buffer]:
    """The tiles that products write."""
    found: frozenset[Buffer] = frozenset()
    for one in statements:
        if is_gemm(one):
            found |= effects(one).writes
        elif not is_nest(one):
            found |= _accumulators([s for body in ir.children(one) for s in ir.flatten(body)])
    return found


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
