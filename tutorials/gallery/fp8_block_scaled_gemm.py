"""GEMM of 8-bit floats with scales for blocks, as DeepSeek-V3 has it: C = (SA A) (SB B)ᵀ.

A is ``(M, K)`` with a scale for each 128 elements of a row, B ``(N, K)`` with one for each block of
128 x 128. The sums of 128 elements are scaled and added up in float32.
"""

import ml_dtypes
import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery

BK = 128


def fp8_block_scaled_gemm(M, N, K, BM=128, BN=128, dtype="float8_e4m3fn"):
    @T.prim_func
    def program(A: T.Buffer((M, K), dtype), SA: T.Buffer((K // BK, M), "float32"),
                B: T.Buffer((N, K), dtype), SB: T.Buffer((N // BK, K // BK), "float32"),
                C: T.Buffer((M, N), "bfloat16")):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([T.ceildiv(M, BM), N // BN])
        acc = wl.alloc_fragment((BM, BN))
        Tx.cta.zero(acc)
        for k in wl.pipelined(K // BK):
            A_s = wl.load(A, (i, k), (BM, BK))
            B_s = wl.load(B, (j, k), (BN, BK))
            part = wl.gemm(A_s, B_s)
            for y, x in T.grid(BM, BN):
                scale: T.let = SA[k, i * BM + y] * SB[j * BN // BK, k]
                acc[y, x] = acc[y, x] + part[y, x] * scale
        wl.store(C, (i, j), acc)

    return program


def inputs(rng, M, N, K):
    a, b = (rng.standard_normal((n, K)).astype(ml_dtypes.float8_e4m3fn) for n in (M, N))
    shapes = (K // BK, M), (N // BK, K // BK)
    sa, sb = (rng.uniform(0.1, 1, shape).astype(np.float32) for shape in shapes)
    return [a, sa, b, sb]


def reference(a, sa, b, sb):
    a = a.astype(np.float64) * np.repeat(sa.T, BK, 1)
    b = b.astype(np.float64) * np.repeat(np.repeat(sb, BK, 0), BK, 1)
    return a @ b.T


def of_torch(torch, a, sa, b, sb):
    return torch._scaled_mm(a, b.T, sa.T, sb.T, out_dtype=torch.bfloat16)


KERNEL = gallery.Kernel(
    fp8_block_scaled_gemm, inputs, reference,
    small={"M": 72, "N": 128, "K": 256, "BM": 64, "BN": 64},
    large={"M": 4096, "N": 7168, "K": 4096},
    torch=of_torch,
    flops=lambda M, N, K: 2 * M * N * K,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)
