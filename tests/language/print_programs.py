"""Programs that print: a GEMM with a print in every position, whose sums are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl

#: Where a GEMM prints.
POSITIONS = ("before", "loop", "branch", "after", "nothing")


def gemm(
    where: tuple[str, ...], steps: int = 3, shape: tuple[int, int] = (128, 128),
    tile: tuple[int, int] = (64, 64), stages: int = 2, extent: int | None = None,
) -> Any:  # fmt: skip
    """A GEMM that prints in some of :data:`POSITIONS`; each line names its CTA.

    ``extent`` iterations of the loop are executed, all ``steps`` by default.
    """
    (M, N), (BM, BN), BK = shape, tile, 32
    K = BK * max(steps, 1)
    count = steps if extent is None else extent
    before, loop, branch, after = (one in where for one in POSITIONS[:4])

    @T.prim_func
    def func(A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"),
             C: T.Buffer((M, N), "float32")):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([M // BM, N // BN])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        out = T.alloc_buffer((BM, BN), "float32", scope="fragment")
        wl.print("{} {} begins, A {}, beyond {}", i, j, A[i * BM, 1], A[M + i, 0], predicate=before)
        Tx.cta.zero(acc)
        for k in wl.pipelined(count, stages=stages):
            Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
            Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, k * BK : k * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
            wl.print("{} {} step {}: {} {} of {:.1f}", i, j, k, A_s[3, k], B_s[k, 5],
                     acc[BM - 1, k], predicate=loop)  # fmt: skip
            if k == 1:
                wl.print("{} {} second step: {:+g}", i, j, acc[1, 2], predicate=branch)
                wl.print("{} {} again", i, j, predicate=branch and B_s[0, 0] > T.float16(-99))
        for y, x in T.grid(BM, BN):
            out[y, x] = acc[y, x] * 2.0
        for q in range(2):
            wl.print("{} {} result {:#04x}: {:>8}, {}", i, j, q, out[q * (BM - 1), q],
                     T.cast(acc[q, q], "int32") + 1, predicate=after)  # fmt: skip
        Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], out)

    return func


def operands(rng: np.random.Generator, func: Any) -> list[np.ndarray]:
    """Small integers, whose sums are exact in float32, and a result that holds NaN."""
    shapes = [tuple(int(e) for e in p.shape) for p in func.params]
    a, b = (rng.integers(-4, 5, shape).astype("float16") for shape in shapes[:2])
    return [a, b, np.full(shapes[2], np.nan, "float32")]
