"""GEMMs whose accumulator goes through an expression before it is stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import Case, poisoned, precision, random_values, wide
from warploom import language as wl

Tile = tuple[int, int, int]


@dataclass(frozen=True)
class Epilogue:
    """What becomes of an element x of the matmul, and an operand e that is broadcast.

    ``shape`` has the extents of e as letters: ``n`` one a column, ``m`` one a row, empty one in
    all.
    """

    shape: str
    tir: Callable[[Any, Any], Any]
    numpy: Callable[[np.ndarray, np.ndarray], np.ndarray]


def _gelu(x: Any) -> Any:
    return x * T.float32(0.5) * (T.float32(1) + T.erf(x * T.float32(math.sqrt(0.5))))


def _numpy_gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x * math.sqrt(0.5)))


EPILOGUES = {
    "bias row": Epilogue("n", lambda x, e: x + e, np.add),
    "bias column": Epilogue("m", lambda x, e: x + e, np.add),
    "residual": Epilogue("mn", lambda x, e: x + e, np.add),
    "scale": Epilogue("", lambda x, e: x * e, np.multiply),
    "relu": Epilogue(
        "n", lambda x, e: T.max(x + e, T.float32(0)), lambda x, e: np.maximum(x + e, 0)
    ),
    "gelu": Epilogue("n", lambda x, e: _gelu(x + e), lambda x, e: _numpy_gelu(x + e)),
}


def epilogue(
    kind: str,
    m: int = 100,
    n: int = 136,
    k: int = 96,
    tile: Tile = (64, 64, 32),
    dtype: str = "float16",
    stages: int | None = None,
) -> Case:
    """C = f(A Bᵀ, extra operand), rounded to ``dtype``; kinds are the keys of EPILOGUES."""
    bm, bn, bk = tile
    chosen = EPILOGUES[kind]
    shape = tuple({"m": m, "n": n}[letter] for letter in chosen.shape) or (1, 1)

    def place(i: Any, j: Any) -> Any:
        return [{"m": i, "n": j}[letter] for letter in chosen.shape] or [0, 0]

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, e: T.handle, c: T.handle):
        A = T.match_buffer(a, (m, k), dtype)
        B = T.match_buffer(b, (n, k), dtype)
        E = T.match_buffer(e, shape, dtype)
        C = T.match_buffer(c, (m, n), dtype)
        T.device_entry()
        bi, bj = T.cta_id([-(-m // bm), -(-n // bn)])
        A_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        B_s = T.alloc_buffer((bn, bk), dtype, scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), dtype, scope="fragment")
        for step in wl.pipelined(-(-k // bk), stages):
            Tx.cta.copy_async(A_s, A[bi * bm : bi * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(B_s, B[bj * bn : bj * bn + bn, step * bk : step * bk + bk])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
        for i, j in T.grid(bm, bn):
            extra: T.let = T.cast(E[place(bi * bm + i, bj * bn + j)], "float32")
            out[i, j] = T.cast(chosen.tir(acc[i, j], extra), dtype)
        Tx.cta.copy(C[bi * bm : bi * bm + bm, bj * bn : bj * bn + bn], out)

    def arguments(rng: np.random.Generator) -> list[Any]:
        shapes = (m, k), (n, k), shape
        return [random_values(rng, s, dtype) for s in shapes] + [poisoned((m, n), dtype)]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, e = map(wide, args[:3])
        e = e[:, None] if chosen.shape == "m" else e
        return {3: chosen.numpy(a @ b.T, e)}

    return Case(matmul, arguments, expected, precision(dtype))


def two_outputs(
    m: int = 100,
    n: int = 136,
    k: int = 96,
    tile: Tile = (64, 64, 32),
    dtype: str = "float16",
    stages: int | None = None,
) -> Case:
    """D = alpha A Bᵀ + residual in float32, and C = relu(D); the residual comes by a tile copy."""
    bm, bn, bk = tile

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, r: T.handle, alpha: T.float32, c: T.handle, d: T.handle):
        A = T.match_buffer(a, (m, k), dtype)
        B = T.match_buffer(b, (n, k), dtype)
        R = T.match_buffer(r, (m, n), dtype)
        C = T.match_buffer(c, (m, n), dtype)
        D = T.match_buffer(d, (m, n), "float32")
        T.device_entry()
        bi, bj = T.cta_id([-(-m // bm), -(-n // bn)])
        A_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        B_s = T.alloc_buffer((bn, bk), dtype, scope="shared")
        R_s = T.alloc_buffer((bm, bn), dtype, scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        full = T.alloc_buffer((bm, bn), "float32", scope="fragment")
        out = T.alloc_buffer((bm, bn), dtype, scope="fragment")
        Tx.cta.copy_async(R_s, R[bi * bm : bi * bm + bm, bj * bn : bj * bn + bn])
        for step in wl.pipelined(-(-k // bk), stages):
            Tx.cta.copy_async(A_s, A[bi * bm : bi * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(B_s, B[bj * bn : bj * bn + bn, step * bk : step * bk + bk])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
        for i, j in T.grid(bm, bn):
            full[i, j] = acc[i, j] * alpha + T.cast(R_s[i, j], "float32")
            out[i, j] = T.cast(T.max(full[i, j], T.float32(0)), dtype)
        Tx.cta.copy(D[bi * bm : bi * bm + bm, bj * bn : bj * bn + bn], full)
        Tx.cta.copy(C[bi * bm : bi * bm + bm, bj * bn : bj * bn + bn], out)

    def arguments(rng: np.random.Generator) -> list[Any]:
        inputs = [random_values(rng, s, dtype) for s in ((m, k), (n, k), (m, n))]
        return [*inputs, 0.375, poisoned((m, n), dtype), poisoned((m, n), "float32")]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, r = map(wide, args[:3])
        full = args[3] * (a @ b.T) + r
        return {4: np.maximum(full, 0), 5: full}

    return Case(matmul, arguments, expected, precision(dtype))


def row_sums(
    m: int = 100,
    n: int = 136,
    k: int = 96,
    tile: Tile = (64, 64, 32),
    dtype: str = "float16",
    stages: int | None = None,
) -> Case:
    """C = exp(A Bᵀ / k), and for each tile of columns the sums and maxima of its rows."""
    bm, bn, bk = tile
    tiles = -(-n // bn)

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, c: T.handle, s: T.handle, x: T.handle):
        A = T.match_buffer(a, (m, k), dtype)
        B = T.match_buffer(b, (n, k), dtype)
        C = T.match_buffer(c, (m, n), dtype)
        Sums = T.match_buffer(s, (tiles, m), "float32")
        Maxima = T.match_buffer(x, (tiles, m), "float32")
        T.device_entry()
        bi, bj = T.cta_id([-(-m // bm), tiles])
        A_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        B_s = T.alloc_buffer((bn, bk), dtype, scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        total = T.alloc_buffer((bm,), "float32", scope="fragment")
        largest = T.alloc_buffer((bm,), "float32", scope="fragment")
        out = T.alloc_buffer((bm, bn), dtype, scope="fragment")
        for step in wl.pipelined(-(-k // bk), stages):
            Tx.cta.copy_async(A_s, A[bi * bm : bi * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(B_s, B[bj * bn : bj * bn + bn, step * bk : step * bk + bk])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
        for i, j in T.grid(bm, bn):
            acc[i, j] = T.if_then_else(
                bj * bn + j < n, T.exp(acc[i, j] * T.float32(1 / k)), T.float32(0)
            )
        Tx.cta.sum(total, acc, axes=(1,))
        Tx.cta.max(largest, acc, axes=(1,))
        Tx.cta.cast(out, acc)
        Tx.cta.copy(Sums[bj, bi * bm : bi * bm + bm], total)
        Tx.cta.copy(Maxima[bj, bi * bm : bi * bm + bm], largest)
        Tx.cta.copy(C[bi * bm : bi * bm + bm, bj * bn : bj * bn + bn], out)

    def arguments(rng: np.random.Generator) -> list[Any]:
        results = [poisoned((m, n), dtype)] + [poisoned((tiles, m), "float32") for _ in range(2)]
        return [random_values(rng, (m, k), dtype), random_values(rng, (n, k), dtype), *results]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        full = np.exp(wide(args[0]) @ wide(args[1]).T / k)
        parts = [full[:, t * bn : t * bn + bn] for t in range(tiles)]
        return {
            2: full,
            3: np.stack([p.sum(1) for p in parts]),
            4: np.stack([p.max(1) for p in parts]),
        }

    return Case(matmul, arguments, expected, precision(dtype))
