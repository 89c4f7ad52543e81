"""C = A B, in all layouts and dtypes, with ragged and with symbolic sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import (
    ACCUMULATORS,
    Case,
    poisoned,
    precision,
    random_values,
    wide,
)
from warploom import language as wl


def gemm(
    m: int = 128,
    n: int = 128,
    k: int = 96,
    tile: tuple[int, int, int] = (64, 64, 32),
    dtype: str = "float16",
    out_dtype: str | None = None,
    layout: str = "NT",
    stages: int | None = None,
    symbolic: bool = False,
    symbolic_k: bool = False,
) -> Case:
    """C = A B in any layout and size; ``layout`` has N for ``[M, K]`` and for ``[K, N]``.

    M is symbolic, or K, and the kernel takes any.
    """
    bm, bn, bk = tile
    acc_dtype = ACCUMULATORS.get(dtype, "float32")
    out_dtype = out_dtype or acc_dtype
    trans_a, trans_b = layout[0] == "T", layout[1] == "N"
    b_shape = (k, n) if trans_b else (n, k)
    a_tile = (bk, bm) if trans_a else (bm, bk)
    b_tile = (bk, bn) if trans_b else (bn, bk)

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, c: T.handle):
        rows = T.int32() if symbolic else T.meta_var(m)
        deep = T.int32() if symbolic_k else T.meta_var(k)
        A = T.match_buffer(a, (deep, rows) if trans_a else (rows, deep), dtype)
        B = T.match_buffer(b, (deep, n) if trans_b else (n, deep), dtype)
        C = T.match_buffer(c, (rows, n), out_dtype)
        T.device_entry()
        i, j = T.cta_id([T.ceildiv(rows, bm), -(-n // bn)])
        A_s = T.alloc_buffer(a_tile, dtype, scope="shared")
        B_s = T.alloc_buffer(b_tile, dtype, scope="shared")
        acc = T.alloc_buffer((bm, bn), acc_dtype, scope="accumulator")
        out = T.alloc_buffer((bm, bn), out_dtype, scope="fragment")
        for step in wl.pipelined(T.ceildiv(deep, bk), stages):
            if trans_a:
                Tx.cta.copy_async(A_s, A[step * bk : step * bk + bk, i * bm : i * bm + bm])
            else:
                Tx.cta.copy_async(A_s, A[i * bm : i * bm + bm, step * bk : step * bk + bk])
            if trans_b:
                Tx.cta.copy_async(B_s, B[step * bk : step * bk + bk, j * bn : j * bn + bn])
            else:
                Tx.cta.copy_async(B_s, B[j * bn : j * bn + bn, step * bk : step * bk + bk])
            Tx.cta.gemm_async(acc, A_s, B_s, transA=trans_a, transB=trans_b, accum=step > 0)
        Tx.cta.cast(out, acc)
        Tx.cta.copy(C[i * bm : i * bm + bm, j * bn : j * bn + bn], out)

    def arguments(rng: np.random.Generator) -> list[Any]:
        return [
            random_values(rng, (k, m) if trans_a else (m, k), dtype),
            random_values(rng, b_shape, dtype),
            poisoned((m, n), out_dtype),
        ]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b = wide(args[0]), wide(args[1])
        return {2: (a.T if trans_a else a) @ (b if trans_b else b.T)}

    return Case(matmul, arguments, expected, precision(out_dtype))
