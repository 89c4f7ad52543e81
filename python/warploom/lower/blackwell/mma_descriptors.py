"""Descriptors of the operands and of the instruction of a ``tcgen05.mma``."""

from __future__ import annotations

from typing import Any

from tvm.ir import TensorRegion

from warploom.language.descriptor import descriptor
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target import SM100A, Major
from warploom.tile import ir
from warploom.tile.statement import Mma

#: Words of ``disable-output-lane`` for each CTA; of zeros, no lane is left out.
LANE_MASKS = 4


def operand_descriptor(region: TensorRegion, matrix: SharedMatrix, k: int) -> Any:
    """The matrix descriptor of an operand from the ``k``-th element of its K on."""
    *lead, first, second = (start for start, _ in ir.ranges(region))
    mn, start = (first, second) if matrix.major is Major.K else (second, first)
    return descriptor(
        region.source, *lead, mn=mn, k=start + k, major=matrix.major.name, arch=SM100A.name
    )


def instruction_descriptor(
    shape: tuple[int, int, int], mma: Mma, matrices: tuple[SharedMatrix, SharedMatrix],
    sparse: bool = False,
) -> int:  # fmt: skip
    """Of the instructions of an MMA without scales; each CTA has ``shape``: M, N, K."""
    # Imported late: the module pulls in all of TVM's CUDA code generation.
    from tvm.backend.cuda.cpp.descriptors import encode_instr_descriptor_dense_uint32

    m, n, k = shape
    a, b = matrices
    left, right = ("tf32" if one.dtype == "float32" else one.dtype for one in matrices)
    return encode_instr_descriptor_dense_uint32(
        M=m * mma.ctas, N=n, K=k, d_dtype=str(mma.d.dtype), a_dtype=left, b_dtype=right,
        trans_a=a.major is Major.MN, trans_b=b.major is Major.MN, cta_group=mma.ctas,
        is_sparse=sparse,
    )  # fmt: skip
