"""MMAs of Blackwell's tensor core, as ``tcgen05.mma`` instructions.

TVM's op schedule writes the instructions of MMAs that accumulate in float32, and descriptors of
swizzled operands. The others, those of integers, of float32 operands (tf32), of operands without
swizzle (MN-major ones of rows that are no multiple of 32 bytes), and of parts that begin within a
swizzle atom, are written here, one instruction for each 32 bytes of K. MMAs with scales and with a
sparse A have files of their own.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline, IllegalCombination
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.blackwell.emit_scaled_mmas import emit_scaled_mma, scale_columns
from warploom.lower.blackwell.emit_sparse_mmas import emit_sparse_mma, metadata_columns
from warploom.lower.blackwell.mma_descriptors import (
    LANE_MASKS,
    instruction_descriptor,
    operand_descriptor,
)
from warploom.target import Major, Swizzle
from warploom.target.tcgen05 import tcgen05_kinds
from warploom.tile import ir
from warploom.tile.primitives import is_scaled, tile_call
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Mma


def copied_columns(mma: Mma) -> tuple[str, int]:
    """What the thread that multiplies copies for an MMA, and the columns that it takes, or 0."""
    if mma.scales:
        return "scales", scale_columns(mma)
    return "metadata", metadata_columns(mma)


def emit_mma(call: TilePrimitiveCall, copies: Any) -> list[Stmt]:
    """An MMA whose result lies in tensor memory; operand A does, too, or in shared memory.

    Parameters
    ----------
    copies : Expr
        The first column of tensor memory for scales or metadata, if the program has any.

    Raises
    ------
    Decline
        If no instruction has these types and this shape.
    """
    mma = Mma(call)
    d, a, b = call.args[:3]
    trans_a, trans_b = mma.transposed
    dtypes = [str(region.source.dtype) for region in (a, b, d)]
    try:
        if is_scaled(call):
            return emit_scaled_mma(call, copies)
        kind = tcgen05_kinds(*dtypes)[0]
        m, n = (int(extent) for _, extent in ir.ranges(d))
        ctas = mma.ctas
        kind.check_shape(m * ctas, n, ctas)
        if not is_shared(a.source):  # in tensor memory
            return [tile_call(call, *call.args, scope="thread", dispatch="tcgen05")]
        left = SharedMatrix.from_buffer(a.source, Major.MN if trans_a else Major.K)
        right = SharedMatrix.from_buffer(b.source, Major.MN if trans_b else Major.K)
    except IllegalCombination as error:
        raise Decline(f"The MMA into {d.source.name}: {error}") from error
    if mma.metadata is not None:
        return emit_sparse_mma(mma, kind, (left, right), copies)
    theirs = all(map(_is_theirs, (a, b), (left, right)))
    if dtypes[2] == "float32" != dtypes[0] and theirs:
        return [tile_call(call, *call.args, scope="thread", dispatch="tcgen05")]
    bits = instruction_descriptor((m, n, kind.k), mma, (left, right))
    issue = T.ptx[f"tcgen05.mma.cta_group::{ctas}.kind::{kind.kind}"]
    (base,) = d.source.allocated_addr
    columns = T.Cast("uint32", ir.as_expr(ir.ranges(d)[1][0]))
    all_lanes = [0] * (LANE_MASKS * ctas)
    statements = []
    _, extent = ir.ranges(a)[-1 if left.major is Major.K else -2]
    for k in range(0, int(extent), kind.k):
        operands = [operand_descriptor(a, left, k), operand_descriptor(b, right, k)]
        adds = T.ptx.pred(1 if k else T.Cast("bool", ir.as_expr(mma.accumulates, "bool")))
        statement = issue(base + columns, *operands, T.uint32(bits), *all_lanes, adds)
        statements.append(ir.written_at(ir.evaluate(statement), call.span))
    return statements


def _is_theirs(region: TensorRegion, matrix: SharedMatrix) -> bool:
    """Whether TVM's op schedule writes descriptors of an operand."""
    if matrix.swizzle is Swizzle.NONE:
        return False
    start, _ = ir.ranges(region)[-1]
    return not isinstance(start, int | tirx.IntImm) or int(start) % matrix.atom_columns == 0
