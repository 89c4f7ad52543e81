"""GEMMs of block-scaled operands: mxfp8, mxfp4 and nvfp4, with scales in rows and in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import Case, numpy_dtype, poisoned, precision, wide
from warploom import language as wl


@dataclass(frozen=True)
class Format:
    """A block-scaled format, as its specification has it."""

    dtype: str
    scale: str
    block: int
    packed: int = 1

    def operand(self, rng: np.random.Generator, rows: int, k: int) -> np.ndarray:
        """Random elements; of 4 bits two in a byte, the even one in the low bits."""
        if self.packed == 2:
            return rng.integers(0, 256, (rows, k // 2)).astype(np.uint8)
        return rng.standard_normal((rows, k), np.float32).astype(numpy_dtype(self.dtype))

    def scales(self, rng: np.random.Generator, rows: int, k: int) -> np.ndarray:
        """A random scale for each block: powers of two as their bits, or float8_e4m3fn."""
        shape = (rows, -(-k // self.block))
        if self.scale == "uint8":
            return rng.integers(124, 129, shape).astype(np.uint8)
        return rng.choice([0.5, 0.75, 1, 1.5, 2], shape).astype(numpy_dtype(self.scale))

    def values(self, operand: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """What an operand and its scales stand for, in float64."""
        if self.packed == 2:
            nibbles = np.stack([operand & 15, operand >> 4], axis=-1).astype(np.uint8)
            operand = nibbles.reshape(len(operand), -1).view(ml_dtypes.float4_e2m1fn)
        if scales.dtype == np.uint8:
            scales = scales.view(ml_dtypes.float8_e8m0fnu)
        factors = np.repeat(wide(scales), self.block, axis=1)
        return wide(operand) * factors[:, : operand.shape[1]]


FORMATS = {
    "mxfp8": Format("float8_e4m3fn", "uint8", 32),
    "mxfp8 e5m2": Format("float8_e5m2", "uint8", 32),
    "mxfp4": Format("uint8", "uint8", 32, 2),
    "nvfp4": Format("uint8", "float8_e4m3fn", 16, 2),
}
ORDERS = ("rows", "blocks")


def in_blocks(scales: np.ndarray) -> np.ndarray:
    """Scales ``(rows, columns)`` in blocks of 128 by 4, element by element."""
    rows, columns = scales.shape
    bits = scales.view(np.uint8)
    blocks = np.zeros((-(-rows // 128), -(-columns // 4), 32, 16), np.uint8)
    for r, s in np.ndindex(rows, columns):
        blocks[r // 128, s // 4, r % 32, r % 128 // 32 * 4 + s % 4] = bits[r, s]
    return blocks.view(scales.dtype)


def in_rows(blocks: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The inverse of :func:`in_blocks`."""
    r, s = np.indices((rows, columns))
    return blocks[r // 128, s // 4, r % 32, r % 128 // 32 * 4 + s % 4]


def scaled(
    name: str = "mxfp8", m: int = 128, n: int = 64, k: int = 256,
    tile: tuple[int, int, int] = (128, 64, 128), order: str = "rows", stages: int | None = None,
    out_dtype: str = "float32", scale_dtype: str | None = None, short: bool = False,
    symbolic: bool = False,
) -> Case:  # fmt: skip
    """C = (A SA)(B SB)ᵀ; ``short`` accumulates the result of ``wl.gemm`` in a fragment."""
    row = FORMATS[name]
    bm, bn, bk = tile
    count, steps = -(-k // row.block), bk // row.block
    packed, pk = row.packed, bk // row.packed
    stored = scale_dtype or row.scale
    blocked = order == "blocks"
    shapes = [
        (-(-rows // 128), -(-count // 4), 32, 16) if blocked else (rows, count) for rows in (m, n)
    ]

    @T.prim_func
    def matmul(a: T.handle, sa: T.handle, b: T.handle, sb: T.handle, c: T.handle):
        size = T.int32() if symbolic else T.int32(m)
        A = T.match_buffer(a, (size if symbolic else m, k // packed), row.dtype)
        SA = T.match_buffer(sa, shapes[0], stored)
        B = T.match_buffer(b, (n, k // packed), row.dtype)
        SB = T.match_buffer(sb, shapes[1], stored)
        C = T.match_buffer(c, (size if symbolic else m, n), out_dtype)
        T.device_entry()
        i, j = T.cta_id([-(-m // bm), -(-n // bn)])
        total = T.alloc_buffer((bm, bn), "float32", scope="fragment" if short else "accumulator")
        if short:
            Tx.cta.zero(total)
        for step in wl.pipelined(-(-k // bk), stages):
            A_s = wl.load(A, (i, step), (bm, pk))
            B_s = wl.load(B, (j, step), (bn, pk))
            if blocked:
                first = [i * bm // 128, j * bn // 128]
                SA_s = wl.load(
                    SA[first[0] : first[0] + -(-bm // 128),
                       step * steps // 4 : step * steps // 4 + -(-steps // 4), 0:32, 0:16]
                )  # fmt: skip
                SB_s = wl.load(
                    SB[first[1] : first[1] + -(-bn // 128),
                       step * steps // 4 : step * steps // 4 + -(-steps // 4), 0:32, 0:16]
                )  # fmt: skip
            else:
                SA_s = wl.load(SA, (i, step), (bm, steps))
                SB_s = wl.load(SB, (j, step), (bn, steps))
            if short:
                part = wl.gemm(A_s, B_s, scale_a=SA_s, scale_b=SB_s)
                Tx.cta.add(total, total, part)
            else:
                Tx.cta.gemm_async(total, A_s, B_s, SFA=SA_s, SFB=SB_s, accum=step > 0)
        wl.store(C, (i, j), total)

    def arguments(rng: np.random.Generator) -> list[Any]:
        made: list[Any] = []
        for rows in (m, n):
            scales = row.scales(rng, rows, k)
            if scale_dtype:
                scales = scales.view(numpy_dtype(scale_dtype))
            made += [row.operand(rng, rows, k), in_blocks(scales) if blocked else scales]
        return [*made, poisoned((m, n), out_dtype)]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        wide_ = []
        for operand, scales, rows in ((args[0], args[1], m), (args[2], args[3], n)):
            plain = in_rows(scales, rows, count) if blocked else scales
            wide_.append(row.values(operand, plain))
        return {4: wide_[0] @ wide_[1].T}

    return Case(matmul, arguments, expected, precision(out_dtype))
