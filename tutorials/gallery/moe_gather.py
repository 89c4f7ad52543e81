"""The first matmul of a mixture of experts: C[t] = X[Token[t]] W[expert of t]ᵀ.

Slots are sorted by expert, padded to whole tiles: ``Expert[i]`` is the expert of tile i, and
``Token[t]`` the row of X that slot t takes; a slot of padding takes row M, which reads as 0.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def moe_gather(M, N, K, E, tiles, BM=64, BN=128, BK=64, dtype="float16"):
    @T.prim_func
    def program(X: T.Buffer((M, K), dtype), W: T.Buffer((E, N, K), dtype),
                Token: T.Buffer((tiles * BM,), "int32"), Expert: T.Buffer((tiles,), "int32"),
                C: T.Buffer((tiles * BM, N), dtype)):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([tiles, T.ceildiv(N, BN)])
        X_s = T.alloc_shared((BM, BK), dtype)
        acc = wl.alloc_accumulator((BM, BN))
        for k in wl.pipelined(T.ceildiv(K, BK)):
            for y in T.serial(BM):
                token: T.let = Token[i * BM + y]
                Tx.cta.copy_async(X_s[y : y + 1, 0:BK], X[token : token + 1, k * BK : k * BK + BK])
            W_s = wl.load(W, (Expert[i], j, k), (BN, BK))
            Tx.cta.gemm_async(acc, X_s, W_s, accum=k > 0)
        wl.store(C, (i, j), acc)

    return program


def inputs(rng, M, N, K, E, tiles, BM=64):
    x = rng.standard_normal((M, K)).astype(np.float16)
    w = rng.standard_normal((E, N, K)).astype(np.float16)
    token = rng.integers(0, M, (tiles, BM))
    token[:, BM - 3 :] = M
    expert = np.sort(rng.integers(0, E, tiles))
    return [x, w, token.ravel().astype(np.int32), expert.astype(np.int32)]


def reference(x, w, token, expert):
    rows = np.concatenate([x.astype(np.float64), np.zeros((1, x.shape[1]))])[token]
    rows = rows.reshape(len(expert), -1, x.shape[1])
    return (rows @ w.astype(np.float64)[expert].swapaxes(1, 2)).reshape(len(token), -1)


def of_torch(torch, x, w, token, expert):
    rows = torch.cat([x, torch.zeros_like(x[:1])])[token.long()]
    ends = torch.searchsorted(expert, torch.arange(len(w), device=x.device), right=True)
    ends = (ends * (len(token) // len(expert))).int()
    return torch._grouped_mm(rows.bfloat16(), w.bfloat16().transpose(1, 2), ends)


KERNEL = gallery.Kernel(
    moe_gather, inputs, reference,
    small={"M": 40, "N": 72, "K": 96, "E": 3, "tiles": 2, "BN": 64, "BK": 32},
    large={"M": 4096, "N": 2048, "K": 4096, "E": 16, "tiles": 256},
    torch=of_torch,
    flops=lambda N, K, tiles, BM=64: 2 * tiles * BM * N * K,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)
