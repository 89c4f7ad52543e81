"""Stores of register tiles to global memory: through shared memory, by TMA.

The tile leaves in pieces of one swizzle atom of columns, the widest that are left of a row, and of
as many rows as a warpgroup handles at a time. While TMA drains one piece, the warpgroup writes the
next; the last stores are still under way when the next tile begins. What TMA cannot store (rows
that are no multiple of 16 bytes), and elements of other than 2 or 4 bytes, go straight from
registers, guarded at the edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.language.hints import PLAYERS
from warploom.layout.smem_matrix import SharedMatrix
from warploom.ops.copy_strided import knows_strides
from warploom.ops.register_tile import LANES
from warploom.target import TMA, Major, Swizzle, swizzled_pieces
from warploom.transform import ir
from warploom.transform.addends import prefetch_addends, split_addends
from warploom.transform.fill_stages import require_tma
from warploom.transform.fragments import Fragments, fragments
from warploom.transform.named_barriers import warpgroup_sync
from warploom.transform.nest_elements import WARPGROUP
from warploom.transform.program import (
    PIPELINED,
    PREFIX,
    TileProgram,
    is_global,
    is_nest,
    is_shared,
    nest_parts,
    nest_stores,
)
from warploom.transform.rows import part_of_rows, row_dimensions
from warploom.transform.store_pieces import Piece, pieces

#: Bytes of the elements that go through shared memory.
STAGED_BYTES = (2, 4)
#: Buffers for pieces, without a hint.
STORE_BUFFERS = 2
#: Attribute of statements that bring their own synchronisation.
ORCHESTRATED = PREFIX + "orchestrated"


def is_orchestrated(statement: Stmt) -> bool:
    """Whether a statement brings its own synchronisation."""
    return isinstance(statement, tirx.AttrStmt) and statement.attr_key == ORCHESTRATED


def orchestrated(statements: list[Stmt]) -> Stmt:
    """Statements that bring their own synchronisation, as one."""
    return tirx.AttrStmt(0, ORCHESTRATED, ir.as_expr(1), ir.seq(statements))


def stage_stores(program: TileProgram) -> TileProgram:
    """Lower every copy from registers or shared tiles to global memory.

    Raises
    ------
    Decline
        If TMA cannot store a shared tile, for which there is no other way.
    """
    staging = _Staging({}, [])
    body = _block(list(program.body), program, staging)
    if any(ORCHESTRATED in _attributes(one) for one in body):
        allocated = [tirx.AllocBuffer(buffer) for buffer in staging.buffers.values()]
        # Shared memory must outlive what TMA reads of it; the end of the grid completes the stores.
        drain = ir.when(leader(program), [_wait_group(0, read=True)])
        body = [*allocated, *body, drain]
    return program.replace(body=tuple(body)).decided(*staging.decided)


@dataclass(frozen=True)
class _Staging:
    """Buffers that pieces go through, and what was decided.

    Their keys are dtype, columns, number, and which store of a block they belong to, if to one.
    """

    buffers: dict[tuple[str, int, int, int], Buffer]
    decided: list[str]


def _attributes(statement: Stmt) -> set[str]:
    found: set[str] = set()
    tvm_ffi.structural_walk(statement, (tirx.AttrStmt, lambda one: found.add(one.attr_key)))
    return found


def leader(program: TileProgram) -> Any:
    """The one thread of a warpgroup that issues stores."""
    return T.And(program.var("warp_in_warpgroup") == 0, program.var("lane") == 0)


def _statement(statement: Stmt, program: TileProgram, staging: _Staging) -> Stmt:
    if is_nest(statement):
        stored = {one.buffer for one in nest_stores(nest_parts(statement)[1])}
        return _if_stored(statement, program) if any(map(is_global, stored)) else statement
    return ir.map_children(
        statement, lambda one: ir.seq(_block(ir.flatten(one), program, staging))
    )


def _block(
    statements: list[Stmt], program: TileProgram, staging: _Staging
) -> list[Stmt]:
    result: list[Stmt] = []
    own = 0  # pieces that stores of this block have buffers of their own for
    for number, one in enumerate(statements):
        if _is_tile_store(one):
            result.append(_from_shared(one, program))
            continue
        if not _is_store(one):
            result.append(_statement(one, program, staging))
            continue
        to, source = one.args[:2]
        kinds = fragments(program.arch, int(source.source.shape[0]))
        widths = _widths(to, source, kinds, program.hints.store_columns)
        maker = result[-1] if result and _only_makes(result[-1], source, program) else None
        if maker is not None:
            result.pop()
        if not widths:
            staging.decided.append(f"store into {to.source.name}: straight from registers")
            result.append(_if_stored(_straight(to, source, maker), program))
            continue
        across = " or ".join(map(str, dict.fromkeys(widths)))
        staging.decided.append(
            f"store into {to.source.name}: by TMA, in pieces of {kinds.rows} x {across} elements"
        )
        if maker is None and source.source.scope() == "accumulator":
            maker = _copied(source.source)
        count = len(widths) * (int(source.source.shape[0]) // kinds.rows)
        apart = own > 0 and own + count <= (program.hints.store_buffers or 0)
        own += count if apart or not own else 0
        result += _staged(to, source, widths, program, staging, maker, number if apart else 0)
        if maker is not None and program.stores is None:
            result = _with_prefetch(result, maker, program)
    return result


def _with_prefetch(statements: list[Stmt], maker: Stmt, program: TileProgram) -> list[Stmt]:
    """Statements that ask for what a nest reads of global memory before their pipelined loop."""
    for number, one in enumerate(statements):
        if isinstance(one, tirx.For) and PIPELINED in one.annotations:
            thread = program.var("warp_in_warpgroup") * LANES + program.var("lane")
            ahead = prefetch_addends(maker, thread, WARPGROUP.warps * LANES)
            asked = [orchestrated(ahead)] if ahead else []
            return [*statements[:number], *asked, *statements[number:]]
    return statements


def _if_stored(statement: Stmt, program: TileProgram) -> Stmt:
    """A store to global memory, unless this CTA stores nothing."""
    return ir.when(True if program.stores is None else program.stores, [statement])


def _is_store(statement: Stmt) -> bool:
    """Whether a statement copies registers to global memory."""
    return (
        isinstance(statement, TilePrimitiveCall)
        and ir.op_name(statement) in ("copy", "copy_async")
        and is_global(statement.args[0].source)
        and statement.args[1].source.scope() in ("local", "accumulator")
    )


def _is_tile_store(statement: Stmt) -> bool:
    """Whether a statement copies a tile of shared memory to global memory."""
    return (
        isinstance(statement, TilePrimitiveCall)
        and ir.op_name(statement) in ("copy", "copy_async")
        and is_global(statement.args[0].source)
        and is_shared(statement.args[1].source)
    )


def _from_shared(call: TilePrimitiveCall, program: TileProgram) -> Stmt:
    """One thread stores a tile by TMA; it goes on when the tile may be written again."""
    to, source = call.args[:2]
    require_tma(to, f"which {source.source.name} is stored to")
    chosen = T.And(program.var("warpgroup") == 0, leader(program))
    store = [
        _if_stored(_by_tma(to, source), program),
        ir.evaluate(T.ptx.cp.async_.bulk.commit_group()),
        _wait_group(0, read=True),
    ]
    return orchestrated([ir.when(chosen, store)])


def _only_makes(statement: Stmt, source: TensorRegion, program: TileProgram) -> bool:
    """Whether a nest computes a tile, element by element, that nothing but its store uses."""
    if not is_nest(statement):
        return False
    loops, (*before, last) = nest_parts(statement)
    if not all(isinstance(one, tirx.Bind) for one in before) or len(loops) != 2:
        return False
    if not isinstance(last, tirx.BufferStore) or not last.buffer.same_as(source.source):
        return False
    if not all(i.same_as(one.loop_var) for i, one in zip(last.indices, loops, strict=True)):
        return False
    used = 0

    def count(statements: list[Stmt]) -> None:
        nonlocal used
        for one in statements:
            inner = [] if is_nest(one) else ir.children(one)
            if inner:
                for body in inner:
                    count(ir.flatten(body))
            elif not isinstance(one, tirx.AllocBuffer):
                used += source.source in ir.uses(one)

    count(list(program.body))
    return used == 2


def _widths(
    to: TensorRegion, source: TensorRegion, kinds: Fragments, most: int | None
) -> list[int]:
    """Columns of the pieces of a row, at most so many each; none if TMA cannot store the tile."""
    tile = source.source
    size = tvm.DataType(str(tile.dtype)).bits // 8
    # A thread of a fragment has two neighbours; of single bytes they are too few to write.
    if len(tile.shape) != 2 or size not in STAGED_BYTES:
        return []
    pitch = to.source.shape[-1]
    if not isinstance(pitch, tirx.IntImm) or int(pitch) * size % TMA.chunk_bytes:
        return []
    wide = [d for d, (_, extent) in enumerate(ir.ranges(to)) if not ir.is_constant(extent, 1)]
    if wide and wide[-1] != len(to.region) - 1:
        return []
    if any(ir.is_constant(to.source.shape[d], 1) for d in wide):  # TVM describes no such copy
        return []
    rows, columns = (int(extent) for extent in tile.shape)
    if _piece_of(to, rows, rows // kinds.rows - 1, kinds) is None:
        return []
    return swizzled_pieces(columns, size, most)


def _piece_of(
    to: TensorRegion, rows: int, part: int, kinds: Fragments
) -> list[tuple[Any, Any]] | None:
    """The rows of one piece of a region; None if they are no box."""
    ranges = ir.ranges(to)
    dimensions = row_dimensions(ranges, rows)
    return dimensions and part_of_rows(ranges, dimensions, part, kinds.rows)


def _straight(to: TensorRegion, source: TensorRegion, maker: Stmt | None) -> Stmt:
    """A nest that stores element by element; with ``maker``, what that nest computes."""
    tile = source.source
    counters = [Var(name, "int32") for name in ("i", "j")[: len(tile.shape)]]
    rows = row_dimensions(ir.ranges(to), int(tile.shape[0])) or []
    indices, free = [], [*_places(ir.ranges(to), rows, counters), *counters[bool(rows) :]]
    for start, extent in ir.ranges(to):
        indices.append(start if ir.is_constant(extent, 1) else start + free.pop(0))
    value, before = tile[tuple(counters)], []
    if maker is not None:
        before, value = _computed(maker, counters)
    body = ir.seq([*before, tirx.BufferStore(to.source, value, indices)])
    for var, extent in zip(reversed(counters), reversed(tile.shape), strict=True):
        body = ir.loop(var, int(extent), [body])
    return body


def _computed(maker: Stmt, places: list[Any]) -> tuple[list[Stmt], Any]:
    """What a nest computes for the element at some place: bindings, and the value."""
    loops, body = nest_parts(maker)
    table = dict(zip((one.loop_var for one in loops), places, strict=True))
    *before, store = ir.renewed(ir.substitute(one, table) for one in body)
    return before, store.value


def _places(ranges: list[tuple[Any, Any]], rows: list[int], counters: list[Var]) -> list[Any]:
    """Where a row of a tile lies along each of the dimensions that are its rows."""
    found, inner = [], 1
    for dimension in reversed(rows):
        extent = int(ranges[dimension][1])
        place = T.truncdiv(counters[0], inner) if inner > 1 else counters[0]
        found.append(place if dimension == rows[0] else T.truncmod(place, extent))
        inner *= extent
    return found[::-1]


def _staged(
    to: TensorRegion,
    source: TensorRegion,
    widths: list[int],
    program: TileProgram,
    staging: _Staging,
    maker: Stmt | None,
    apart: int,
) -> list[Stmt]:
    """Store piece by piece; with ``maker``, each piece is computed just before it is stored.

    What a piece adds of global memory is loaded while the piece before it is stored; for the first,
    before the products are waited for. A number ``apart`` means buffers that no other store has,
    after one in the same block which has waited for all stores before it.
    """
    tile = source.source
    rows = int(tile.shape[0])
    kinds = fragments(program.arch, rows)
    height = kinds.rows
    parts = pieces(rows, height, widths, program.hints.store_buffers or STORE_BUFFERS)
    dtype = str(tile.dtype)
    stages: dict[int, Buffer] = {}
    for width in dict.fromkeys(widths):
        key = dtype, width, 1 + max(one.slot for one in parts if one.width == width)
        buffer = _buffer(*key, height, program)
        stages[width] = staging.buffers.setdefault((*key, apart), buffer)
    consumer = program.var("warpgroup")
    sync = warpgroup_sync(consumer)
    elected = leader(program)
    # stmatrix moves elements of 16 bits; a thread writes pairs of others, or a whole row, itself.
    paired = tvm.DataType(dtype).bits == 16 and not kinds.row_a_thread
    dispatch = "ldstmatrix" if paired else None
    # Threads meet once for pieces that all have buffers of their own, else for each of them.
    together = all(one.first for one in parts)
    statements: list[Stmt] = []
    stores: list[Stmt] = []
    made = [] if maker is None else [_piece(maker, one, kinds) for one in parts]
    for number, one in enumerate(parts):
        width = one.width
        place = ir.region(stages[width], (consumer, 1), (one.slot, 1), (0, height), (0, width))
        target = _piece_of(to, rows, one.row // height, kinds)
        target[-1] = (target[-1][0] + one.column, width)
        part = ir.region(tile, (one.row, height), (one.column, width))
        if made:
            part = ir.whole(made[number].tile)
            statements.append(made[number].compute)
            if number + 1 < len(made):
                statements += made[number + 1].loads
        if not (together and (number or apart)):
            # What this buffer held before has left it.
            statements += [ir.when(elected, [_wait_group(one.pending, read=True)]), sync]
        statements.append(ir.primitive("copy", place, part, scope="warpgroup", dispatch=dispatch))
        stores += [
            _if_stored(_by_tma(ir.region(to.source, *target), place), program),
            ir.evaluate(T.ptx.cp.async_.bulk.commit_group()),
        ]
        if together and number < len(parts) - 1:
            continue
        # The TMA engine reads what these threads wrote.
        fence = ir.evaluate(T.ptx.fence.proxy.async_.shared__cta())
        statements += [fence, sync, ir.when(elected, stores)]
        stores = []
    return [*(made[0].loads if made else []), orchestrated(statements)]


def _by_tma(to: TensorRegion, place: TensorRegion) -> Stmt:
    dispatch = "tma_auto" if knows_strides(to.source) else "tma_strided"
    return ir.primitive("copy_async", to, place, dispatch=dispatch)


def _copied(tile: Buffer) -> Stmt:
    """A nest that makes a tile of itself: what it takes to read an accumulator in pieces."""
    i, j = Var("i", "int32"), Var("j", "int32")
    store = tirx.BufferStore(tile, tile[i, j], [i, j])
    return ir.loop(i, int(tile.shape[0]), [ir.loop(j, int(tile.shape[1]), [store])])


@dataclass(frozen=True)
class _Made:
    """The part of a nest that computes one piece, whose registers are the piece."""

    tile: Buffer
    loads: list[Stmt]
    compute: Stmt


def _piece(maker: Stmt, one: Piece, kinds: Fragments) -> _Made:
    i, j = Var("i", "int32"), Var("j", "int32")
    before, value = _computed(maker, [i + one.row, j + one.column])
    tile = tirx.decl_buffer(
        (kinds.rows, one.width), str(value.ty.dtype), "piece", scope="local",
        layout=kinds.matrix(kinds.rows, one.width),
    )  # fmt: skip
    body = ir.loop(j, one.width, [*before, tirx.BufferStore(tile, value, [i, j])])
    loads, rest = split_addends(ir.loop(i, kinds.rows, [body]), tile)
    return _Made(tile, loads, ir.seq([tirx.AllocBuffer(tile), rest]))


def _buffer(dtype: str, width: int, buffers: int, rows: int, program: TileProgram) -> Buffer:
    consumers = PLAYERS if program.hints.ping_pong else int(program.id("warpgroup").extents[0])
    size = tvm.DataType(dtype).bits // 8
    matrix = SharedMatrix(dtype, Major.K, Swizzle(size * width), rows, width)
    return tirx.decl_buffer(
        (consumers, buffers, rows, width), dtype, "staging", scope="shared",
        layout=matrix.layout((consumers, buffers)),
    )  # fmt: skip


def _wait_group(count: int, read: bool) -> Stmt:
    group = T.ptx.cp.async_.bulk.wait_group
    return ir.evaluate(group.read(count) if read else group(count))
