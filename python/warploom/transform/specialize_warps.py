"""Splits a program into roles: one thread loads ahead, warpgroups compute.

The producer executes the program with only its loads left; consumers execute it with everything
else. They meet at the rings of the plan: the producer waits until a stage is free and announces
its bytes, consumers wait until it is full and give it back. Control flow and scalars are common to
both. Where CTAs of a cluster load the same tile, each loads a part of it for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, ForKind, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.target import SM90A
from warploom.transform import barriers, ir
from warploom.transform.barriers import Position, Ring
from warploom.transform.decline import Decline
from warploom.transform.effects import Effects, effects
from warploom.transform.infer_layouts import children
from warploom.transform.plan_pipeline import (
    PipelinePlan,
    RingUse,
    is_consumer_tile,
    multicast_part,
    shared_matrix,
    tile_bytes,
)
from warploom.transform.program import (
    Id,
    TileProgram,
    is_gemm,
    is_load,
    is_nest,
    is_shared,
    is_tile,
)
from warploom.transform.stage_stores import ORCHESTRATED, WARPGROUP_BARRIER
from warploom.transform.wait_products import Group, Products, fence

#: Registers of a producer thread once it has given the others away. One thread issues TMA copies.
PRODUCER_REGISTERS = 40
#: Named barrier of all consumer warpgroups.
_EVERY_CONSUMER_BARRIER = 15


def specialize_warps(program: TileProgram, plan: PipelinePlan) -> TileProgram:
    """Carry out a plan with a producer warp and consumer warpgroups.

    Raises
    ------
    Decline
        If a load depends on what consumers compute.
    """
    consumers = int(program.id("warpgroup").extents[0])
    role = Var("wg", "int32")
    consumer = role - 1 if consumers > 1 else tirx.const(0, "int32")
    shared = [
        tirx.AllocBuffer(buffer) for ring in plan.rings for buffer in ring.tiles.values()
    ] + [tirx.AllocBuffer(b) for ring in plan.rings for b in (ring.full, ring.empty)]
    shared += _consumer_tiles(program, plan)
    producing = ir.renewed(_Producer(program, plan).run())
    consuming = _Consumer(program, plan, consumers).run()
    elected = T.And(
        program.var("warp_in_warpgroup") == 0, T.cuda.elect_sync() != T.uint32(0)
    )
    registers = register_split(consumers)
    cluster = program.id("cta_in_cluster") is not None
    sync = ir.evaluate(T.cuda.cluster_sync() if cluster else T.cuda.cta_sync())
    inits = [
        barriers.initialise(barrier, count)
        for ring in plan.rings
        for barrier, count in ((ring.full, 1), (ring.empty, consumers * ring.shared_by))
    ]
    body = [
        *shared,
        ir.when(T.cuda.thread_rank() == 0, inits),
        *barriers.publish(),
        sync,
        ir.when(
            role == 0,
            [*_set_registers("dec", registers, 0), ir.when(elected, producing)],
            [*_set_registers("inc", registers, 1), *consuming],
        ),
    ]
    if cluster:
        # No CTA leaves while another may still write to its memory or its barriers.
        body.append(sync)
    body = [ir.substitute(one, {program.var("warpgroup"): consumer}) for one in body]
    ids = tuple(
        Id("warpgroup", (role,), (consumers + 1,)) if one.kind == "warpgroup" else one
        for one in program.ids
    )
    attrs = (*program.attrs, ("tirx.launch_bounds_min_blocks_per_sm", 1))
    return program.replace(ids=ids, body=tuple(body), attrs=attrs)


def register_split(consumers: int) -> tuple[int, int]:
    """Registers of a producer and of a consumer thread after ``setmaxnreg``."""
    left = SM90A.registers_per_sm - PRODUCER_REGISTERS * SM90A.warpgroup
    share = min(left // (SM90A.warpgroup * consumers), SM90A.registers_per_thread)
    return PRODUCER_REGISTERS, share // SM90A.setmaxnreg.step * SM90A.setmaxnreg.step


def _set_registers(direction: str, registers: tuple[int, int], role: int) -> list[Stmt]:
    return [ir.evaluate(T.ptx[f"setmaxnreg.{direction}.sync.aligned.u32"](registers[role]))]


def _consumer_tiles(program: TileProgram, plan: PipelinePlan) -> list[Stmt]:
    """Allocations of shared tiles that no ring replaces."""
    found: list[Stmt] = []

    def visit(statements: list[Stmt]) -> None:
        for one in statements:
            if isinstance(one, tirx.AllocBuffer) and is_consumer_tile(one.buffer, plan):
                found.append(one)
            elif not is_nest(one):
                for body in children(one):
                    visit(ir.flatten(body))

    visit(list(program.body))
    return found


def _is_scalar(statement: Stmt) -> bool:
    """Whether a statement defines or sets a variable that all threads have alike."""
    if isinstance(statement, tirx.Bind):
        return True
    if isinstance(statement, (tirx.AllocBuffer, tirx.BufferStore)):
        return not is_tile(statement.buffer) and statement.buffer.scope() == "local"
    return False


class _Producer:
    """The program of the thread that loads."""

    def __init__(self, program: TileProgram, plan: PipelinePlan) -> None:
        self.program, self.plan = program, plan
        self.positions = {
            use.ring.name: Position.named(use.ring.name, use.ring.stages) for use in plan.uses
        }

    def run(self) -> list[Stmt]:
        """Its statements."""
        start = [s for position in self.positions.values() for s in position.define(1)]
        return [*start, *self._block(list(self.program.body))]

    def _block(self, statements: list[Stmt]) -> list[Stmt]:
        uses = {use.ring.loads[0]: use for use in self.plan.of_block(statements)}
        result: list[Stmt] = []
        for one in statements:
            if is_load(one):
                use = next((u for load, u in uses.items() if load.same_as(one)), None)
                if use is not None:
                    result += self._fill(use.ring)
            elif _is_scalar(one):
                self._require_uniform(one)
                result.append(one)
            elif not is_nest(one):
                result += self._inside(one)
        return result

    def _inside(self, statement: Stmt) -> list[Stmt]:
        bodies = [self._block(ir.flatten(body)) for body in children(statement)]
        if not any(any(not _is_scalar(s) for s in body) for body in bodies):
            return [] if not any(bodies) else self._rebuild(statement, bodies)
        return self._rebuild(statement, bodies)

    def _rebuild(self, statement: Stmt, bodies: list[list[Stmt]]) -> list[Stmt]:
        if isinstance(statement, tirx.IfThenElse):
            return [ir.when(statement.condition, *bodies)]
        return [ir.with_body(statement, bodies[0])]

    def _require_uniform(self, statement: Stmt) -> None:
        tiles = [b for b in ir.uses(statement) if ir.is_buffer(b) and is_tile(b)]
        if tiles:
            raise Decline(
                f"A scalar is computed from the tile {tiles[0].name}; the thread that loads does "
                "not have it, so read it from global memory."
            )

    def _fill(self, ring: Ring) -> list[Stmt]:
        """One stage: wait until it is free, announce its bytes, copy."""
        at = self.positions[ring.name]
        total = sum(tile_bytes(tile) for tile in ring.tiles)
        statements = [
            barriers.wait(ring.empty, at.index, at.phase.value),
            barriers.expect(ring.full, at.index, total),
        ]
        for load in ring.loads:
            statements += self._copies(load, ring, at)
        return statements + at.advance()

    def _copies(self, load: TilePrimitiveCall, ring: Ring, at: Position) -> list[Stmt]:
        """TMA copies of one tile, one swizzle atom of columns at a time."""
        tile = load.args[0].source
        source = load.args[1]
        destination = ir.ranges(load.args[0])
        if not all(int(e) == int(x) for (_, e), x in zip(destination, tile.shape, strict=True)):
            raise Decline(
                f"A load fills a part of the tile {tile.name}; load all of it, or use two tiles."
            )
        ranges = ir.ranges(source)
        wide = _wide(ranges, len(tile.shape))
        config: dict[str, Any] = {"mbar": ir.address(ring.full, at.index)}
        part = multicast_part(load, self.program) if ring.shared_by > 1 else None
        if part is not None and part[1] > 0:
            along, extent = part
            if int(tile.shape[along]) % (extent * ring.shared_by) or extent % 8:
                part = None
        if part is not None:
            along, extent = part
            first = self.program.var("cta_in_cluster") * extent
            destination[along] = (first, extent)
            ranges[wide[along]] = (ranges[wide[along]][0] + first, extent)
            config["cta_mask"] = (1 << ring.shared_by) - 1
        columns = int(destination[-1][1])
        matrix = shared_matrix(tile)
        width = columns if matrix is None else matrix.atom_columns
        if columns == width:
            return [self._copy(ring, tile, at, destination, source.source, ranges, config)]
        atom = Var("atom", "int32")
        destination[-1] = (destination[-1][0] + atom * width, width)
        ranges[wide[-1]] = (ranges[wide[-1]][0] + atom * width, width)
        copy = self._copy(ring, tile, at, destination, source.source, ranges, config)
        return [ir.loop(atom, columns // width, [copy], kind=ForKind.UNROLLED)]

    def _copy(
        self, ring: Ring, tile: Buffer, at: Position, destination: Any, source: Buffer,
        ranges: Any, config: dict[str, Any],
    ) -> Stmt:  # fmt: skip
        to = ir.region(ring.tiles[tile], (at.index, 1), *destination)
        return ir.primitive(
            "copy_async", to, ir.region(source, *ranges), dispatch="tma_auto", **config
        )


def _wide(ranges: list[tuple[Any, Any]], rank: int) -> list[int]:
    """Dimensions of a region that are those of a tile: all but enough of extent 1."""
    drop = len(ranges) - rank
    result = []
    for dimension, (_, extent) in enumerate(ranges):
        if drop and isinstance(extent, tirx.IntImm) and int(extent) == 1:
            drop -= 1
        else:
            result.append(dimension)
    return result


class _Consumer:
    """The program of a warpgroup that computes."""

    def __init__(self, program: TileProgram, plan: PipelinePlan, consumers: int) -> None:
        self.program, self.plan, self.consumers = program, plan, consumers
        self.products = Products()
        self.positions = {
            use.ring.name: Position.named(use.ring.name, use.ring.stages) for use in plan.uses
        }
        #: Ring -> the stage that products under way still read.
        self.last = {ring.name: ir.Scalar(f"{ring.name}_last") for ring in plan.rings}
        self.current: dict[Buffer, tuple[Buffer, Any]] = {}
        self.peers: dict[str, Buffer] = {}

    def run(self) -> list[Stmt]:
        """Its statements."""
        start = [s for position in self.positions.values() for s in position.define(0)]
        start += [s for last in self.last.values() for s in last.define(0)]
        for ring in self.plan.rings:
            if ring.shared_by > 1:
                peer = T.truncmod(self.program.var("lane"), ring.shared_by)
                view, declaration = barriers.remote_view(ring.empty, peer)
                self.peers[ring.name] = view
                start += declaration
        body = self._block(list(self.program.body))
        return [*start, *body, *self.products.wait_all_but(0)]

    # -- statements ----------------------------------------------------------------------------

    def _block(self, statements: list[Stmt]) -> list[Stmt]:
        opened = self.plan.of_block(statements)
        result: list[Stmt] = []
        for number, one in enumerate(statements):
            for use in opened:
                if number == use.first:
                    result += self._open(use)
            result += self._statement(one)
            for use in opened:
                if number == use.last:
                    result += self._close(use)
        return result

    def _statement(self, one: Stmt) -> list[Stmt]:
        if is_load(one):
            return []
        if isinstance(one, tirx.AllocBuffer) and is_shared(one.buffer):
            return []
        if isinstance(one, tirx.AttrStmt) and one.attr_key == ORCHESTRATED:
            return [*self.products.before(effects(one)), self._placed(one)]
        if is_gemm(one):
            return self._product(one)
        if is_nest(one) or not children(one):
            if isinstance(one, (tirx.AllocBuffer, tirx.DeclBuffer)):
                return [one]
            return self._plain(one)
        if isinstance(one, tirx.For):
            return self._loop(one)
        if isinstance(one, tirx.IfThenElse):
            return self._branch(one)
        return [ir.with_body(one, self._block(ir.flatten(one.body)))]

    def _plain(self, one: Stmt) -> list[Stmt]:
        found = effects(one)
        before = self.products.before(found)
        written = [b for b in found.writes if is_consumer_tile(b, self.plan)]
        placed = self._placed(one)
        if not written:
            return [*before, placed]
        # Everyone has read the old contents; everyone sees the new ones, the tensor core too.
        return [
            *before,
            self._all_consumers(),
            placed,
            ir.evaluate(T.ptx.fence.proxy.async_.shared__cta()),
            self._all_consumers(),
        ]

    def _all_consumers(self) -> Stmt:
        """A barrier of all consumer warpgroups."""
        if self.consumers == 1:
            return ir.evaluate(
                T.cuda.warpgroup_sync(self.program.var("warpgroup") + WARPGROUP_BARRIER)
            )
        threads = self.consumers * SM90A.warpgroup
        return ir.evaluate(
            T.ptx.bar.sync(T.uint32(_EVERY_CONSUMER_BARRIER), T.uint32(threads))
        )

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
        return [*before, fence(), self._placed(one), *after, *freed]

    def _placed(self, one: Stmt) -> Stmt:
        """A statement with the current stage in place of each tile."""
        return place_tiles(one, self.current)

    def _branch(self, one: tirx.IfThenElse) -> list[Stmt]:
        if not _has_engines(one):
            return self._plain(one)
        before = self.products.wait_all_but(0)
        bodies = []
        for body in children(one):
            bodies.append([*self._block(ir.flatten(body)), *self.products.wait_all_but(0)])
        return [*before, ir.when(one.condition, *bodies)]

    def _loop(self, one: tirx.For) -> list[Stmt]:
        before = self.products.wait_all_but(0)
        saved = self.products, dict(self.current)
        self.products = Products()
        inner = ir.flatten(one.body)
        self._block(inner)  # only to learn what is under way at its end
        touched = _touched_by_threads(inner)
        # ptxas serialises products whose results threads touch in the same loop, unless they are
        # complete where the loop begins anew.
        stays = not any(group.writes & touched for group in self.products.groups)
        self.products = self.products.guarded(one.loop_var > one.min) if stays else Products()
        self.current = saved[1]
        body = self._block(inner)
        if not stays:
            body += self.products.wait_all_but(0)
        if not (isinstance(one.extent, tirx.IntImm) and int(one.extent) > 0):
            self.products = self.products.guarded(one.extent > 0)
        return [*before, ir.with_body(one, body)]

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
            return [*self._release(ring, at.index), *at.advance()]
        if ring.stages == 1:
            # The next load needs the stage that this product reads.
            index = self.products.groups.index(reader)
            before = self.products.wait_all_but(len(self.products.groups) - 1 - index)
            return [*before, *self._release(ring, at.index), *at.advance()]
        last = self.last[ring.name]
        before = self.products.finish(last)
        self.products.when_done(reader, last, lambda: self._release(ring, last.value))
        return [*before, last.set(at.index), *at.advance()]

    def _release(self, ring: Ring, stage: Any) -> list[Stmt]:
        """One arrival of this warpgroup at the ``empty`` barrier of each CTA that writes to it."""
        warp, lane = self.program.var("warp_in_warpgroup"), self.program.var("lane")
        sync: list[Stmt] = []
        if self._read_by_threads(ring):
            sync = [
                ir.evaluate(
                    T.cuda.warpgroup_sync(self.program.var("warpgroup") + WARPGROUP_BARRIER)
                )
            ]
        if ring.shared_by > 1:
            chosen = T.And(warp == 0, lane < ring.shared_by)
            return [*sync, ir.when(chosen, [barriers.arrive_remote(self.peers[ring.name], stage)])]
        chosen = T.And(warp == 0, lane == 0)
        return [*sync, ir.when(chosen, [barriers.arrive(ring.empty, stage)])]

    def _read_by_threads(self, ring: Ring) -> bool:
        """Whether threads read a tile of the ring themselves, beside the tensor core."""
        use = next(use for use in self.plan.uses if use.ring is ring)
        return any(
            not is_gemm(one) and not is_load(one) and not isinstance(one, tirx.AllocBuffer)
            and effects(one).reads & set(ring.tiles)
            for one in use.block
        )  # fmt: skip


def _has_engines(statement: Stmt) -> bool:
    """Whether a product or a load is somewhere in a statement."""
    if is_nest(statement) or not children(statement):
        return is_gemm(statement) or is_load(statement)
    return any(_has_engines(one) for body in children(statement) for one in ir.flatten(body))


def _touched_by_threads(statements: list[Stmt]) -> frozenset[Buffer]:
    """Buffers that statements other than products and loads read or write."""
    found: frozenset[Buffer] = frozenset()
    for one in statements:
        if is_nest(one) or not children(one):
            if not (is_gemm(one) or is_load(one) or isinstance(one, tirx.AllocBuffer)):
                seen = effects(one)
                found |= seen.reads | seen.writes
        else:
            for body in children(one):
                found |= _touched_by_threads(ir.flatten(body))
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

    callbacks: dict[type, Callable[[Any], Any]] = {TensorRegion: tile_region, TensorLoad: load}
    if isinstance(statement, TilePrimitiveCall):
        args = [
            tile_region(arg) if isinstance(arg, TensorRegion) else arg for arg in statement.args
        ]
        return ir.tile_call(statement, *args)
    return tvm_ffi.structural_map(
        statement, [(kind, f) for kind, f in callbacks.items()], order="post"
    )
