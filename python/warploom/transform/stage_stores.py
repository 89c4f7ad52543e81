"""Stores of register tiles to global memory: through shared memory, by TMA.

The tile leaves in pieces of 64 rows and one swizzle atom of columns. While TMA drains one piece,
the warpgroup writes the next; the last stores are still under way when the next tile begins. What
TMA cannot store (elements of other than 16 bits, rows that are no multiple of 16 bytes) goes
straight from registers, guarded at the edges.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, ForKind, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.layout.smem_matrix import SharedMatrix
from warploom.target import TMA, Major, Swizzle
from warploom.target.wgmma import WGMMA_M
from warploom.transform import ir
from warploom.transform.infer_layouts import children
from warploom.transform.program import PREFIX, TileProgram, is_global, is_nest

#: Attribute of statements that bring their own synchronisation.
ORCHESTRATED = PREFIX + "orchestrated"
#: First of the named barriers that warpgroups use by themselves; 0 is that of the whole CTA.
WARPGROUP_BARRIER = 1


def stage_stores(program: TileProgram) -> TileProgram:
    """Lower every copy from registers to global memory."""
    staging: dict[tuple[str, int, int], Buffer] = {}
    body = [_statement(one, program, staging) for one in program.body]
    if staging:
        allocated = [tirx.AllocBuffer(buffer) for buffer in staging.values()]
        drain = ir.when(_leader(program), [_wait_group(0, read=False)])
        body = [*allocated, *body, drain]
    return program.replace(body=tuple(body))


def _leader(program: TileProgram) -> Any:
    """The one thread of a warpgroup that issues stores."""
    return T.And(program.var("warp_in_warpgroup") == 0, program.var("lane") == 0)


def _statement(
    statement: Stmt, program: TileProgram, staging: dict[tuple[str, int, int], Buffer]
) -> Stmt:
    if isinstance(statement, tirx.SeqStmt):
        return ir.seq(_statement(one, program, staging) for one in statement.seq)
    if is_nest(statement):
        return statement
    if isinstance(statement, (tirx.For, tirx.AttrStmt)):
        return ir.with_body(statement, [_statement(statement.body, program, staging)])
    if isinstance(statement, tirx.IfThenElse):
        parts = [[_statement(one, program, staging)] for one in children(statement)]
        return ir.when(statement.condition, *parts)
    if isinstance(statement, TilePrimitiveCall) and ir.op_name(statement) in ("copy", "copy_async"):
        to, source = statement.args[:2]
        if is_global(to.source) and source.source.scope() == "local":
            width = _atom_columns(to, source)
            if width is None:
                return _straight(to, source)
            return _staged(to, source, width, program, staging)
    return statement


def _atom_columns(to: TensorRegion, source: TensorRegion) -> int | None:
    """Columns of a piece, or None if TMA cannot store the tile."""
    tile = source.source
    if len(tile.shape) != 2 or tvm.DataType(str(tile.dtype)).bits != 16:
        return None
    pitch = to.source.shape[-1]
    if not isinstance(pitch, tirx.IntImm) or int(pitch) * 2 % TMA.chunk_bytes:
        return None
    wide = [d for d, (_, extent) in enumerate(ir.ranges(to)) if not _is_one(extent)]
    if wide and wide[-1] != len(to.region) - 1:
        return None
    columns = int(tile.shape[1])
    fitting = [s.row_bytes // 2 for s in Swizzle if columns * 2 % s.row_bytes == 0]
    return max(fitting, default=None)


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


def _straight(to: TensorRegion, source: TensorRegion) -> Stmt:
    """A nest that stores element by element."""
    tile = source.source
    counters = [Var(name, "int32") for name in ("i", "j")[: len(tile.shape)]]
    indices, free = [], list(counters)
    for start, extent in ir.ranges(to):
        indices.append(start if _is_one(extent) and len(free) < len(to.region) else start)
        if not _is_one(extent):
            indices[-1] = start + free.pop(0)
    body: Stmt = tirx.BufferStore(to.source, tile[tuple(counters)], indices)
    for var, extent in zip(reversed(counters), reversed(tile.shape), strict=True):
        body = ir.loop(var, int(extent), [body])
    return body


def _staged(
    to: TensorRegion,
    source: TensorRegion,
    width: int,
    program: TileProgram,
    staging: dict[tuple[str, int, int], Buffer],
) -> Stmt:
    tile = source.source
    rows, columns = (int(extent) for extent in tile.shape)
    across = columns // width
    pieces = rows // WGMMA_M * across
    # A piece may be written when the store before the last has left its buffer.
    buffers = 2 if pieces % 2 == 0 else 1
    dtype = str(tile.dtype)
    stage = staging.setdefault((dtype, width, buffers), _buffer(dtype, width, buffers, program))
    consumer, piece = program.var("warpgroup"), Var("piece", "int32")
    row = T.truncdiv(piece, across) * WGMMA_M if rows > WGMMA_M else 0
    column = T.truncmod(piece, across) * width
    slot = T.truncmod(piece, buffers) if buffers > 1 else 0
    place = ir.region(stage, (consumer, 1), (slot, 1), (0, WGMMA_M), (0, width))
    ranges = ir.ranges(to)
    wide = [d for d, (_, extent) in enumerate(ranges) if not _is_one(extent)]
    down, along = wide[0] if len(wide) > 1 else len(ranges) - 2, len(ranges) - 1
    ranges[down] = (ranges[down][0] + row, WGMMA_M)
    ranges[along] = (ranges[along][0] + column, width)
    sync = ir.evaluate(T.cuda.warpgroup_sync(consumer + WARPGROUP_BARRIER))
    leader = _leader(program)
    body = ir.loop(
        piece,
        pieces,
        [
            ir.when(leader, [_wait_group(buffers - 1, read=True)]),
            sync,
            ir.primitive(
                "copy", place, ir.region(tile, (row, WGMMA_M), (column, width)),
                scope="warpgroup", dispatch="ldstmatrix",
            ),  # fmt: skip
            # The TMA engine reads what these threads wrote.
            ir.evaluate(T.ptx.fence.proxy.async_.shared__cta()),
            sync,
            ir.when(
                leader,
                [
                    ir.primitive(
                        "copy_async", ir.region(to.source, *ranges), place, dispatch="tma_auto"
                    ),
                    ir.evaluate(T.ptx.cp.async_.bulk.commit_group()),
                ],
            ),
        ],
        kind=ForKind.UNROLLED,
    )
    return tirx.AttrStmt(0, ORCHESTRATED, ir.as_expr(1), body)


def _buffer(dtype: str, width: int, buffers: int, program: TileProgram) -> Buffer:
    consumers = int(program.id("warpgroup").extents[0])
    matrix = SharedMatrix(dtype, Major.K, Swizzle(2 * width), WGMMA_M, width)
    return tirx.decl_buffer(
        (consumers, buffers, WGMMA_M, width), dtype, "staging", scope="shared",
        layout=matrix.layout((consumers, buffers)),
    )  # fmt: skip


def _wait_group(count: int, read: bool) -> Stmt:
    group = T.ptx.cp.async_.bulk.wait_group
    return ir.evaluate(group.read(count) if read else group(count))
