"""Split-K GEMM: C = A Bᵀ of few rows and columns and a long K, which several CTAs share.

Each CTA sums a part of K; the parts are summed through a workspace. The program is that of a GEMM:
the hint says who computes what.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def split_k_gemm(M, N, K, parts, BM=128, BN=128, BK=64):
    @T.prim_func
    def program(A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"),
                C: T.Buffer((M, N), "float16")):  # fmt: skip
        T.device_entry()
        wl.hints(split_k=parts)
        i, j = T.cta_id([T.ceildiv(M, BM), T.ceildiv(N, BN)])
        acc = wl.alloc_accumulator((BM, BN))
        for k in wl.pipelined(T.ceildiv(K, BK)):
            A_s = wl.load(A, (i, k), (BM, BK))
            B_s = wl.load(B, (j, k), (BN, BK))
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        wl.store(C, (i, j), acc)

    return program


def inputs(rng, M, N, K):
    return [rng.standard_normal((rows, K)).astype(np.float16) for rows in (M, N)]


def reference(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T


KERNEL = gallery.Kernel(
    split_k_gemm, inputs, reference,
    small={"M": 64, "N": 64, "K": 512, "parts": 4, "BM": 64, "BN": 64},
    large={"M": 512, "N": 512, "K": 16384, "parts": 8},
    torch=lambda torch, a, b: a @ b.T,
    flops=lambda M, N, K: 2 * M * N * K,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)
