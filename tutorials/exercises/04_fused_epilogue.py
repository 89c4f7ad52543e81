"""Exercises of 04_fused_epilogue.py."""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import Exercise, check_program

M, N, K = 64, 128, 64
BM, BN, BK = 64, 64, 32


def scaled(kind):
    """C = act(scale[row] A B^T + bias[column]); ``kind`` is "silu" or "relu2"."""

    def act(x):
        # solution: silu is x / (1 + exp(-x)), relu2 the square of max(x, 0); this is Python, which
        #   builds an expression
        if kind == "silu":
            return x / (T.float32(1) + T.exp(-x))
        return T.max(x, T.float32(0)) * T.max(x, T.float32(0))
        # end

    @T.prim_func
    def program(
        A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"),
        scale: T.Buffer((M,), "float32"), bias: T.Buffer((N,), "float32"),
        C: T.Buffer((M, N), "float16"),
    ):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([M // BM, N // BN])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        out = T.alloc_buffer((BM, BN), "float16", scope="fragment")
        for k in wl.pipelined(K // BK, stages=2):
            Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
            Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, k * BK : k * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        for y, x in T.grid(BM, BN):
            # solution: read scale and bias where they are, at the element's row and column
            value = T.meta_var(act(scale[i * BM + y] * acc[y, x] + bias[j * BN + x]))
            out[y, x] = T.cast(value, "float16")
            # end
        Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], out)

    return program


def _check(kind, act):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((rows, K)).astype(np.float16) for rows in (M, N))
    scale, bias = (rng.standard_normal(n).astype(np.float32) for n in (M, N))
    sums = scale[:, None] * (a.astype(np.float64) @ b.astype(np.float64).T) + bias
    check_program(scaled(kind), [a, b, scale, bias], act(sums))


EXERCISES = [
    Exercise("A scale for each row, a bias, and silu",
             lambda: _check("silu", lambda x: x / (1 + np.exp(-x)))),
    Exercise("The same with the square of relu",
             lambda: _check("relu2", lambda x: np.maximum(x, 0) ** 2)),
]  # fmt: skip
