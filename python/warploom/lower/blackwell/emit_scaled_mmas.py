"""MMAs with scales of Blackwell's tensor core, and the copies of the scales to tensor memory.

``tcgen05.mma`` with ``.block_scale`` reads scales from tensor memory. The thread that multiplies
copies them there, right before its MMAs: ``tcgen05.cp`` and ``tcgen05.mma`` of one thread execute
in order (PTX ISA, "tcgen05", "Pipelined instructions"), so all MMAs of a CTA share the columns, and
nothing waits for a copy. A block of 128 rows by 4 scales takes 4 columns, each of which has the 4
scales of 32 rows; the blocks of all rows for 4 scales stand side by side.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer, IntImm, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.analysis.scales import block_at, format_of, rows_and_scales
from warploom.lower.blackwell.mma_descriptors import operand_descriptor
from warploom.target import Major, Swizzle
from warploom.target.scaled_formats import (
    SCALE_BLOCK,
    SCALE_COLUMNS,
    ScaledFormat,
    scale_blocks,
)
from warploom.tile import ir
from warploom.tile.statement import Mma

#: Columns of tensor memory that a block of scales takes.
BLOCK_COLUMNS = SCALE_BLOCK[1] // SCALE_COLUMNS
#: Bits of a shared address that a descriptor holds, in units of 16 bytes.
_ADDRESS_BITS = 0x3FFF
#: Where an instruction descriptor has the byte of a column with the scales of A, and of B.
_SCALE_ID_A, _SCALE_ID_B = 29, 4
_COPY = "tcgen05.cp.cta_group::1.32x128b.warpx4"


def scale_columns(mma: Mma) -> int:
    """Columns of tensor memory that the scales of an MMA take; 0 if it has none."""
    if not mma.scales:
        return 0
    row = format_of(mma)
    shapes = [scale_blocks(*rows_and_scales(row, operand)) for operand in mma.operands]
    return sum(BLOCK_COLUMNS * blocks * steps for blocks, steps, *_ in shapes)


def emit_scaled_mma(call: TilePrimitiveCall, first: Any) -> list[Stmt]:
    """The copies of the scales of an MMA to the columns from ``first`` on, and its instructions."""
    mma = Mma(call)
    row = format_of(mma)
    statements: list[Stmt] = []
    columns: list[tuple[Any, int]] = []
    for operand, scales in zip(mma.operands, mma.scales, strict=True):
        blocks, steps, *_ = scale_blocks(*rows_and_scales(row, operand))
        columns.append((first, BLOCK_COLUMNS * blocks))
        for block in range(blocks):
            for step in range(steps):
                to = first + T.uint32(BLOCK_COLUMNS * (step * blocks + block))
                at = block_at(row, operand, scales, block, step)
                source = _block_descriptor(scales.source, at)
                statements.append(ir.evaluate(T.ptx[_COPY](to, source)))
        first = first + T.uint32(BLOCK_COLUMNS * blocks * steps)
    statements += _instructions(mma, row, columns)
    return [ir.written_at(statement, call.span) for statement in statements]


def _instructions(mma: Mma, row: ScaledFormat, columns: list[tuple[Any, int]]) -> list[Stmt]:
    """``tcgen05.mma`` for each step of K; ``columns`` has those of scales, and of 4 of them."""
    d, accum = mma.raw.args[0], ir.as_expr(mma.accumulates, "bool")
    (base,) = d.source.allocated_addr
    to = base + T.Cast("uint32", ir.as_expr(ir.ranges(d)[1][0]))
    matrices = [SharedMatrix.from_buffer(region.source, Major.K) for region in mma.operands]
    vector = row.scales_of_step
    issue = T.ptx[f"tcgen05.mma.cta_group::1.kind::{row.kind}.block_scale.scale_vec::{vector}X"]
    bits = _instruction_descriptor(mma, row)
    _, count = rows_and_scales(row, mma.operands[0])
    made = []
    for scale in range(0, count, vector):
        step, byte = divmod(scale, SCALE_COLUMNS)
        k = scale * row.block // row.packed
        operands = [
            operand_descriptor(region, matrix, k)
            for region, matrix in zip(mma.operands, matrices, strict=True)
        ]
        of_scales = [start + T.uint32(step * width) for start, width in columns]
        instruction = bits | byte << _SCALE_ID_A | byte << _SCALE_ID_B
        adds = T.ptx.pred(1 if scale else T.Cast("bool", accum))
        made.append(ir.evaluate(issue(to, *operands, T.uint32(instruction), *of_scales, adds)))
    return made


def _block_descriptor(tile: Buffer, at: list[Any]) -> Any:
    """The matrix descriptor of a block of scales: 32 rows of 16 bytes, one behind the other."""
    matrix = SharedMatrix("uint8", Major.K, Swizzle.NONE, *SCALE_BLOCK)
    base = T.cuda.cvta_generic_to_shared(tile.ptr_to(at))
    address = (base >> T.uint32(4)) & T.uint32(_ADDRESS_BITS)
    return IntImm("uint64", matrix.tcgen05_descriptor) + T.Cast("uint64", address)


def _instruction_descriptor(mma: Mma, row: ScaledFormat) -> int:
    """Of the MMAs of one CTA; the places of scales in their columns are 0."""
    # Imported late: the module pulls in all of TVM's CUDA code generation.
    from tvm.backend.cuda.cpp.descriptors import encode_instr_descriptor_block_scaled_uint32

    m, n = (int(extent) for _, extent in ir.ranges(mma.raw.args[0]))
    a, b = (
        str(region.source.dtype) if row.packed == 1 else row.elements[0]
        for region in mma.operands
    )
    return encode_instr_descriptor_block_scaled_uint32(
        M=m, N=n, K=row.instruction.k, d_dtype="float32", a_dtype=a, b_dtype=b,
        sf_dtype=row.scale, trans_a=False, trans_b=False,
    )  # fmt: skip
