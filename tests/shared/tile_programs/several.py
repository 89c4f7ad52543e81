"""Several GEMMs in one program: groups with offsets on the device, and two that share A."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import Case, poisoned, precision, random_values, wide
from warploom import language as wl
from warploom.programs import gemm_grouped


def grouped(
    sizes: tuple[int, ...] = (70, 0, 64, 1),
    n: int = 72,
    k: int = 96,
    tile: tuple[int, int, int] | None = (64, 64, 32),
    dtype: str = "float16",
    stages: int | None = None,
    out_dtype: str | None = None,
    indptr_dtype: str = "int32",
    behind: int = 0,
    symbolic: bool = False,
    **hints: Any,
) -> Case:
    """The package's matmul of groups: C[rows of g] = X[rows of g] W[g]ᵀ.

    ``behind`` rows belong to no group; X has no numbers there, and C keeps what it had.
    """
    groups, total = len(sizes), sum(sizes) + behind
    out_dtype = out_dtype or dtype
    func = gemm_grouped(
        groups, n, k, None if symbolic else total, dtype, out_dtype, indptr_dtype, tile, stages,
        **hints,
    )  # fmt: skip

    def arguments(rng: np.random.Generator) -> list[Any]:
        x = random_values(rng, (total, k), dtype)
        x[total - behind :] = np.nan
        c = poisoned((total, n), out_dtype)
        c[total - behind :] = 77
        indptr = np.cumsum((0, *sizes)).astype(indptr_dtype)
        return [x, random_values(rng, (groups, n, k), dtype), indptr, c]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, ends = wide(args[0]), wide(args[1]), args[2]
        parts = [a[ends[g] : ends[g + 1]] @ b[g].T for g in range(groups)]
        return {3: np.concatenate([*parts, np.full((behind, n), 77.0)])}

    return Case(func, arguments, expected, precision(out_dtype))


def swiglu(
    m: int = 100,
    n: int = 72,
    k: int = 96,
    tile: tuple[int, int, int] = (64, 64, 32),
    dtype: str = "float16",
    stages: int | None = None,
) -> Case:
    """C = silu(X Gᵀ) · (X Uᵀ): two matmuls that share X."""
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
    """As :func:`swiglu`, with one tile of both weights, in rows, and one matmul of both."""
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
