"""Attention forward, causal, with grouped heads: O = softmax(Q Kᵀ / sqrt(D)) V.

Q and O are ``(H, S, D)``, K and V ``(HK, S, D)``: ``H // HK`` heads of Q share a head of K and V.
It also writes the logarithm of the sum of each row, which the backward pass begins with.
"""

import math

import ml_dtypes
import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def attention(H, HK, S, D, BM=128, BN=128, dtype="bfloat16"):
    @T.prim_func
    def program(Q: T.Buffer((H, S, D), dtype), K: T.Buffer((HK, S, D), dtype),
                V: T.Buffer((HK, S, D), dtype), Out: T.Buffer((H, S, D), dtype),
                LSE: T.Buffer((H, S), "float32")):  # fmt: skip
        T.device_entry()
        i, h = T.cta_id([T.ceildiv(S, BM), H])
        Q_s = wl.load(Q, (h, i, 0), (BM, D))
        acc = wl.alloc_accumulator((BM, D))
        softmax = wl.OnlineSoftmax(BM, scale=1 / math.sqrt(D))
        Tx.cta.zero(acc)
        for s in wl.pipelined(T.ceildiv(i * BM + BM, BN)):
            K_s = wl.load(K, (h // (H // HK), s, 0), (BN, D))
            V_s = wl.load(V, (h // (H // HK), s, 0), (BN, D))
            S_s = wl.gemm(Q_s, K_s)
            for y, x in T.grid(BM, BN):
                seen: T.let = s * BN + x <= i * BM + y
                S_s[y, x] = T.if_then_else(seen, S_s[y, x], T.float32("-inf"))
            softmax.update(S_s, acc)
            P = wl.cast(S_s, dtype)
            Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
        softmax.divide(acc)
        wl.store(Out, (h, i, 0), acc)
        for y in T.serial(BM):
            LSE[h, i * BM + y] = softmax.log_of_sum(y)

    return program


def inputs(rng, H, HK, S, D):
    return [rng.standard_normal((h, S, D)).astype(ml_dtypes.bfloat16) for h in (H, HK, HK)]


def reference(q, k, v):
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    k, v = (np.repeat(each, len(q) // len(k), 0) for each in (k, v))
    logits = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[2])
    logits = np.where(np.tri(q.shape[1], dtype=bool), logits, -np.inf)
    largest = logits.max(2, keepdims=True)
    weights = np.exp(logits - largest)
    total = weights.sum(2, keepdims=True)
    return weights / total @ v, (largest + np.log(total))[..., 0]


def of_torch(torch, q, k, v):
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q[None], k[None], v[None], is_causal=True, enable_gqa=True)


KERNEL = gallery.Kernel(
    attention, inputs, reference,
    small={"H": 2, "HK": 1, "S": 136, "D": 64, "BM": 64, "BN": 64},
    large={"H": 32, "HK": 8, "S": 8192, "D": 128},
    torch=of_torch,
    flops=lambda H, S, D: 2 * H * S * S * D,
    tolerance=1e-2,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)
