"""Stores of register tiles to global memory: through shared memory, by TMA.

The tile leaves in chunks of one swizzle atom of columns, the widest that are left of a row, and of
as many rows as a warpgroup handles at a time; of transposed tiles, of the columns that a warpgroup
handles at a time, and a few rows. While TMA drains one chunk, the warpgroup writes the
next; the last stores are still under way when the next tile begins. Tiles that TMA cannot store
(rows that are no multiple of 16 bytes), and elements of other than 2 or 4 bytes, go straight from
registers, guarded at the edges. Epilogue inputs, such as a residual, come through the same buffers
(``staged_inputs``), or into registers ahead (``epilogue_inputs``).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import LambdaExpr

from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.analysis.fragments import fragments_of
from warploom.lower.analysis.room_for_stages import STORE_CHUNKS
from warploom.lower.analysis.rows import row_dimensions
from warploom.lower.analysis.shared_tiles import tile_bytes
from warploom.lower.analysis.tma_regions import tma_updates
from warploom.lower.emit.threads import leader, orchestrated, thread_in_warpgroup
from warploom.lower.nests.elements import WARPGROUP
from warploom.lower.stores.chunked_store import (
    ChunkedStore,
    computed,
    if_stored,
    wait_group,
)
from warploom.lower.stores.cut_tiles import Cut, chunk_of, cut_scatter, cut_tile
from warploom.lower.stores.epilogue_inputs import prefetch_inputs
from warploom.lower.stores.scattered_store import ScatteredStore
from warploom.lower.stores.shared_store import store_shared
from warploom.lower.stores.staged_inputs import staged_input
from warploom.lower.stores.store_chunks import store_chunks
from warploom.ops.register_tile import LANES
from warploom.target import Major, Swizzle
from warploom.tile import ir
from warploom.tile.annotations import ORCHESTRATED
from warploom.tile.choices import PING_PONG_WARPGROUPS
from warploom.tile.nest import Binding, ElementStore
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global
from warploom.tile.statement import Block, Loop, Nest, Scatter, Statement, Store, view, walk
from warploom.tile.updates import reduce_of, update_value

#: Buffers for chunks, without a hint.
STORE_BUFFERS = 2


def stage_stores(program: TileProgram) -> TileProgram:
    """Lower every copy from registers or shared tiles to global memory.

    Raises
    ------
    Decline
        If TMA cannot store a shared tile, for which there is no other way.
    """
    staging = _Staging({}, [], _count_stores(program.block) == 1)
    body = _block(program.block, program, staging)
    if any(ORCHESTRATED in _attributes(statement) for statement in body):
        allocated = [tirx.AllocBuffer(buffer) for buffer in staging.buffers.values()]
        # Shared memory must outlive the reads of TMA; the end of the grid completes the stores.
        scatters = any(isinstance(one, Scatter) for one in walk(program.block))
        waiting = program.var("warp_in_warpgroup") == 0 if scatters else leader(program)
        drain = ir.when(waiting, [wait_group(0)])
        body = [*allocated, *body, drain]
    program = program.replace(body=tuple(body)).decided(*staging.decided)
    if not staging.buffers:
        for hint in ("store_columns", "store_buffers"):
            if getattr(program.hints, hint) is not None:
                program = program.not_followed(
                    hint, "no tile of registers is stored by TMA, in chunks; leave it out"
                )
    return program


@dataclass(frozen=True)
class _Staging:
    """Buffers that chunks go through, the decision, and whether there is a single store.

    Their keys are dtype, rows, columns, number, which store of a block they belong to, if to one,
    and whether that is a scatter. ``repeated`` stores are those in a loop that computes a tile.
    """

    buffers: dict[tuple[str, int, int, int, int, bool], Buffer]
    decided: list[str]
    alone: bool
    repeated: bool = False


def _count_stores(statements: Block) -> int:
    """Copies from registers to global memory, in inner blocks too."""
    return sum(
        isinstance(statement, Store) and statement.of_registers for statement in walk(statements)
    )


def _attributes(statement: Stmt) -> set[str]:
    keys: set[str] = set()
    tvm_ffi.structural_walk(
        statement, (tirx.AttrStmt, lambda attribute: keys.add(attribute.attr_key))
    )
    return keys


def _statement(statement: Statement, program: TileProgram, staging: _Staging) -> Stmt:
    if isinstance(statement, Nest):
        stored = any(is_global(store.buffer) for store in statement.stores)
        return if_stored(statement.raw, program) if stored else statement.raw
    repeated = staging.repeated or (isinstance(statement, Loop) and not statement.over_tiles)
    staging = dataclasses.replace(staging, repeated=repeated)
    return statement.with_blocks(*(_block(block, program, staging) for block in statement.blocks))


def _block(statements: Block, program: TileProgram, staging: _Staging) -> list[Stmt]:
    result: list[Stmt] = []
    own = 0  # chunks that stores of this block have buffers of their own for
    for number, statement in enumerate(statements):
        if not isinstance(statement, Store):
            result.append(_statement(statement, program, staging))
            continue
        span = statement.raw.span
        if not statement.of_registers:
            result.append(ir.written_at(store_shared(statement, program), span))
            continue
        to, source = statement.to, statement.source
        reduce = reduce_of(statement.raw)
        kinds = fragments_of(source.source, program.tensor_memory)
        whole = _fits_whole(source.source, program, staging.repeated)
        scatter = statement if isinstance(statement, Scatter) else None
        cut = (
            cut_tile(to, source, kinds, program.hints.store_columns, whole) if scatter is None
            else cut_scatter(scatter, kinds, program)
        )  # fmt: skip
        if reduce is not None and not tma_updates(reduce, to.source):
            cut = None
        maker = _maker(result[-1], source, program) if result else None
        if maker is not None:
            result.pop()
        if cut is None:
            staging.decided.append(f"store into {to.source.name}: straight from registers")
            rows = () if scatter is None else scatter.rows
            straight = if_stored(straight_store(to, source, maker, reduce, rows), program)
            result.append(ir.written_at(straight, span))
            continue
        down, across = (" or ".join(map(str, dict.fromkeys(choices))) for choices in cut)
        by_tma = scatter is None or program.tensor_memory
        way = "by TMA" if by_tma else "16 bytes a thread, through shared memory"
        staging.decided.append(
            f"{'update of' if reduce else 'store into'} {to.source.name}: {way}, in chunks of "
            f"{down} x {across} elements{'' if scatter is None else ', to rows by index'}"
        )
        if maker is None and source.source.scope() == "accumulator":
            maker = _copied(source.source)
        count = len(cut[0]) * len(cut[1])
        apart = own > 0 and own + count <= (program.hints.store_buffers or 0)
        own += count if apart or not own else 0
        own_buffers = number if apart else 0
        staged = _staged(to, source, cut, program, staging, maker, own_buffers, reduce, scatter)
        stores = [ir.written_at(part, span) for part in staged.statements]
        result = [*_before_mmas(result, staged, maker, program), *stores]
    return result


@dataclass(frozen=True)
class _Staged:
    """The code of a store: statements before the tile's MMAs, and statements in its own place."""

    ahead: list[Stmt]
    statements: list[Stmt]


