"""Attention, forward: the softmax is computed as blocks of keys arrive."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl


def attention(
    tokens: int = 100,
    head_dim: int = 64,
    heads: int = 2,
    kv_heads: int = 1,
    batch: int = 1,
    tile: tuple[int, int] = (64, 64),
    causal: bool = False,
    dtype: str = "float16",
    stages: int | None = None,
) -> Case:
    """O = softmax(Q Kᵀ / sqrt(head_dim)) V; several heads of Q may share one of K and V."""
    bm, bn = tile
    share = heads // kv_heads
    # Powers of 2 are cheaper than those of e: the logits are scaled by log2(e) as well.
    scale = math.log2(math.e) / math.sqrt(head_dim)
    blocks = -(-tokens // bn)

    def visible(query: Any, key: Any) -> Any:
        return T.And(key < tokens, key <= query) if causal else key < tokens

    @T.prim_func
    def forward(q: T.handle, k: T.handle, v: T.handle, o: T.handle):
        Q = T.match_buffer(q, (batch, heads, tokens, head_dim), dtype)
        K = T.match_buffer(k, (batch, kv_heads, tokens, head_dim), dtype)
        V = T.match_buffer(v, (batch, kv_heads, tokens, head_dim), dtype)
        Out = T.match_buffer(o, (batch, heads, tokens, head_dim), dtype)
        T.device_entry()
        bi, h, b = T.cta_id([-(-tokens // bm), heads, batch])
        Q_s = T.alloc_buffer((bm, head_dim), dtype, scope="shared")
        K_s = T.alloc_buffer((bn, head_dim), dtype, scope="shared")
        V_s = T.alloc_buffer((bn, head_dim), dtype, scope="shared")
        S = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        P = T.alloc_buffer((bm, bn), dtype, scope="fragment")
        acc = T.alloc_buffer((bm, head_dim), "float32", scope="accumulator")
        largest = T.alloc_buffer((bm,), "float32", scope="fragment")
        before = T.alloc_buffer((bm,), "float32", scope="fragment")
        total = T.alloc_buffer((bm,), "float32", scope="fragment")
        out = T.alloc_buffer((bm, head_dim), dtype, scope="fragment")
        Tx.cta.copy_async(Q_s, Q[b, h, bi * bm : bi * bm + bm, 0:head_dim])
        Tx.cta.fill(largest, T.float32("-inf"))
        Tx.cta.zero(total)
        Tx.cta.zero(acc)
        reach = T.meta_var(T.min(T.ceildiv(bi * bm + bm, bn), blocks) if causal else blocks)
        for step in wl.pipelined(reach, stages):
            Tx.cta.copy_async(K_s, K[b, h // share, step * bn : step * bn + bn, 0:head_dim])
            Tx.cta.copy_async(V_s, V[b, h // share, step * bn : step * bn + bn, 0:head_dim])
            Tx.cta.gemm_async(S, Q_s, K_s)
            for i, j in T.grid(bm, bn):
                S[i, j] = T.if_then_else(
                    visible(bi * bm + i, step * bn + j),
                    S[i, j] * T.float32(scale),
                    T.float32("-inf"),
                )
            Tx.cta.copy(before, largest)
            Tx.cta.max(largest, S, axes=(1,), accum=True)
            for i in T.serial(bm):
                before[i] = T.exp2(before[i] - largest[i])
                total[i] = total[i] * before[i]
            for i, j in T.grid(bm, bn):
                S[i, j] = T.exp2(S[i, j] - largest[i])
                P[i, j] = T.cast(S[i, j], dtype)
            Tx.cta.sum(total, S, axes=(1,), accum=True)
            for i, j in T.grid(bm, head_dim):
                acc[i, j] = acc[i, j] * before[i]
            Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
        for i, j in T.grid(bm, head_dim):
            out[i, j] = T.cast(acc[i, j] / total[i], dtype)
        Tx.cta.copy(Out[b, h, bi * bm : bi * bm + bm, 0:head_dim], out)

    def arguments(rng: np.random.Generator) -> list[Any]:
        shapes = [(batch, count, tokens, head_dim) for count in (heads, kv_heads, kv_heads)]
        inputs = [random_values(rng, shape, dtype) for shape in shapes]
        return [*inputs, poisoned(shapes[0], dtype)]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        q, k, v = map(wide, args[:3])
        k, v = np.repeat(k, share, axis=1), np.repeat(v, share, axis=1)
        logits = q @ k.swapaxes(2, 3) / math.sqrt(head_dim)
        if causal:
            logits = np.where(np.tri(tokens, dtype=bool), logits, -np.inf)
        weights = np.exp(logits - logits.max(axis=3, keepdims=True))
        return {3: weights / weights.sum(axis=3, keepdims=True) @ v}

    # The weights are rounded to 16 bits before the second matmul.
    return Case(forward, arguments, expected, 2.0**-8 if dtype == "bfloat16" else 2.0**-10)
