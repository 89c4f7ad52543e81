"""GEMMs of quantised operands: weights that are dequantised on the way, and scales for blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import (
    Case,
    numpy_dtype,
    poisoned,
    precision,
    random_values,
    wide,
)
from warploom import language as wl
from warploom.decide.price.block_scaled import BLOCK
from warploom.layout.weight_order import WEIGHT_ORDERS
from warploom.programs import gemm_block_scaled, gemm_quantised, pack_weights


def dequantised(
    bits: int = 4,
    m: int = 48,
    n: int = 136,
    k: int = 128,
    tile: tuple[int, int, int] = (16, 64, 64),
    group: int = 32,
    dtype: str = "float16",
    stages: int | None = None,
    through: str = "shared",
) -> Case:
    """C = X Wᵀ; W has 8 or 4 bits, two of a byte with the even one low, and a scale for ``group``.

    ``through`` is the scope of the dequantised tile; a fragment is operand A, and C is then
    computed as the transpose of W Xᵀ.
    """
    bm, bn, bk = tile
    per_byte = 8 // bits
    packed = (bn, bk // per_byte)
    stored = "int8" if bits == 8 else "uint8"
    swapped = through == "fragment"

    def weight(w_s: Any, i: Any, j: Any) -> Any:
        if bits == 8:
            return T.cast(w_s[i, j], "float32")
        byte = T.cast(w_s[i, j // 2], "int32")
        return T.cast((byte >> (j % 2 * 4) & 15) - 8, "float32")

    @T.prim_func
    def matmul(x: T.handle, w: T.handle, s: T.handle, c: T.handle):
        X = T.match_buffer(x, (m, k), dtype)
        W = T.match_buffer(w, (n, k // per_byte), stored)
        Scale = T.match_buffer(s, (n, k // group), dtype)
        C = T.match_buffer(c, (m, n), dtype)
        T.device_entry()
        bi, bj = T.cta_id([-(-m // bm), -(-n // bn)])
        X_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        W_s = T.alloc_buffer(packed, stored, scope="shared")
        W_f = T.alloc_buffer((bn, bk), dtype, scope=through)
        acc = T.alloc_buffer((bn, bm) if swapped else (bm, bn), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), dtype, scope="shared")
        for step in wl.pipelined(k // bk, stages):
            Tx.cta.copy_async(X_s, X[bi * bm : bi * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(
                W_s, W[bj * bn : bj * bn + bn, step * packed[1] : step * packed[1] + packed[1]]
            )
            for i, j in T.grid(bn, bk):
                W_f[i, j] = T.cast(
                    weight(W_s, i, j)
                    * T.cast(Scale[bj * bn + i, (step * bk + j) // group], "float32"),
                    dtype,
                )
            if swapped:
                Tx.cta.gemm_async(acc, W_f, X_s, accum=step > 0)
            else:
                Tx.cta.gemm_async(acc, X_s, W_f, accum=step > 0)
        for i, j in T.grid(bm, bn):
            out[i, j] = T.cast(acc[j, i] if swapped else acc[i, j], dtype)
        Tx.cta.copy(C[bi * bm : bi * bm + bm, bj * bn : bj * bn + bn], out)

    def arguments(rng: np.random.Generator) -> list[Any]:
        return [
            random_values(rng, (m, k), dtype),
            random_values(rng, (n, k // per_byte), stored),
            rng.uniform(0.01, 0.1, (n, k // group)).astype(random_values(rng, (1,), dtype).dtype),
            poisoned((m, n), dtype),
        ]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        x, packed_w, scale = args[:3]
        w = packed_w
        if bits == 4:
            nibbles = np.stack([packed_w & 15, packed_w >> 4], axis=-1).reshape(n, k)
            w = nibbles.astype(np.int32) - 8
        weights = w.astype(np.float32) * np.repeat(scale.astype(np.float32), group, axis=1)
        return {3: wide(x) @ wide(weights.astype(scale.dtype)).T}

    return Case(matmul, arguments, expected, precision(dtype))


def packed(
    m: int = 13,
    n: int = 136,
    k: int = 384,
    bits: int = 4,
    group: int = 128,
    dtype: str = "float16",
    order: str = "fragments",
    tile: tuple[int, int, int] | None = (16, 64, 128),
    stages: int | None = 4,
    symbolic: bool = False,
    **hints: Any,
) -> Case:
    """The package's matmul with small weights in words, of which a scale has ``group``."""
    half = 2 ** (bits - 1)
    rows = None if symbolic else m
    func = gemm_quantised(n, k, rows, bits, group, dtype, order, tile, stages, **hints)

    def arguments(rng: np.random.Generator) -> list[Any]:
        weights = rng.integers(-half, half, (n, k), np.int8)
        scale = rng.uniform(0.01, 0.1, (k // group, n))
        return [
            random_values(rng, (m, k), dtype), pack_weights(weights, bits, order),
            scale.astype(numpy_dtype(dtype)), poisoned((m, n), dtype),
        ]  # fmt: skip

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        x, words, scale = args[:3]
        word, shift = WEIGHT_ORDERS[order](np.arange(k), bits)
        weights = (words[:, word] >> shift.astype(np.uint32) & (2**bits - 1)).astype(int) - half
        scales = np.repeat(scale.astype(np.float32), group, axis=0).T
        return {3: wide(x) @ wide((weights * scales).astype(scale.dtype)).T}

    return Case(func, arguments, expected, precision(dtype))


def block_scaled(
    m: int = 100,
    n: int = 192,
    k: int = 256,
    tile: tuple[int, int, int] | None = (64, 64, 128),
    dtype: str = "float8_e4m3fn",
    out_dtype: str = "bfloat16",
    scale_layout: str = "MK",
    stages: int | None = None,
    symbolic: bool = False,
    **hints: Any,
) -> Case:
    """The package's matmul with a scale for 128 elements of a row of A, and a square of B."""
    rows = None if symbolic else m
    func = gemm_block_scaled(n, k, rows, dtype, out_dtype, scale_layout, tile, stages, **hints)
    blocks = -(-k // BLOCK)
    by_rows = scale_layout == "MK"

    def arguments(rng: np.random.Generator) -> list[Any]:
        inputs = [random_values(rng, s, dtype) for s in ((m, k), (n, k))]
        shapes = ((m, blocks) if by_rows else (blocks, m), (-(-n // BLOCK), blocks))
        scales = [rng.uniform(0.5, 2, s).astype(np.float32) for s in shapes]
        return [*inputs, *scales, poisoned((m, n), out_dtype)]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, sa, sb = map(wide, args[:4])
        a = a * np.repeat(sa if by_rows else sa.T, BLOCK, 1)[:, :k]
        b = b * np.repeat(np.repeat(sb, BLOCK, 0)[:n], BLOCK, 1)[:, :k]
        return {4: a @ b.T}

    return Case(func, arguments, expected, precision(out_dtype))
