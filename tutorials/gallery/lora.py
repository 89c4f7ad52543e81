"""A linear layer with a LoRA adapter in one kernel: C = X Wᵀ + s (X Aᵀ) Bᵀ.

X is ``(M, K)``, W ``(N, K)``, A ``(R, K)`` and B ``(N, R)``. X is loaded once for both matmuls, and
the low-rank result stays in registers.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def lora(M, N, K, R=16, scale=0.5, BM=128, BN=128, BK=64, dtype="float16"):
    @T.prim_func
    def program(X: T.Buffer((M, K), dtype), W: T.Buffer((N, K), dtype), A: T.Buffer((R, K), dtype),
                B: T.Buffer((N, R), dtype), C: T.Buffer((M, N), dtype)):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([T.ceildiv(M, BM), T.ceildiv(N, BN)])
        acc = wl.alloc_accumulator((BM, BN))
        low = wl.alloc_accumulator((BM, R))
        B_s = wl.load(B, (j, 0), (BN, R))
        for k in wl.pipelined(T.ceildiv(K, BK)):
            X_s = wl.load(X, (i, k), (BM, BK))
            W_s = wl.load(W, (j, k), (BN, BK))
            A_s = wl.load(A, (0, k), (R, BK))
            Tx.cta.gemm_async(acc, X_s, W_s, accum=k > 0)
            Tx.cta.gemm_async(low, X_s, A_s, accum=k > 0)
        Tx.cta.mul(low, low, T.float32(scale))
        Tx.cta.gemm_async(acc, wl.cast(low, dtype), B_s, accum=True)
        wl.store(C, (i, j), acc)

    return program


def inputs(rng, M, N, K, R=16):
    shapes = (M, K), (N, K), (R, K), (N, R)
    return [(rng.standard_normal(shape) * 0.3).astype(np.float16) for shape in shapes]


def reference(x, w, a, b, scale=0.5):
    x, w, a, b = (each.astype(np.float64) for each in (x, w, a, b))
    return x @ w.T + scale * (x @ a.T) @ b.T


KERNEL = gallery.Kernel(
    lora, inputs, reference,
    small={"M": 64, "N": 72, "K": 160, "BM": 64, "BN": 64},
    large={"M": 4096, "N": 4096, "K": 4096},
    torch=lambda torch, x, w, a, b: x @ w.T + 0.5 * ((x @ a.T) @ b.T),
    flops=lambda M, N, K, R=16: 2 * M * (N * K + R * K + R * N),
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)
