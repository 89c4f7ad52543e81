"""Attention, forward, as a tile program: a softmax hides behind the MMA of another block.

Step s multiplies Q by block s of K, and the weights of block s - 1 by block s - 1 of V; the softmax
of block s needs only the first MMA, so the second runs under it. Step 0 has no weights yet
(they are zero, and V above its first row reads as zero), the last step no keys (they are masked).
"""

from __future__ import annotations

import math
from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc, Var

from warploom import language as wl
from warploom.decide.families.attention import AttentionProblem
from warploom.decide.selector import choose
from warploom.errors import IllegalCombination
from warploom.kernels.kernel_name import named
from warploom.target import SM90A
from warploom.target.dtypes import with_dtype_names

#: Elements of a head: a thread then holds 128 of the sums of 64 rows, and no more fit beside the
#: logits and weights of a step.
_MOST_ELEMENTS = 256


@with_dtype_names
@named
def attention(
    tokens: int | None,
    head_dim: int = 128,
    heads: int = 16,
    kv_heads: int | None = None,
    batch: int = 1,
    causal: bool = False,
    dtype: str = "float16",
    tile: tuple[int, int] | None = None,
    stages: int | None = None,
    scale: float | None = None,
    tokens_first: bool = False,
    arch: str = SM90A.name,
) -> PrimFunc:
    """O = softmax(Q Kᵀ / sqrt(head_dim)) V for each head.

    Parameters
    ----------
    tokens, head_dim, heads, batch : int
        Shapes: Q and O are ``(batch, heads, tokens, head_dim)``. Tokens that only the launch
        knows, None, need ``tokens_first``. ``head_dim`` is a multiple of 8 (on Blackwell of 16) of
        at most 256.
    kv_heads : int, optional
        Heads of K and V, each shared by ``heads // kv_heads`` of Q; as many as Q if left out.
    causal : bool
        Whether a query sees only the keys up to its own position.
    dtype : str
        ``"float16"`` or ``"bfloat16"``; sums and the softmax are in float32.
    tile : (int, int), optional
        Queries and keys of one step; by default those of :func:`warploom.decide.choose`.
    stages : int, optional
        Blocks of K and V that are loaded ahead; by default as chosen.
    scale : float, optional
        Of the logits, in the place of ``1 / sqrt(head_dim)``.
    tokens_first : bool
        Whether the order of dimensions is ``(batch, tokens, heads, head_dim)``.
    arch : str
        What tile and stages are chosen for: ``"sm_90a"`` or ``"sm_100a"``.

    Returns
    -------
    PrimFunc
        ``forward(Q, K, V, O)``.

    Raises
    ------
    IllegalCombination
        If there is no kernel for ``head_dim``, or the heads cannot share those of K and V.
    """
    kv_heads = kv_heads or heads
    _check(head_dim, heads, kv_heads)
    config = choose(AttentionProblem(tokens, head_dim, heads, kv_heads, batch, causal, arch))
    bm, bn = tile or (config.tile_m, config.tile_n)
    stages = stages or config.stages
    share = heads // kv_heads
    # Powers of 2 are cheaper than those of e: the logits are scaled by log2(e) as well.
    scale = math.log2(math.e) * (1 / math.sqrt(head_dim) if scale is None else scale)
    if tokens in (None, 1):  # TVM describes no copy of a tile from a dimension of 1
        tokens = Var("tokens", "int32")
    blocks, query_blocks = ((tokens + (size - 1)) // size for size in (bn, bm))

    def shape(heads: int) -> tuple[Any, ...]:
        return (batch, *((tokens, heads) if tokens_first else (heads, tokens)), head_dim)

    def rows(of: Any, b: Any, h: Any, start: Any, count: int) -> Any:
        """Rows of one head."""
        some = slice(start, start + count)
        return of[(b, *((some, h) if tokens_first else (h, some)), slice(0, head_dim))]

    def visible(query: Any, key: Any) -> Any:
        return T.And(key < tokens, key <= query) if causal else key < tokens

    @T.prim_func
    def forward(q: T.handle, k: T.handle, v: T.handle, o: T.handle):
        Q = T.match_buffer(q, shape(heads), dtype, align=16)
        K = T.match_buffer(k, shape(kv_heads), dtype, align=16)
        V = T.match_buffer(v, shape(kv_heads), dtype, align=16)
        Out = T.match_buffer(o, shape(heads), dtype, align=16)
        T.device_entry()
        block, h, b = T.cta_id([query_blocks, heads, batch])
        Q_s = T.alloc_buffer((bm, head_dim), dtype, scope="shared")
        K_s = T.alloc_buffer((bn, head_dim), dtype, scope="shared")
        V_s = T.alloc_buffer((bn, head_dim), dtype, scope="shared")
        S = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        P = T.alloc_buffer((bm, bn), dtype, scope="fragment")
        acc = T.alloc_buffer((bm, head_dim), "float32", scope="accumulator")
        largest = T.alloc_buffer((bm,), "float32", scope="fragment")
        shrink = T.alloc_buffer((bm,), "float32", scope="fragment")
        total = T.alloc_buffer((bm,), "float32", scope="fragment")
        out = T.alloc_buffer((bm, head_dim), dtype, scope="fragment")
        # The longest rows of tiles first: the last CTAs to finish then have little left to do.
        bi: T.int32 = query_blocks - 1 - block if causal else block
        Tx.cta.copy_async(Q_s, rows(Q, b, h, bi * bm, bm))
        Tx.cta.fill(largest, T.float32("-inf"))
        Tx.cta.zero(total)
        Tx.cta.zero(P)
        Tx.cta.zero(acc)
        reach = T.meta_var(T.min(T.ceildiv(bi * bm + bm, bn), blocks) if causal else blocks)
        first_masked = T.meta_var(T.truncdiv(bi * bm, bn) if causal else tokens // bn)
        for s in wl.pipelined(reach + 1, stages):
            Tx.cta.copy_async(K_s, rows(K, b, h // share, s * bn, bn))
            Tx.cta.copy_async(V_s, rows(V, b, h // share, s * bn - bn, bn))
            Tx.cta.gemm_async(S, Q_s, K_s)
            Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
            if s >= first_masked:
                for i, j in T.grid(bm, bn):
                    S[i, j] = T.if_then_else(
                        visible(bi * bm + i, s * bn + j), S[i, j], T.float32("-inf")
                    )
            Tx.cta.copy(shrink, largest)
            Tx.cta.max(largest, S, axes=(1,), accum=True)
            for i in T.serial(bm):
                shrink[i] = T.exp2((shrink[i] - largest[i]) * T.float32(scale))
                total[i] = total[i] * shrink[i]
            for i, j in T.grid(bm, bn):
                S[i, j] = T.exp2(S[i, j] * T.float32(scale) - largest[i] * T.float32(scale))
            Tx.cta.sum(total, S, axes=(1,), accum=True)
            Tx.cta.cast(P, S)
            for i, j in T.grid(bm, head_dim):
                acc[i, j] = acc[i, j] * shrink[i]
        for i, j in T.grid(bm, head_dim):
            out[i, j] = T.cast(acc[i, j] / total[i], dtype)
        Tx.cta.copy(rows(Out, b, h, bi * bm, bm), out)

    return forward


def _check(head_dim: int, heads: int, kv_heads: int) -> None:
    if head_dim % 8 or not 0 < head_dim <= _MOST_ELEMENTS:
        raise IllegalCombination(
            f"head_dim is {head_dim}; TMA and the registers of a tile take multiples of 8 up to "
            f"{_MOST_ELEMENTS}, so pad the heads."
        )
    if heads % kv_heads:
        raise IllegalCombination(
            f"{heads} heads cannot share {kv_heads} of K and V evenly; kv_heads must divide heads."
        )
