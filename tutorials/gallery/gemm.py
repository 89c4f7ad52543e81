"""GEMM with an epilogue: C = relu(A Bᵀ), float16 with sums in float32.

A is ``(M, K)``, B ``(N, K)``, C ``(M, N)``; tiles may reach over the edges.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def gemm(M, N, K, BM=128, BN=256, BK=64):
    @T.prim_func
    def program(A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"),
                C: T.Buffer((M, N), "float16")):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([T.ceildiv(M, BM), T.ceildiv(N, BN)])
        acc = wl.alloc_accumulator((BM, BN))
        for k in wl.pipelined(T.ceildiv(K, BK)):
            A_s = wl.load(A, (i, k), (BM, BK))
            B_s = wl.load(B, (j, k), (BN, BK))
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        for y, x in T.grid(BM, BN):
            acc[y, x] = T.max(acc[y, x], T.float32(0))
        wl.store(C, (i, j), acc)

    return program


def inputs(rng, M, N, K):
    return [rng.standard_normal((rows, K)).astype(np.float16) for rows in (M, N)]


def reference(a, b):
    return np.maximum(a.astype(np.float64) @ b.astype(np.float64).T, 0)


KERNEL = gallery.Kernel(
    gemm, inputs, reference,
    small={"M": 100, "N": 136, "K": 160, "BM": 64, "BN": 64},
    large={"M": 8192, "N": 8192, "K": 8192},
    torch=lambda torch, a, b: torch.relu(a @ b.T),
    flops=lambda M, N, K: 2 * M * N * K,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)
