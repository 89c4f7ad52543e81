"""GEMM with weights of 4 bits, scales and zero points for groups: C = X ((Q - Z) S)ᵀ.

X is ``(M, K)``. ``Q`` has two weights in a byte, the first in the low bits: ``(N, K // 2)``.
Scales S and zero points Z are ``(N, K // group)``. M may be small: an accumulator of fewer than 64
rows is computed as its transpose.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def w4a16(M, N, K, group=64, BM=32, BN=64, BK=64, dtype="float16"):
    @T.prim_func
    def program(X: T.Buffer((M, K), dtype), Q: T.Buffer((N, K // 2), "uint8"),
                S: T.Buffer((N, K // group), dtype), Z: T.Buffer((N, K // group), "uint8"),
                C: T.Buffer((M, N), dtype)):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([T.ceildiv(M, BM), N // BN])
        W_s = T.alloc_shared((BN, BK), dtype)
        acc = wl.alloc_accumulator((BM, BN))
        for k in wl.pipelined(K // BK):
            X_s = wl.load(X, (i, k), (BM, BK))
            Q_s = wl.load(Q, (j, k), (BN, BK // 2))
            for y, x in T.grid(BN, BK):
                at: T.let = (k * BK + x) // group
                q: T.let = T.cast(Q_s[y, x // 2], "int32") >> (x % 2 * 4) & 15
                w: T.let = T.cast(q - T.cast(Z[j * BN + y, at], "int32"), "float32")
                W_s[y, x] = T.cast(w * T.cast(S[j * BN + y, at], "float32"), dtype)
            Tx.cta.gemm_async(acc, X_s, W_s, accum=k > 0)
        wl.store(C, (i, j), acc)

    return program


def inputs(rng, M, N, K, group=64):
    x = rng.standard_normal((M, K)).astype(np.float16)
    q = rng.integers(0, 256, (N, K // 2)).astype(np.uint8)
    s = rng.uniform(0.01, 0.1, (N, K // group)).astype(np.float16)
    return [x, q, s, rng.integers(4, 12, (N, K // group)).astype(np.uint8)]


def reference(x, q, s, z):
    weights = np.stack([q & 15, q >> 4], 2).reshape(len(q), -1).astype(np.float64)
    group = weights.shape[1] // s.shape[1]
    s, z = (np.repeat(each.astype(np.float64), group, 1) for each in (s, z))
    return x.astype(np.float64) @ ((weights - z) * s).T


def of_torch(torch, x, q, s, z):
    weights = torch.stack([q & 15, q >> 4], 2).flatten(1).to(x.dtype)
    group = weights.shape[1] // s.shape[1]
    s, z = (each.to(x.dtype).repeat_interleave(group, 1) for each in (s, z))
    return x @ ((weights - z) * s).T


KERNEL = gallery.Kernel(
    w4a16, inputs, reference,
    small={"M": 20, "N": 64, "K": 256},
    large={"M": 16, "N": 8192, "K": 8192, "BM": 16, "BK": 128},
    torch=of_torch,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)