def _before_mmas(
    statements: list[Stmt], staged: _Staged, maker: Nest | None, program: TileProgram
) -> list[Stmt]:
    """Statements with the first loads and L2 prefetches of a store before their pipelined loop."""
    views = enumerate(map(view, statements))
    loops = [i for i, view in views if isinstance(view, Loop) and view.pipelined]
    first = loops[0] if loops else len(statements)
    asked = []
    # Epilogue inputs that are loaded ahead into buffers are not prefetched too: GEMMs with a
    # residual took 0.1 to 1.3 % longer so (H200, 2026-11-22).
    if maker is not None and not staged.ahead and program.stores is None and loops:
        ahead = prefetch_inputs(maker, thread_in_warpgroup(program), WARPGROUP.warps * LANES)
        asked = [orchestrated(ahead)] if ahead else []
    return [*statements[:first], *staged.ahead, *asked, *statements[first:]]


def _maker(statement: Stmt, source: TensorRegion, program: TileProgram) -> Nest | None:
    """A nest that computes a tile, element by element, that nothing but its store uses."""
    nest = view(statement)
    if not isinstance(nest, Nest):
        return None
    loops, (*before, last) = nest.loops, nest.parts
    if not all(isinstance(part, Binding) for part in before) or len(loops) != 2:
        return None
    if not isinstance(last, ElementStore) or not last.buffer.same_as(source.source):
        return None
    if not all(i.same_as(loop.loop_var) for i, loop in zip(last.indices, loops, strict=True)):
        return None
    used = sum(
        source.source in ir.uses(statement.raw)
        for statement in walk(program.block)
        if not statement.blocks and not statement.allocates
    )
    return nest if used == 2 else None


def straight_store(
    to: TensorRegion, source: TensorRegion, maker: Nest | None = None, reduce: str | None = None,
    scattered: tuple[LambdaExpr, ...] = (),
) -> Stmt:  # fmt: skip
    """A nest that stores element by element; with ``maker``, the tile that that nest computes.

    ``scattered`` are the indices of a ``scatter``.
    """
    tile = source.source
    counters = ir.counters(len(tile.shape))
    if scattered:
        column = ir.ranges(to)[-1][0]
        indices = [*(place.apply([counters[0]]) for place in scattered), column + counters[1]]
    else:
        rows = row_dimensions(ir.ranges(to), int(tile.shape[0])) or []
        indices, free = [], [*_places(ir.ranges(to), rows, counters), *counters[bool(rows) :]]
        for start, extent in ir.ranges(to):
            indices.append(start if ir.is_constant(extent, 1) else start + free.pop(0))
    value, before = tile[tuple(counters)], []
    if maker is not None:
        before, value = computed(maker, counters)
    if reduce is not None:
        value = update_value(f"atomic_{reduce}", to.source[tuple(indices)], value)
    store = tirx.BufferStore(to.source, value, indices)
    return ir.nest(counters, map(int, tile.shape), [*before, store])


