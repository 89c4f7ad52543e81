"""Attention, forward, as a tile program: a softmax hides behind the MMA of another block.

A step multiplies Q by block s + 1 of K, and the weights of block s by block s of V; the softmax of
block s + 1 needs only the first MMA, so the second runs under it. The first block of K and the last
of V stand before and behind the loop, so a tile has as many MMAs as it has blocks. Rings of K and V
are apart: a block of K gives its stage back before the softmax, where the MMA of V still runs.

On Blackwell a tile is loaded in one place: there the loop has a step more, whose first has no
weights yet (they are zero, and V above its first row reads as zero), and the last no keys (they are
masked).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc, Var

from warploom import language as wl
from warploom.decide.config import Config
from warploom.decide.families.attention import AttentionProblem, config_of, heads_at_a_time
from warploom.decide.machines import machine_for
from warploom.decide.selector import choose
from warploom.kernels.kernel_name import named
from warploom.programs.attention_arguments import BIAS, check_heads, check_mask, check_soft_cap
from warploom.programs.heads_in_memory import HEADS_FIRST, TOKENS_FIRST, HeadsInMemory
from warploom.target import SM90A, SM100A, WGMMA_M
from warploom.target.dtypes import with_dtype_names

#: Elements of 16 bits that one MMA contracts, and what its columns are a multiple of (PTX ISA,
#: "Asynchronous Warpgroup Level Matrix Shape"; "Tensorcore 5th Generation", shapes of 128 rows).
_MMA_K, _MMA_N = 16, {SM90A.name: 8, SM100A.name: 16}
#: Below every logit, and finite: a row whose first keys are all masked by a bias of -inf has no
#: larger logit yet, and the difference of two infinities is none.
_LOWEST = -3.4028234663852886e38


@with_dtype_names
@named
def attention(
    tokens: int | Var | None,
    head_dim: int = 128,
    heads: int = 16,
    kv_heads: int | None = None,
    batch: int | Var = 1,
    causal: bool | str = False,
    dtype: str = "float16",
    tile: tuple[int, int] | None = None,
    stages: int | None = None,
    scale: float | None = None,
    tokens_first: bool = False,
    arch: str = SM90A.name,
    *,
    keys: int | Var | None = None,
    value_dim: int | None = None,
    bias: str | None = None,
    bias_dtype: str | None = None,
    operands: Sequence[HeadsInMemory] | None = None,
    order_mmas: bool | None = None,
    soft_cap: float | None = None,
    bias_batch: int | None = None,
) -> PrimFunc:
    """O = softmax(Q Kᵀ / sqrt(head_dim) + bias) V for each head.

    Parameters
    ----------
    tokens, head_dim, heads, batch : int
        Shapes: Q and O are ``(batch, heads, tokens, head_dim)``. Tokens may be None or a variable,
        and the batch a variable: the launch knows them. ``head_dim`` is a multiple of 8 of at most
        256.
    kv_heads : int, optional
        Heads of K and V, each shared by ``heads // kv_heads`` of Q; as many as Q if left out.
    causal : bool or str
        Which keys a query sees: all, or with ``"TopLeft"`` or True those up to its own position,
        or with ``"BottomRight"`` as many more as the numbers of queries and keys differ by; as
        ``causal_mask`` of ``relax.op.nn.attention``.
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
    keys : int or Var, optional
        Rows of K and V; as many as queries if left out.
    value_dim : int, optional
        Elements of a head of V and O; as many as of Q and K if left out.
    bias : str, optional
        The bias that is added to the scaled logits has these dimensions before that of the keys:
        ``"bhq"`` for a batch, heads and queries, fewer letters where it is 1 and broadcast.
    bias_dtype : str, optional
        Its type; that of Q if left out.
    operands : sequence of HeadsInMemory, optional
        Where heads of Q, K, V and O lie, in the place of ``tokens_first``: parts of one tensor may
        be passed as several parameters.
    order_mmas : bool, optional
        Whether warpgroups issue their MMAs in order, on Hopper; by default as chosen.
    soft_cap : float, optional
        Scaled logits become ``soft_cap * tanh(logit / soft_cap)``, before the bias and the mask.
    bias_batch : int, optional
        The batch of a bias with a ``"b"``, if it is less than that of Q: the bias of batch ``b`` is
        that of ``b % bias_batch``, as windows of images share their masks.

    Returns
    -------
    PrimFunc
        ``forward(Q, K, V, O)``; with a bias ``forward(Q, K, V, bias, O)``. A query that a bias of
        minus infinity leaves no key has zeros.

    Raises
    ------
    IllegalCombination
        If there is no kernel for ``head_dim``, the heads cannot share those of K and V, or the soft
        cap is not above 0.

    Examples
    --------
    >>> cross = attention(77, 64, 8, keys=257, bias="q")
    >>> [str(size) for size in cross.params[3].shape]
    ['1', '1', '77', '257']
    """
    kv_heads, value_dim = kv_heads or heads, value_dim or head_dim
    check_heads(head_dim, value_dim, heads, kv_heads)
    check_mask(causal, bias)
    check_soft_cap(soft_cap)
    problem = AttentionProblem(
        _known(tokens), max(head_dim, value_dim), heads, kv_heads, _known(batch) or 1,
        bool(causal), arch, _known(keys), soft_cap is not None,
    )  # fmt: skip
    config = choose(problem)
    if tile is not None or stages is not None:
        bm, bn = tile or (config.tile_m, config.tile_n)
        config = config_of(problem, bm, bn, stages or config.stages)
    bm, bn, stages = config.tile_m, config.tile_n, config.stages
    # On Blackwell threads hand tiles to the tensor cores, and each is loaded in one place.
    ends_apart = arch == SM90A.name
    hints: dict[str, Any] = {"split_rings": True} if ends_apart else {}
    if ends_apart and bm > WGMMA_M:  # more warpgroups than one
        hints |= {"order_mmas": config.order_mmas if order_mmas is None else order_mmas}
    if config.store_buffers != Config.store_buffers:
        hints |= {"store_buffers": config.store_buffers}
    if causal:
        hints |= {"raster": "columns"}
    hinted = bool(hints)
    share = heads // kv_heads
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    # Powers of 2 are cheaper than those of e, and the factor between them can have the scale in it;
    # but what is added to logits needs them scaled. A capped logit is a tanh times the cap.
    cap = 1.0 if soft_cap is None else soft_cap
    to_tanh, of_logits = scale / cap, scale if soft_cap is None else cap
    to_logits, to_powers = (1.0, of_logits) if bias is None else (of_logits, 1.0)
    to_powers *= math.log2(math.e)
    lowest = -math.inf if bias is None else _LOWEST
    one_size = keys is None or keys is tokens
    tokens = _size(tokens, "tokens")
    keys = tokens if one_size else _size(keys, "keys")
    key_blocks, query_blocks = (keys + (bn - 1)) // bn, (tokens + (bm - 1)) // bm
    # Keys that a query sees beyond its own position.
    ahead = T.abs(keys - tokens) if causal == "BottomRight" and not one_size else 0
    # MMAs have whole groups of elements: those beyond the head are read as zero, and not stored.
    wide, columns = _whole(head_dim, _MMA_K), _whole(value_dim, _MMA_N[arch])

    of_q, of_k, of_v, of_o = operands or (TOKENS_FIRST if tokens_first else HEADS_FIRST,) * 4

    def visible(query: Any, key: Any) -> Any:
        return T.And(key < keys, key <= query + ahead) if causal else key < keys

    def blocks_seen(bi: Any) -> Any:
        """Blocks of keys that a block of queries sees."""
        last = T.ceildiv(bi * bm + bm + ahead, bn)
        return T.min(last, key_blocks) if causal else key_blocks

    def blocks_seen_whole(bi: Any) -> Any:
        """Blocks of keys that need no mask: not even the first query."""
        first = T.truncdiv(bi * bm + ahead, bn)
        if not causal:
            return keys // bn
        return first if one_size else T.min(first, keys // bn)

    def weight(logit: Any, largest: Any) -> Any:
        """A weight of the softmax, in proportion to that of the largest logit, 1."""
        factor = T.float32(to_powers)
        if bias is None:
            return T.exp2(logit * factor - largest * factor)
        return T.exp2((logit - largest) * factor)  # both may be the lowest number

    def divisor(sum_of_weights: Any) -> Any:
        """What sums are divided by: the largest logit has the weight 1, if there is any."""
        return sum_of_weights if bias is None else T.max(sum_of_weights, T.float32(1e-30))

    def added(of: Any, b: Any, h: Any, query: Any, key: Any) -> Any:
        """The bias of a logit, of the last one for those outside."""
        batch_of = b if bias_batch is None else b % bias_batch
        place = {"b": batch_of, "h": h, "q": T.min(query, tokens - 1)}
        indices = [place[letter] if letter in bias else 0 for letter in BIAS]
        return T.cast(of[(*indices, T.min(key, keys - 1))], "float32")

    sizes = {"b": bias_batch or batch, "h": heads, "q": tokens}
    biased, masked, capped = bias is not None, bool(causal), soft_cap is not None
    together = heads_at_a_time(problem, machine_for(), (bm, bn)) if masked else heads
    # Of a batch that the launch knows, heads of one time belong to one of it.
    times = batch * heads // together if isinstance(batch, int) else batch * (heads // together)
    bias_shape = (*(sizes[one] if one in (bias or "") else 1 for one in BIAS), keys)

    @T.inline
    def weigh(S, P, largest, shrink, total, Bias, bi, h, b, s, first_masked):
        """Logits of a block become weights; what was summed before shrinks."""
        if capped:
            for i, j in T.grid(bm, bn):
                S[i, j] = T.tanh(S[i, j] * T.float32(to_tanh))
        if biased:
            for i, j in T.grid(bm, bn):
                S[i, j] = S[i, j] * T.float32(to_logits) + added(
                    Bias, b, h, bi * bm + i, s * bn + j
                )
        if s >= first_masked:
            for i, j in T.grid(bm, bn):
                S[i, j] = T.if_then_else(
                    visible(bi * bm + i, s * bn + j), S[i, j], T.float32("-inf")
                )
        Tx.cta.copy(shrink, largest)
        Tx.cta.max(largest, S, axes=(1,), accum=True)
        for i in T.serial(bm):
            shrink[i] = T.exp2((shrink[i] - largest[i]) * T.float32(to_powers))
            total[i] = total[i] * shrink[i]
        for i, j in T.grid(bm, bn):
            S[i, j] = weight(S[i, j], largest[i])
        Tx.cta.sum(total, S, axes=(1,), accum=True)
        Tx.cta.cast(P, S)

    @T.inline
    def attend_tile(Q, K, V, Bias, Out, bi, h, b):
        Q_s = T.alloc_buffer((bm, wide), dtype, scope="shared")
        K_s = T.alloc_buffer((bn, wide), dtype, scope="shared")
        V_s = T.alloc_buffer((bn, columns), dtype, scope="shared")
        S = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        P = T.alloc_buffer((bm, bn), dtype, scope="fragment")
        acc = T.alloc_buffer((bm, columns), "float32", scope="accumulator")
        largest = T.alloc_buffer((bm,), "float32", scope="fragment")
        shrink = T.alloc_buffer((bm,), "float32", scope="fragment")
        total = T.alloc_buffer((bm,), "float32", scope="fragment")
        out = T.alloc_buffer((bm, columns), dtype, scope="fragment")
        Tx.cta.copy_async(Q_s, of_q.rows(Q, b, h, bi * bm, bm, wide))
        Tx.cta.fill(largest, T.float32(lowest))
        Tx.cta.zero(total)
        Tx.cta.zero(acc)
        reach = T.meta_var(blocks_seen(bi))
        first_masked = T.meta_var(blocks_seen_whole(bi))
        if ends_apart:
            Tx.cta.copy_async(K_s, of_k.rows(K, b, h // share, 0, bn, wide))
            Tx.cta.gemm_async(S, Q_s, K_s)
            weigh(S, P, largest, shrink, total, Bias, bi, h, b, 0, first_masked)
            for s in wl.pipelined(reach - 1, stages):
                Tx.cta.copy_async(K_s, of_k.rows(K, b, h // share, s * bn + bn, bn, wide))
                Tx.cta.copy_async(V_s, of_v.rows(V, b, h // share, s * bn, bn, columns))
                Tx.cta.gemm_async(S, Q_s, K_s)
                Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
                weigh(S, P, largest, shrink, total, Bias, bi, h, b, s + 1, first_masked)
                for i, j in T.grid(bm, columns):
                    acc[i, j] = acc[i, j] * shrink[i]
            Tx.cta.copy_async(V_s, of_v.rows(V, b, h // share, reach * bn - bn, bn, columns))
            Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
        else:
            Tx.cta.zero(P)
            for s in wl.pipelined(reach + 1, stages):
                Tx.cta.copy_async(K_s, of_k.rows(K, b, h // share, s * bn, bn, wide))
                Tx.cta.copy_async(V_s, of_v.rows(V, b, h // share, s * bn - bn, bn, columns))
                Tx.cta.gemm_async(S, Q_s, K_s)
                Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
                weigh(S, P, largest, shrink, total, Bias, bi, h, b, s, first_masked)
                for i, j in T.grid(bm, columns):
                    acc[i, j] = acc[i, j] * shrink[i]
        for i, j in T.grid(bm, columns):
            out[i, j] = T.cast(acc[i, j] / divisor(total[i]), dtype)
        Tx.cta.copy(of_o.rows(Out, b, h, bi * bm, bm, columns), out)

    @T.inline
    def attend(Q, K, V, Bias, Out):
        T.device_entry()
        if hinted:
            wl.hints(**hints)
        if masked:
            # The longest tiles first: the last CTAs to finish then have little left to do.
            head, block, groups = T.cta_id([together, query_blocks, times])
            bi: T.int32 = query_blocks - 1 - block
            h: T.int32 = (groups * together + head) % heads
            b: T.int32 = (groups * together + head) // heads
            attend_tile(Q, K, V, Bias, Out, bi, h, b)
        else:
            bi, h, b = T.cta_id([query_blocks, heads, batch])
            attend_tile(Q, K, V, Bias, Out, bi, h, b)

    if biased:

        @T.prim_func
        def biased_forward(q: T.handle, k: T.handle, v: T.handle, add: T.handle, o: T.handle):
            Q = T.match_buffer(q, of_q.shape(batch, tokens, heads, head_dim), dtype, align=16)
            K = T.match_buffer(k, of_k.shape(batch, keys, kv_heads, head_dim), dtype, align=16)
            V = T.match_buffer(v, of_v.shape(batch, keys, kv_heads, value_dim), dtype, align=16)
            Bias = T.match_buffer(add, bias_shape, bias_dtype or dtype)
            Out = T.match_buffer(o, of_o.shape(batch, tokens, heads, value_dim), dtype, align=16)
            attend(Q, K, V, Bias, Out)

        return biased_forward

    @T.prim_func
    def forward(q: T.handle, k: T.handle, v: T.handle, o: T.handle):
        Q = T.match_buffer(q, of_q.shape(batch, tokens, heads, head_dim), dtype, align=16)
        K = T.match_buffer(k, of_k.shape(batch, keys, kv_heads, head_dim), dtype, align=16)
        V = T.match_buffer(v, of_v.shape(batch, keys, kv_heads, value_dim), dtype, align=16)
        Out = T.match_buffer(o, of_o.shape(batch, tokens, heads, value_dim), dtype, align=16)
        attend(Q, K, V, None, Out)

    return forward


def _whole(elements: int, group: int) -> int:
    return -(-elements // group) * group


def _known(size: int | Var | None) -> int | None:
    return size if isinstance(size, int) else None


def _size(size: int | Var | None, name: str) -> int | Var:
    """A number of rows; a variable if TVM describes no copy of a tile of so few."""
    return Var(name, "int32") if size in (None, 1) else size
