"""MMAs with a sparse A of Blackwell's tensor core, and the copies of metadata to tensor memory.

``tcgen05.mma.sp`` reads metadata from tensor memory. The thread that multiplies copies the words of
metadata there, right before its MMAs, as it copies scales (:mod:`.emit_scaled_mmas`): its copies
and MMAs execute in order, so all MMAs of a CTA share the columns. A copy writes four columns of
128 lanes; of a pair of CTAs, it copies from the shared memory of each to its tensor memory.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Stmt

from warploom.intrin.tcgen05 import sparse_mma
from warploom.language.descriptor import descriptor
from warploom.layout.metadata_words import (
    COPY_COLUMNS,
    columns_of_instruction,
    shared_words,
)
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.blackwell.mma_descriptors import (
    LANE_MASKS,
    instruction_descriptor,
    operand_descriptor,
)
from warploom.target import SM100A
from warploom.target.tcgen05 import METADATA_COLUMNS, Tcgen05Kind
from warploom.tile import ir
from warploom.tile.statement import Mma


def metadata_columns(mma: Mma) -> int:
    """Columns of tensor memory that the metadata of an MMA takes; 0 if A is dense."""
    if mma.metadata is None:
        return 0
    (_, rows), (_, words) = ir.ranges(mma.metadata)[-2:]
    return shared_words(int(rows), int(words)).k


def emit_sparse_mma(
    mma: Mma, kind: Tcgen05Kind, matrices: tuple[SharedMatrix, SharedMatrix], first: Any
) -> list[Stmt]:
    """The copies of the metadata of an MMA to the columns from ``first`` on, and its instructions.

    Parameters
    ----------
    matrices : tuple of SharedMatrix
        A, as it is stored, and B.
    """
    d, a, b = mma.raw.args[:3]
    m, n = (int(extent) for _, extent in ir.ranges(d))
    copy = T.ptx[f"tcgen05.cp.cta_group::{mma.ctas}.128x128b"]
    *lead, (row, _), (start, _) = ir.ranges(mma.metadata)
    places = [place for place, _ in lead]
    statements: list[Any] = []
    for column in range(0, metadata_columns(mma), COPY_COLUMNS):
        source = descriptor(
            mma.metadata.source, *places, mn=row, k=start + column, arch=SM100A.name
        )
        statements.append(copy(first + T.uint32(column), source))
    (base,) = d.source.allocated_addr
    to = base + T.Cast("uint32", ir.as_expr(ir.ranges(d)[1][0]))
    bits = instruction_descriptor((m, n, kind.sparse_k), mma, matrices, sparse=True)
    issue = sparse_mma(kind, mma.ctas)
    width = columns_of_instruction(matrices[0].dtype)
    accum = T.Cast("bool", ir.as_expr(mma.accumulates, "bool"))
    _, held = ir.ranges(a)[-2 if mma.transposed[0] else -1]
    for step in range(int(held) // kind.k):
        left = operand_descriptor(a, matrices[0], step * kind.k)
        right = operand_descriptor(b, matrices[1], step * kind.sparse_k)
        # Instructions of one column each share an address of two; the selector tells them apart.
        pair, selector = divmod(step * width, METADATA_COLUMNS)
        words = first + T.uint32(pair * METADATA_COLUMNS)
        lanes = [0] * (LANE_MASKS * mma.ctas)
        adds = T.ptx.pred(1 if step else accum)
        statements.append(
            issue(to, left, right, words, T.uint32(bits | selector), *lanes, adds)
        )
    return [ir.written_at(ir.evaluate(one), mma.raw.span) for one in statements]
