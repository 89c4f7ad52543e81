"""MMAs of Blackwell's tensor core, as ``tcgen05.mma`` instructions.

TVM's op schedule writes the instructions of MMAs that accumulate in float32, and descriptors of
swizzled operands. The others, those of integers and of operands without swizzle (MN-major ones of
rows that are no multiple of 32 bytes), are written here, one instruction for each 32 bytes of K.
"""

from __future__ import annotations

from typing import Any

from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline, IllegalCombination
from warploom.language.descriptor import descriptor
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.blackwell.emit_scaled_mmas import emit_scaled_mma
from warploom.target import SM100A, Major, Swizzle
from warploom.target.tcgen05 import tcgen05_kinds
from warploom.tile import ir
from warploom.tile.primitives import is_scaled, tile_call
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Mma

#: Words of ``disable-output-lane`` for each CTA; of zeros, no lane is left out.
_LANE_MASKS = 4


def emit_mma(call: TilePrimitiveCall, scales: Any) -> list[Stmt]:
    """An MMA whose result lies in tensor memory; operand A does, too, or in shared memory.

    Parameters
    ----------
    scales : Expr
        The first column of tensor memory for scales, if the program has any.

    Raises
    ------
    Decline
        If no instruction has these types and this shape.
    """
    d, a, b = call.args[:3]
    trans_a, trans_b, accum = call.args[-3:]
    dtypes = [str(region.source.dtype) for region in (a, b, d)]
    try:
        if is_scaled(call):
            return emit_scaled_mma(call, scales)
        kind = tcgen05_kinds(*dtypes)[0]
        m, n = (int(extent) for _, extent in ir.ranges(d))
        ctas = Mma(call).ctas
        kind.check_shape(m * ctas, n, ctas)
        if not is_shared(a.source):  # in tensor memory
            return [tile_call(call, *call.args, scope="thread", dispatch="tcgen05")]
        left = SharedMatrix.from_buffer(a.source, Major.MN if bool(trans_a) else Major.K)
        right = SharedMatrix.from_buffer(b.source, Major.MN if bool(trans_b) else Major.K)
    except IllegalCombination as error:
        raise Decline(f"The MMA into {d.source.name}: {error}") from error
    if dtypes[2] == "float32" and Swizzle.NONE not in (left.swizzle, right.swizzle):
        return [tile_call(call, *call.args, scope="thread", dispatch="tcgen05")]
    instruction = _instruction_descriptor((m, n, kind.k), ctas, dtypes, left, right)
    mma = T.ptx[f"tcgen05.mma.cta_group::{ctas}.kind::{kind.kind}"]
    (base,) = d.source.allocated_addr
    columns = T.Cast("uint32", ir.as_expr(ir.ranges(d)[1][0]))
    all_lanes = [0] * (_LANE_MASKS * ctas)
    statements = []
    _, extent = ir.ranges(a)[-1 if left.major is Major.K else -2]
    for k in range(0, int(extent), kind.k):
        operands = [_descriptor(a, left, k), _descriptor(b, right, k)]
        adds = T.ptx.pred(1 if k else T.Cast("bool", ir.as_expr(accum, "bool")))
        statement = mma(base + columns, *operands, T.uint32(instruction), *all_lanes, adds)
        statements.append(ir.written_at(ir.evaluate(statement), call.span))
    return statements


def _descriptor(region: TensorRegion, matrix: SharedMatrix, k: int) -> Any:
    """The matrix descriptor of an operand from the ``k``-th of its MMAs on."""
    *lead, first, second = (start for start, _ in ir.ranges(region))
    mn, start = (first, second) if matrix.major is Major.K else (second, first)
    return descriptor(
        region.source, *lead, mn=mn, k=start + k, major=matrix.major.name, arch=SM100A.name
    )


def _instruction_descriptor(
    shape: tuple[int, int, int], ctas: int, dtypes: list[str], a: SharedMatrix, b: SharedMatrix
) -> int:
    """Of an MMA of ``ctas`` CTAs, each of which has ``shape``: M, N, K."""
    # Imported late: the module pulls in all of TVM's CUDA code generation.
    from tvm.backend.cuda.cpp.descriptors import encode_instr_descriptor_dense_uint32

    m, n, k = shape
    left, right, result = dtypes
    return encode_instr_descriptor_dense_uint32(
        M=m * ctas, N=n, K=k, d_dtype=result, a_dtype=left, b_dtype=right,
        trans_a=a.major is Major.MN, trans_b=b.major is Major.MN, cta_group=ctas,
    )  # fmt: skip
