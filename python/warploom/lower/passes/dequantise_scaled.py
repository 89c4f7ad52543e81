"""Writes matmuls of block-scaled operands as matmuls of bfloat16, where no MMA has scales.

A product of an element and its scale has at most 6 bits of mantissa, so bfloat16 holds it exactly
within its range. Threads compute the operands into shared tiles; what else may be done with
computed operands, such as two copies that iterations alternate, later passes do.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.lower.analysis.scales import scale_at
from warploom.lower.emit.filled_tiles import ScaledOperands
from warploom.target.scaled_formats import ScaledFormat
from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram
from warploom.tile.statement import Mma

#: Dtype of dequantised operands.
WIDE = "bfloat16"
#: The bits of 2**-127, the smallest scale, as a float32, of whose exponent it has no bit.
_SMALLEST_SCALE = 0x00400000
#: What a float4_e2m1fn is multiplied with, if its bits are put into a float16: exponents of the
#: one are biased by 1, of the other by 15.
_FP4_IN_FP16 = 2.0**14


def dequantise_scaled(program: TileProgram) -> TileProgram:
    """Replace MMAs with scales by MMAs of operands that threads dequantise."""
    return _Dequantised(program).run()


class _Dequantised(ScaledOperands):
    def scaled(self, row: ScaledFormat, mma: Mma) -> tuple[list[Stmt], Stmt]:
        pairs = zip(mma.operands, mma.scales, strict=True)
        filled = [self.filled(pair, partial(self._fill, row, *pair)) for pair in pairs]
        d, *_, accum = mma.raw.args
        never = tirx.const(False, "bool")
        wide = [ir.whole(tile) for tile, _ in filled]
        nests = [nest for _, nests in filled for nest in nests]
        return nests, tile_call(mma.raw, d, *wide, never, never, accum)

    def _fill(
        self, row: ScaledFormat, operand: TensorRegion, scales: TensorRegion
    ) -> tuple[Buffer, Stmt]:
        *lead, (first, rows), (start, stored) = ir.ranges(operand)
        shape = [int(rows), int(stored) * row.packed]
        tile = tirx.decl_buffer(shape, WIDE, f"{operand.source.name}_wide", scope="shared")
        # Divisions that round down: neighbours are then seen to have one scale.
        i, k = Var("i", "int32"), Var("k", "int32")
        at = k if row.packed == 1 else T.floordiv(k, row.packed)
        element = operand.source[(*(one for one, _ in lead), first + i, start + at)]
        value = T.Cast("float32", element) if row.packed == 1 else _fp4(element, k)
        scale = scale_at(row, operand, scales, i, T.floordiv(k, row.block))
        store = tirx.BufferStore(tile, T.Cast(WIDE, value * _scale(row, scale)), [i, k])
        self.decided.append(
            f"operand {operand.source.name}: {row.name}, dequantised into {tile.name}, {WIDE}"
        )
        return tile, ir.nest([i, k], shape, [store])


def _scale(row: ScaledFormat, element: Any) -> Any:
    """A scale as a float32."""
    if row.scale == "float8_e4m3fn":
        return T.Cast("float32", element)
    if str(element.ty.dtype) != "uint8":
        element = T.reinterpret("uint8", element)
    exponent = T.Cast("uint32", element)
    # 255 is NaN: one more than infinity has.
    bits = T.max(exponent << T.uint32(23), T.uint32(_SMALLEST_SCALE))
    return T.reinterpret("float32", bits + (exponent + T.uint32(1) >> T.uint32(8)))


def _fp4(byte: Any, k: Any) -> Any:
    """The ``k``-th float4_e2m1fn, of two in a byte, as a float32."""
    bits = T.Cast("int32", byte) >> T.floormod(k, 2) * 4
    half = (bits & 7) << 9 | (bits & 8) << 12
    return T.Cast("float32", T.reinterpret("float16", T.Cast("uint16", half))) * T.float32(
        _FP4_IN_FP16
    )