def _places(ranges: list[tuple[Any, Any]], rows: list[int], counters: list[Var]) -> list[Any]:
    """Where a row of a tile lies along each of the dimensions that are its rows."""
    places, inner = [], 1
    for dimension in reversed(rows):
        extent = int(ranges[dimension][1])
        place = T.truncdiv(counters[0], inner) if inner > 1 else counters[0]
        places.append(place if dimension == rows[0] else T.truncmod(place, extent))
        inner *= extent
    return places[::-1]


def _staged(
    to: TensorRegion,
    source: TensorRegion,
    cut: Cut,
    program: TileProgram,
    staging: _Staging,
    maker: Nest | None,
    apart: int,
    reduce: str | None,
    scatter: Scatter | None = None,
) -> _Staged:
    """Store chunk by chunk; with ``maker``, each chunk is computed just before it is stored.

    A number ``apart`` means buffers that no other store has, after one in the same block which has
    waited for all stores before it.
    """
    tile = source.source
    rows, dtype = int(tile.shape[0]), str(tile.dtype)
    heights, widths = cut
    kinds = fragments_of(tile, program.tensor_memory)
    count = program.hints.store_buffers or STORE_BUFFERS
    if _fits_whole(tile, program, staging.repeated):
        count = max(count, len(heights) * len(widths))
    parts = store_chunks(heights, widths, count)
    buffers: dict[int, Buffer] = {}
    for width in dict.fromkeys(widths):
        count = 1 + max(part.slot for part in parts if part.width == width)
        key = dtype, max(heights), width, count
        buffer = _buffer(*key, program)
        # Other threads wait for stores of scattered rows than for those of boxes.
        own = scatter is not None
        buffers[width] = staging.buffers.setdefault((*key, apart, own), buffer)
    if scatter is not None:
        scattered = ScatteredStore(
            to.source, tile, tuple(parts), (), buffers, kinds, program,
            rows=scatter.rows, column=ir.ranges(to)[-1][0],
        )  # fmt: skip
        first, stored = scattered.plainly(maker, False)
        return _Staged([], [*first, orchestrated(stored)])
    targets = [chunk_of(to, rows, part.row, part.height) for part in parts]
    store = ChunkedStore(
        to.source, tile, tuple(parts), tuple(targets), buffers, kinds, program, reduce
    )
    # Of warpgroups of slice-K, all begin a tile, and the first alone ends it.
    together = (program.hints.slice_k or 1) == 1 and program.stores is None
    fits = maker is not None and staging.alone and store.has_matrices and together
    staged = staged_input(maker, tile) if fits else None
    if staged is not None:
        staging.decided.append(f"{staged.load.source.name}: comes through the buffers of chunks")
        ahead, stored = store.with_input(maker, staged)
        return _Staged([orchestrated(ahead)], [orchestrated(stored)])
    first, stored = store.plainly(maker, apart > 0)
    return _Staged([], [*first, orchestrated(stored)])


def _fits_whole(tile: Buffer, program: TileProgram, repeated: bool) -> bool:
    """Whether all chunks of a tile have buffers of their own, as those in loops should have.

    Chunks of a tile that an iteration stores then wait for those of the iteration before alone,
    while the MMAs of the loop go on.
    """
    whole = tile_bytes(tile) * (program.hints.consumers or 1)
    return repeated and program.hints.store_buffers is None and whole <= STORE_CHUNKS


def _copied(tile: Buffer) -> Nest:
    """A nest that makes a tile of itself, as a read of an accumulator in chunks needs."""
    i, j = Var("i", "int32"), Var("j", "int32")
    store = tirx.BufferStore(tile, tile[i, j], [i, j])
    return view(ir.nest([i, j], map(int, tile.shape), [store]))


def _buffer(dtype: str, rows: int, width: int, buffers: int, program: TileProgram) -> Buffer:
    warpgroups = int(program.id("warpgroup").extents[0])
    consumers = PING_PONG_WARPGROUPS if program.hints.ping_pong else warpgroups
    size = tvm.DataType(dtype).bits // 8
    swizzle = Swizzle(min(size * width, Swizzle.B128.row_bytes))
    matrix = SharedMatrix(dtype, Major.K, swizzle, rows, width)
    return tirx.decl_buffer(
        (consumers, buffers, rows, width), dtype, "staging", scope="shared",
        layout=matrix.layout((consumers, buffers)),
    )  # fmt: skip
