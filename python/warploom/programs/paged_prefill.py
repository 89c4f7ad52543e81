"""Attention of the queries of many sequences to keys and values in the pages of a KV cache.

It is what TVM's KV cache computes of the tokens of a prefill that follow others: the next turn of a
chat, or the next part of a long prompt.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.decide.config import Config
from warploom.decide.families.prefill import PrefillProblem
from warploom.decide.selector import choose
from warploom.kernels.kernel_name import named
from warploom.programs.kv_pages import SequencePages, check_pages
from warploom.programs.paged_keys import PagedKeys
from warploom.programs.prefill_masks import CausalMask, SlidingMask
from warploom.programs.prefill_steps import (
    PrefillTiles,
    nothing_of,
    powers_of,
    prefill_steps,
)
from warploom.programs.rotary import BEFORE, EITHER, INLINE, Rotation, check_rotary
from warploom.programs.sequences import QueryTile, search_rounds
from warploom.target import SM90A
from warploom.target.dtypes import with_dtype_names


@with_dtype_names
@named
def paged_prefill(
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: str = "float16",
    page_size: int = 16,
    sliding_window: bool = False,
    sliding_window_size: int = 1024,
    config: Config | None = None,
    rotary: str = BEFORE,
    arch: str = SM90A.name,
) -> PrimFunc:
    """O = softmax(sm_scale Q Kᵀ) V for each sequence and head, and the log2 of the denominator.

    The signature is that of ``batch_prefill_paged_kv``, which TVM's ``TIRPagedKVCache`` calls
    (``tvm.relax.frontend.nn.llm._prefill_kernels._attention_prefill``).

    Parameters
    ----------
    heads, kv_heads, head_dim : int
        ``heads`` of Q share ``kv_heads`` of K and V evenly. ``head_dim`` is a multiple of 8 of at
        most 256.
    dtype : str
        ``"float16"`` or ``"bfloat16"``; sums and the softmax are in float32.
    page_size : int
        Tokens of a page: a multiple of 8 that divides the keys of a step, or is a multiple of them.
    sliding_window : bool
        Whether ``length_info`` is ``(3, batch)``: tokens of the last page, offset of the window,
        and tokens at the start that are kept. Otherwise it is ``(batch,)``.
    sliding_window_size : int
        Tokens of the window: with it and ``causal`` above 0, query i sees the last ``size - 1 - i``
        tokens that the window and the tokens at the start have.
    config : Config, optional
        ``tile_m`` rows of a tile, ``tile_n`` keys of a step, ``stages``; by default that of
        :func:`warploom.decide.choose`.
    rotary : str
        ``"before"``: queries and the keys in the cache are rotated, and ``rotary_mode`` is 0.
        ``"inline"``: they are not, ``rotary_mode`` is 1, and the function rotates them into a
        workspace. ``"either"``: as ``rotary_mode`` says.
    arch : str
        What the config is chosen for: ``"sm_90a"`` or ``"sm_100a"``.

    Returns
    -------
    PrimFunc
        ``(q, q_indptr, pages, page_indptr, page_values, length_info, k_rope_pos_offset,
        q_rope_position, output, lse, causal, rotary_mode, rope_scale, rope_theta, sm_scale)``: q
        and output are ``(queries, heads, head_dim)``, pages ``(pages, 2, kv_heads, page_size,
        head_dim)``, lse ``(queries, heads)`` of float32, indices int32. Where ``causal`` is above
        0, without a window, query i of n sees the keys up to number ``keys - n + i`` of its
        sequence, otherwise all. A query that sees none has the output 0 and the lse -5e4.
        Where the function rotates, query i has the position ``q_rope_position[i]``, and key i of
        those that sequence b has kept ``i + k_rope_pos_offset[b]``. ``sm_scale`` must be above 0.
        Keys and values of the last page behind the end may be anything.

    Raises
    ------
    IllegalCombination
        If there is no kernel for the sizes or ``page_size``, or the heads cannot share those of K
        and V.

    Examples
    --------
    >>> paged_prefill(32, 8, 128).attrs["global_symbol"]
    'paged_prefill_heads32_kvheads8_headdim128'
    """
    check_rotary(rotary)
    problem = PrefillProblem(heads, kv_heads, head_dim, head_dim, arch, page_size)
    tiles = PrefillTiles(problem, dtype, config or choose(problem))
    check_pages(page_size, tiles.keys)
    steps, write_nothing = prefill_steps(tiles), nothing_of(heads, head_dim, dtype)

    @T.inline
    def attend(Q, Keys, Cache, Out, Lse, index, slots, batch, rounds, causal, factor):
        with wl.kernel():
            wl.hints(raster="rows")
            slot, beside = T.cta_id([slots, tiles.tiles_beside])
            tile = QueryTile(index[0], tiles.queries)
            tile.find(slot, batch, rounds)
            tile.place(slot)
            if tile.first >= 0:
                head: T.let = T.truncdiv(beside * kv_heads, tiles.tiles_beside)
                seq = SequencePages(
                    index[1], index[2], index[3], tile.b, page_size, sliding_window
                )
                keys = PagedKeys(Cache, seq, head, tiles, Keys)
                if sliding_window:
                    window = SlidingMask(causal, seq, sliding_window_size)
                    steps(Q, Out, Lse, tile, keys, window, beside, factor)
                else:
                    mask = CausalMask(causal, tile.length, seq.length)
                    steps(Q, Out, Lse, tile, keys, mask, beside, factor)

    @T.prim_func
    def batch_prefill_paged_kv(
        q: T.handle, q_indptr: T.handle, p: T.handle, indptr: T.handle, values: T.handle,
        info: T.handle, k_rope: T.handle, q_rope: T.handle, o: T.handle, s: T.handle,
        causal: T.int32, rotary_mode: T.int32, rope_scale: T.float32, rope_theta: T.float32,
        sm_scale: T.float32,
    ):  # fmt: skip
        batch = T.int32()
        queries = T.int32()
        used_pages = T.int32()
        max_pages = T.int32()
        pages_offset = T.int64()
        q_indptr_offset = T.int32()
        indptr_offset = T.int32()
        values_offset = T.int32()
        k_rope_offset = T.int32()
        q_rope_offset = T.int32()
        info_offset = T.int32()
        Q = T.match_buffer(q, (queries, heads, head_dim), dtype, align=16)
        QIndptr = T.match_buffer(q_indptr, (batch + 1,), "int32", elem_offset=q_indptr_offset)
        Pages = T.match_buffer(
            p, (max_pages, 2, kv_heads, page_size, head_dim), dtype, elem_offset=pages_offset,
            offset_factor=8, align=16,
        )  # fmt: skip
        Indptr = T.match_buffer(indptr, (batch + 1,), "int32", elem_offset=indptr_offset)
        Values = T.match_buffer(values, (used_pages,), "int32", elem_offset=values_offset)
        Info = T.match_buffer(
            info, (3, batch) if sliding_window else (batch,), "int32", elem_offset=info_offset
        )
        KRope = T.match_buffer(k_rope, (batch,), "int32", elem_offset=k_rope_offset)
        QRope = T.match_buffer(q_rope, (queries,), "int32", elem_offset=q_rope_offset)
        Out = T.match_buffer(o, (queries, heads, head_dim), dtype, align=16)
        Lse = T.match_buffer(s, (queries, heads), "float32")
        if rotary == INLINE:
            assert rotary_mode == 1, "paged_prefill was made to rotate queries and keys"
        if rotary == BEFORE:
            assert rotary_mode == 0, "paged_prefill takes queries and keys that are rotated"
        assert sm_scale > 0, "paged_prefill takes scales above 0"
        # Rows of one head after the other. The offset is a multiple of 16 bytes, as TMA needs it.
        unit: T.let[T.int64] = pages_offset // 8
        Cache = T.decl_buffer(
            (max_pages * (2 * kv_heads * page_size), head_dim), dtype, data=Pages.data,
            elem_offset=unit * 8,
        )  # fmt: skip
        factor: T.let[T.float32] = powers_of(sm_scale)
        rounds: T.let[T.int32] = search_rounds(batch)
        some: T.let[T.bool] = T.And(queries > 0, used_pages > 0)
        slots: T.let[T.int32] = T.if_then_else(some, queries // tiles.queries + batch, 0)
        index = (QIndptr, Indptr, Values, Info)
        if rotary != BEFORE:
            turned: T.let[T.int32] = T.if_then_else(T.And(rotary_mode == 1, some), 1, 0)
            Q_r = T.alloc_buffer(
                (T.max(turned * queries, 1), heads, head_dim), dtype, scope="global"
            )
            K_r = T.alloc_buffer(
                (T.max(turned * used_pages, 1) * (kv_heads * page_size), head_dim), dtype,
                scope="global",
            )  # fmt: skip
            rotation = Rotation(head_dim, dtype, rope_scale, rope_theta)
            with wl.kernel():
                rotation.turn_rows(Q, Q_r, turned * queries, heads, QRope)
            with wl.kernel():
                rotation.turn_pages(
                    Pages, unit, K_r, turned * used_pages, Indptr, Values, Info, KRope, batch,
                    rounds, sliding_window,
                )  # fmt: skip
            attend(Q_r, K_r, Cache, Out, Lse, index, turned * slots, batch, rounds, causal, factor)
        if rotary == EITHER:
            attend(Q, None, Cache, Out, Lse, index, (1 - turned) * slots, batch, rounds, causal,
                   factor)  # fmt: skip
        if rotary == BEFORE:
            attend(Q, None, Cache, Out, Lse, index, slots, batch, rounds, causal, factor)
        with wl.kernel():
            row = T.cta_id([T.if_then_else(used_pages > 0, 0, queries)])
            write_nothing(Out, Lse, row)

    return batch_prefill_paged_kv
