"""Attention to a sliding window with soft-capped logits, as Gemma 2 has it.

A query sees itself and the ``window - 1`` keys before it; logits are ``cap tanh(logit / cap)``.
Blocks of keys outside of the window of all queries of a tile are neither loaded nor computed.
"""

import math

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def sliding_window(H, S, D, window, cap, BM=64, BN=64, dtype="float16"):
    @T.prim_func
    def program(Q: T.Buffer((H, S, D), dtype), K: T.Buffer((H, S, D), dtype),
                V: T.Buffer((H, S, D), dtype), Out: T.Buffer((H, S, D), dtype)):  # fmt: skip
        T.device_entry()
        i, h = T.cta_id([T.ceildiv(S, BM), H])
        first: T.let = T.max(i * BM - window + 1, 0) // BN
        Q_s = wl.load(Q, (h, i, 0), (BM, D))
        acc = wl.alloc_accumulator((BM, D))
        softmax = wl.OnlineSoftmax(BM)
        Tx.cta.zero(acc)
        for s in wl.pipelined(T.ceildiv(i * BM + BM, BN) - first):
            K_s = wl.load(K, (h, first + s, 0), (BN, D))
            V_s = wl.load(V, (h, first + s, 0), (BN, D))
            W = wl.gemm(Q_s, K_s)
            for y, x in T.grid(BM, BN):
                behind: T.let = (i * BM + y) - ((first + s) * BN + x)
                logit: T.let = T.tanh(W[y, x] * T.float32(1 / math.sqrt(D) / cap)) * T.float32(cap)
                seen: T.let = T.And(behind >= 0, behind < window)
                W[y, x] = T.if_then_else(seen, logit, T.float32("-inf"))
            softmax.update(W, acc)
            P = wl.cast(W, dtype)
            Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
        softmax.divide(acc)
        wl.store(Out, (h, i, 0), acc)

    return program


def inputs(rng, H, S, D):
    return [rng.standard_normal((H, S, D)).astype(np.float16) for _ in range(3)]


def reference(q, k, v, window, cap):
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    logits = np.tanh(q @ k.swapaxes(1, 2) / math.sqrt(q.shape[2]) / cap) * cap
    behind = np.arange(q.shape[1])[:, None] - np.arange(q.shape[1])
    logits = np.where((behind >= 0) & (behind < window), logits, -np.inf)
    weights = np.exp(logits - logits.max(2, keepdims=True))
    return weights / weights.sum(2, keepdims=True) @ v


def of_torch(torch, q, k, v, window, cap):
    logits = torch.tanh(q @ k.transpose(1, 2) / math.sqrt(q.shape[2]) / cap) * cap
    behind = torch.arange(q.shape[1], device=q.device)
    behind = behind[:, None] - behind
    hidden = (behind < 0) | (behind >= window)
    return torch.softmax(logits.masked_fill(hidden, -math.inf), 2) @ v


KERNEL = gallery.Kernel(
    sliding_window, inputs, reference,
    small={"H": 1, "S": 200, "D": 64, "window": 50, "cap": 5.0},
    large={"H": 16, "S": 8192, "D": 128, "window": 1024, "cap": 50.0, "BM": 128, "BN": 128},
    torch=of_torch,
    flops=lambda H, S, D, window: 4 * H * S * window * D,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)
