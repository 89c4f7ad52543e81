"""Several GEMMs in one program: groups with offsets on the device, and two that share A."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tile_programs.case import Case, poisoned, precision, random_values, wide
from warploom import language as wl


def grouped(
    sizes: tuple[int, ...] = (70, 0, 64, 1),
    n: int = 72,
    k: int = 96,
    tile: tuple[int, int, int] = (64, 64, 32),
    dtype: str = "float16",
    stages: int | None = None,
) -> Case:
    """C[rows of g] = A[rows of g] B[g]ᵀ; the rows of a group are known on the device alone.

    A tile has rows of one group; where the group ends, it stores fewer rows than it computes.
    """
    bm, bn, bk = tile
    groups, total = len(sizes), sum(sizes)
    tiles = -(-max(sizes) // bm)

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, o: T.handle, c: T.handle):
        A = T.match_buffer(a, (total, k), dtype)
        B = T.match_buffer(b, (groups, n, k), dtype)
        Offsets = T.match_buffer(o, (groups + 1,), "int32")
        C = T.match_buffer(c, (total, n), dtype)
        T.device_entry()
        bi, bj, g = T.cta_id([tiles, -(-n // bn), groups])
        A_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        B_s = T.alloc_buffer((bn, bk), dtype, scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), dtype, scope="shared")
        row: T.int32 = Offsets[g] + bi * bm
        rows: T.int32 = T.min(Offsets[g + 1] - row, bm)
        if rows > 0:
            for step in wl.pipelined(-(-k // bk), stages):
                Tx.cta.copy_async(A_s, A[row : row + bm, step * bk : step * bk + bk])
                Tx.cta.copy_async(B_s, B[g, bj * bn : bj * bn + bn, step * bk : step * bk + bk])
                Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
            Tx.cta.cast(out, acc)
            Tx.cta.copy(C[row : row + rows, bj * bn : bj * bn + bn], out[0:rows, 0:bn])

    def arguments(rng: np.random.Generator) -> list[Any]:
        return [
            random_values(rng, (total, k), dtype),
            random_values(rng, (groups, n, k), dtype),
            np.cumsum((0, *sizes)).astype(np.int32),
            poisoned((total, n), dtype),
        ]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, ends = wide(args[0]), wide(args[1]), args[2]
        parts = [a[ends[g] : ends[g + 1]] @ b[g].T for g in range(groups)]
        return {3: np.concatenate(parts)}

    return Case(matmul, arguments, expected, precision(dtype))


def swiglu(
    m: int = 100,
    n: int = 72,
    k: int = 96,
    tile: tuple[int, int, int] = (64, 64, 32),
    dtype: str = "float16",
    stages: int | None = None,
) -> Case:
    """C = silu(X Gᵀ) · (X Uᵀ): two products that share X."""
    bm, bn, bk = tile

    @T.prim_func
    def gated(x: T.handle, g: T.handle, u: T.handle, c: T.handle):
        X = T.match_buffer(x, (m, k), dtype)
        G = T.match_buffer(g, (n, k), dtype)
        U = T.match_buffer(u, (n, k), dtype)
        C = T.match_buffer(c, (m, n), dtype)
        T.device_entry()
        bi, bj = T.cta_id([-(-m // bm), -(-n // bn)])
        X_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        G_s = T.alloc_buffer((bn, bk), dtype, scope="shared")
        U_s = T.alloc_buffer((bn, bk), dtype, scope="shared")
        gate = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        up = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), dtype, scope="fragment")
        for step in wl.pipelined(-(-k // bk), stages):
            Tx.cta.copy_async(X_s, X[bi * bm : bi * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(G_s, G[bj * bn : bj * bn + bn, step * bk : step * bk + bk])
            Tx.cta.copy_async(U_s, U[bj * bn : bj * bn + bn, step * bk : step * bk + bk])
            Tx.cta.gemm_async(gate, X_s, G_s, accum=step > 0)
            Tx.cta.gemm_async(up, X_s, U_s, accum=step > 0)
        Tx.cta.silu(gate, gate)
        Tx.cta.mul(gate, gate, up)
        Tx.cta.cast(out, gate)
        Tx.cta.copy(C[bi * bm : bi * bm + bm, bj * bn : bj * bn + bn], out)

    def arguments(rng: np.random.Generator) -> list[Any]:
        inputs = [random_values(rng, s, dtype) for s in ((m, k), (n, k), (n, k))]
        return [*inputs, poisoned((m, n), dtype)]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        x, g, u = map(wide, args[:3])
        gate = x @ g.T
        return {3: gate / (1 + np.exp(-gate)) * (x @ u.T)}

    return Case(gated, arguments, expected, precision(dtype))


def side_by_side(
    m: int = 100,
    n: int = 72,
    k: int = 96,
    tile: tuple[int, int, int] = (64, 64, 32),
    dtype: str = "float16",
    stages: int | None = None,
) -> Case:
    """As :func:`swiglu`, with one tile of both weights, in rows, and one product of both."""
    bm, bn, bk = tile

    @T.prim_func
    def gated(x: T.handle, w: T.handle, c: T.handle):
        X = T.match_buffer(x, (m, k), dtype)
        W = T.match_buffer(w, (2 * n, k), dtype)
        C = T.match_buffer(c, (m, n), dtype)
        T.device_entry()
        bi, bj = T.cta_id([-(-m // bm), -(-n // bn)])
        X_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        W_s = T.alloc_buffer((2 * bn, bk), dtype, scope="shared")
        both = T.alloc_buffer((bm, 2 * bn), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), dtype, scope="fragment")
        for step in wl.pipelined(-(-k // bk), stages):
            Tx.cta.copy_async(X_s, X[bi * bm : bi * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(
                W_s[0:bn, 0:bk], W[bj * bn : bj * bn + bn, step * bk : step * bk + bk]
            )
            Tx.cta.copy_async(
                W_s[bn : 2 * bn, 0:bk],
                W[n + bj * bn : n + bj * bn + bn, step * bk : step * bk + bk],
            )
            Tx.cta.gemm_async(both, X_s, W_s, accum=step > 0)
        for i, j in T.grid(bm, bn):
            out[i, j] = T.cast(both[i, j] * T.sigmoid(both[i, j]) * both[i, j + bn], dtype)
        Tx.cta.copy(C[bi * bm : bi * bm + bm, bj * bn : bj * bn + bn], out)

    def arguments(rng: np.random.Generator) -> list[Any]:
        inputs = [random_values(rng, s, dtype) for s in ((m, k), (2 * n, k))]
        return [*inputs, poisoned((m, n), dtype)]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        gate, up = np.split(wide(args[0]) @ wide(args[1]).T, 2, 1)
        return {2: gate / (1 + np.exp(-gate)) * up}

    return Case(gated, arguments, expected, precision(dtype))
