"""Exercises of 18_flash_attention.py."""

import math

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import Exercise, check_program

TOKENS, DIM, BM, BN = 80, 64, 64, 64
SCALE = math.log2(math.e) / math.sqrt(DIM)


def attention(mask):
    """Attention of one head; ``mask(query, key)`` is whether a query sees a key."""

    @T.prim_func
    def program(
        Q: T.Buffer((TOKENS, DIM), "float16"), K: T.Buffer((TOKENS, DIM), "float16"),
        V: T.Buffer((TOKENS, DIM), "float16"), Out: T.Buffer((TOKENS, DIM), "float16"),
    ):  # fmt: skip
        T.device_entry()
        block = T.cta_id([-(-TOKENS // BM)])
        Q_s = T.alloc_buffer((BM, DIM), "float16", scope="shared")
        K_s = T.alloc_buffer((BN, DIM), "float16", scope="shared")
        V_s = T.alloc_buffer((BN, DIM), "float16", scope="shared")
        S = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        P = T.alloc_buffer((BM, BN), "float16", scope="fragment")
        acc = T.alloc_buffer((BM, DIM), "float32", scope="accumulator")
        largest = T.alloc_buffer((BM,), "float32", scope="fragment")
        shrink = T.alloc_buffer((BM,), "float32", scope="fragment")
        total = T.alloc_buffer((BM,), "float32", scope="fragment")
        out = T.alloc_buffer((BM, DIM), "float16", scope="fragment")
        Tx.cta.copy_async(Q_s, Q[block * BM : block * BM + BM, 0:DIM])
        Tx.cta.fill(largest, T.float32(-1e30))
        Tx.cta.zero(total)
        Tx.cta.zero(acc)
        for s in wl.pipelined(-(-TOKENS // BN), stages=2):
            Tx.cta.copy_async(K_s, K[s * BN : s * BN + BN, 0:DIM])
            Tx.cta.copy_async(V_s, V[s * BN : s * BN + BN, 0:DIM])
            Tx.cta.gemm_async(S, Q_s, K_s)
            for i, j in T.grid(BM, BN):
                S[i, j] = T.if_then_else(
                    T.And(s * BN + j < TOKENS, mask(block * BM + i, s * BN + j)),
                    S[i, j] * T.float32(SCALE), T.float32("-inf"),
                )  # fmt: skip
            # solution: the online softmax: keep the largest of each row, shrink what was summed by
            #   exp2 of how much it has grown, and add the weights of these keys to total and acc
            Tx.cta.copy(shrink, largest)
            Tx.cta.max(largest, S, axes=(1,), accum=True)
            for i in T.serial(BM):
                shrink[i] = T.exp2(shrink[i] - largest[i])
                total[i] = total[i] * shrink[i]
            for i, j in T.grid(BM, BN):
                S[i, j] = T.exp2(S[i, j] - largest[i])
                P[i, j] = T.cast(S[i, j], "float16")
            Tx.cta.sum(total, S, axes=(1,), accum=True)
            for i, j in T.grid(BM, DIM):
                acc[i, j] = acc[i, j] * shrink[i]
            Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
            # end
        for i, j in T.grid(BM, DIM):
            out[i, j] = T.cast(acc[i, j] / total[i], "float16")
        Tx.cta.copy(Out[block * BM : block * BM + BM, 0:DIM], out)

    return program


def sliding_window(width):
    """A mask: a query sees itself and the ``width - 1`` keys before it."""
    # solution: a function of query and key; T.And joins two conditions
    return lambda query, key: T.And(key <= query, key > query - width)
    # end


def _check(mask, seen):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((TOKENS, DIM)).astype(np.float16) for _ in range(3))
    logits = q.astype(np.float64) @ k.astype(np.float64).T / math.sqrt(DIM)
    weights = np.where(seen, np.exp(logits), 0)
    expected = weights @ v.astype(np.float64) / weights.sum(1, keepdims=True)
    check_program(attention(mask), [q, k, v], expected)


def check_causal():
    query, key = np.ogrid[:TOKENS, :TOKENS]
    _check(lambda query, key: key <= query, key <= query)


def check_window():
    query, key = np.ogrid[:TOKENS, :TOKENS]
    _check(sliding_window(20), (key <= query) & (key > query - 20))


EXERCISES = [
    Exercise("The online softmax, with a causal mask", check_causal),
    Exercise("A sliding window of 20 keys", check_window),
]
