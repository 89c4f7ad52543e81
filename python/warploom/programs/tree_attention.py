"""Attention of trees of tokens, which speculative decoding guesses: a token sees its ancestors.

The tokens of a tree lie one after the other, so each has a range of an order: its descendants begin
in it (:class:`~warploom.programs.prefill_masks.TreeMask`).
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
from warploom.programs.prefill_masks import TreeMask
from warploom.programs.prefill_steps import (
    PrefillTiles,
    nothing_of,
    powers_of,
    prefill_steps,
)
from warploom.programs.ragged_prefill import RaggedKeys
from warploom.programs.sequences import QueryTile, search_rounds
from warploom.target import SM90A
from warploom.target.dtypes import with_dtype_names


@with_dtype_names
@named
def ragged_tree_attention(
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: str = "float16",
    config: Config | None = None,
    arch: str = SM90A.name,
) -> PrimFunc:
    """O = softmax(sm_scale Q Kᵀ) V for each sequence and head, and the log2 of the denominator.

    The signature is that of ``batch_tree_attn``, which TVM's ``TIRPagedKVCache`` calls
    (``tvm.relax.frontend.nn.llm.tree_attn.tree_attn``).

    Parameters
    ----------
    heads, kv_heads, head_dim, dtype, config, arch
        As those of :func:`~warploom.programs.ragged_prefill.ragged_prefill`.

    Returns
    -------
    PrimFunc
        ``(q, q_indptr, k, v, kv_indptr, q_rope_position, order_indptr, order, output, lse,
        rotary_mode, rope_scale, rope_theta, sm_scale)``: q and output are ``(queries, heads,
        head_dim)``, k and v ``(keys, kv_heads, head_dim)``, order ``(tokens, 2)``, lse ``(queries,
        heads)`` of float32, indices int32. The last keys of a sequence are its tree, the last
        tokens of the tree are its queries. A query sees the keys before the tree, and those whose
        range has its own begin. ``rotary_mode`` must be 0, ``sm_scale`` above 0.

    Raises
    ------
    IllegalCombination
        If there is no kernel for the sizes, or the heads cannot share those of K and V.

    Examples
    --------
    >>> ragged_tree_attention(32, 8, 128).attrs["global_symbol"]
    'ragged_tree_attention_heads32_kvheads8_headdim128'
    """
    problem = PrefillProblem(heads, kv_heads, head_dim, head_dim, arch, tree=True)
    tiles = PrefillTiles(problem, dtype, config or choose(problem))
    steps, write_nothing = prefill_steps(tiles), nothing_of(heads, head_dim, dtype)

    @T.prim_func
    def batch_tree_attn(
        q: T.handle, q_indptr: T.handle, k: T.handle, v: T.handle, kv_indptr: T.handle,
        q_rope: T.handle, order_indptr: T.handle, order: T.handle, o: T.handle, s: T.handle,
        rotary_mode: T.int32, rope_scale: T.float32, rope_theta: T.float32, sm_scale: T.float32,
    ):  # fmt: skip
        places = T.int32()
        queries = T.int32()
        keys = T.int32()
        tokens = T.int32()
        q_indptr_offset = T.int32()
        kv_indptr_offset = T.int32()
        q_rope_offset = T.int32()
        order_indptr_offset = T.int32()
        order_offset = T.int32()
        Q = T.match_buffer(q, (queries, heads, head_dim), dtype, align=16)
        QIndptr = T.match_buffer(q_indptr, (places,), "int32", elem_offset=q_indptr_offset)
        K = T.match_buffer(k, (keys, kv_heads, head_dim), dtype, align=16)
        V = T.match_buffer(v, (keys, kv_heads, head_dim), dtype, align=16)
        KIndptr = T.match_buffer(kv_indptr, (places,), "int32", elem_offset=kv_indptr_offset)
        T.match_buffer(q_rope, (queries,), "int32", elem_offset=q_rope_offset)
        OIndptr = T.match_buffer(
            order_indptr, (places,), "int32", elem_offset=order_indptr_offset
        )
        Order = T.match_buffer(order, (tokens, 2), "int32", elem_offset=order_offset)
        Out = T.match_buffer(o, (queries, heads, head_dim), dtype, align=16)
        Lse = T.match_buffer(s, (queries, heads), "float32")
        assert rotary_mode == 0, "ragged_tree_attention takes queries and keys that are rotated"
        assert sm_scale > 0, "ragged_tree_attention takes scales above 0"
        batch: T.let[T.int32] = places - 1
        factor: T.let[T.float32] = powers_of(sm_scale)
        rounds: T.let[T.int32] = search_rounds(batch)
        some: T.let[T.bool] = T.And(queries > 0, keys > 0)
        slots: T.let[T.int32] = T.if_then_else(some, queries // tiles.queries + batch, 0)
        with wl.kernel():
            wl.hints(raster="rows")
            slot, beside = T.cta_id([slots, tiles.tiles_beside])
            tile = QueryTile(QIndptr, tiles.queries)
            tile.find(slot, batch, rounds)
            tile.place(slot)
            if tile.first >= 0:
                head: T.let = T.truncdiv(beside * kv_heads, tiles.tiles_beside)
                own = RaggedKeys(K, V, KIndptr, tile.b, head, tiles)
                mask = TreeMask(Order, OIndptr, tile.b, tile.length, own.length)
                steps(Q, Out, Lse, tile, own, mask, beside, factor)
        with wl.kernel():
            row = T.cta_id([T.if_then_else(keys > 0, 0, queries)])
            write_nothing(Out, Lse, row)

    return batch_tree_attn


@with_dtype_names
@named
def paged_tree_attention(
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: str = "float16",
    page_size: int = 16,
    config: Config | None = None,
    arch: str = SM90A.name,
) -> PrimFunc:
    """O = softmax(sm_scale Q Kᵀ) V for each sequence and head, and the log2 of the denominator.

    The signature is that of ``tree_attn_paged_kv``, which TVM's ``TIRPagedKVCache`` calls
    (``tvm.relax.frontend.nn.llm.tree_attn.tree_attn_with_paged_kv_cache``).

    Parameters
    ----------
    heads, kv_heads, head_dim, dtype, page_size, config, arch
        As those of :func:`~warploom.programs.paged_prefill.paged_prefill`.

    Returns
    -------
    PrimFunc
        ``(q, q_indptr, pages, page_indptr, page_values, length_info, k_rope_pos_offset,
        q_rope_position, output, lse, rotary_mode, rope_scale, rope_theta, sm_scale, order_indptr,
        order)``: q and output are ``(queries, heads, head_dim)``, pages ``(pages, 2, kv_heads,
        page_size, head_dim)``, length_info ``(batch,)``, order ``(tokens, 2)``, lse ``(queries,
        heads)`` of float32, indices int32. What a query sees is as in
        :func:`ragged_tree_attention`. ``rotary_mode`` must be 0, ``sm_scale`` above 0.

    Raises
    ------
    IllegalCombination
        If there is no kernel for the sizes or ``page_size``, or the heads cannot share those of K
        and V.

    Examples
    --------
    >>> paged_tree_attention(32, 8, 128).attrs["global_symbol"]
    'paged_tree_attention_heads32_kvheads8_headdim128'
    """
    problem = PrefillProblem(heads, kv_heads, head_dim, head_dim, arch, page_size, tree=True)
    tiles = PrefillTiles(problem, dtype, config or choose(problem))
    check_pages(page_size, tiles.keys)
    steps, write_nothing = prefill_steps(tiles), nothing_of(heads, head_dim, dtype)

    @T.prim_func
    def tree_attn_paged_kv(
        q: T.handle, q_indptr: T.handle, p: T.handle, indptr: T.handle, values: T.handle,
        info: T.handle, k_rope: T.handle, q_rope: T.handle, o: T.handle, s: T.handle,
        rotary_mode: T.int32, rope_scale: T.float32, rope_theta: T.float32, sm_scale: T.float32,
        order_indptr: T.handle, order: T.handle,
    ):  # fmt: skip
        batch = T.int32()
        queries = T.int32()
        used_pages = T.int32()
        max_pages = T.int32()
        tokens = T.int32()
        pages_offset = T.int64()
        q_indptr_offset = T.int32()
        indptr_offset = T.int32()
        values_offset = T.int32()
        k_rope_offset = T.int32()
        q_rope_offset = T.int32()
        info_offset = T.int32()
        order_indptr_offset = T.int32()
        order_offset = T.int32()
        Q = T.match_buffer(q, (queries, heads, head_dim), dtype, align=16)
        QIndptr = T.match_buffer(q_indptr, (batch + 1,), "int32", elem_offset=q_indptr_offset)
        Pages = T.match_buffer(
            p, (max_pages, 2, kv_heads, page_size, head_dim), dtype, elem_offset=pages_offset,
            offset_factor=8, align=16,
        )  # fmt: skip
        Indptr = T.match_buffer(indptr, (batch + 1,), "int32", elem_offset=indptr_offset)
        Values = T.match_buffer(values, (used_pages,), "int32", elem_offset=values_offset)
        Info = T.match_buffer(info, (batch,), "int32", elem_offset=info_offset)
        T.match_buffer(k_rope, (batch,), "int32", elem_offset=k_rope_offset)
        T.match_buffer(q_rope, (queries,), "int32", elem_offset=q_rope_offset)
        Out = T.match_buffer(o, (queries, heads, head_dim), dtype, align=16)
        Lse = T.match_buffer(s, (queries, heads), "float32")
        OIndptr = T.match_buffer(
            order_indptr, (batch + 1,), "int32", elem_offset=order_indptr_offset
        )
        Order = T.match_buffer(order, (tokens, 2), "int32", elem_offset=order_offset)
        assert rotary_mode == 0, "paged_tree_attention takes queries and keys that are rotated"
        assert sm_scale > 0, "paged_tree_attention takes scales above 0"
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
        with wl.kernel():
            wl.hints(raster="rows")
            slot, beside = T.cta_id([slots, tiles.tiles_beside])
            tile = QueryTile(QIndptr, tiles.queries)
            tile.find(slot, batch, rounds)
            tile.place(slot)
            if tile.first >= 0:
                head: T.let = T.truncdiv(beside * kv_heads, tiles.tiles_beside)
                seq = SequencePages(Indptr, Values, Info, tile.b, page_size, False)
                keys = PagedKeys(Cache, seq, head, tiles)
                mask = TreeMask(Order, OIndptr, tile.b, tile.length, seq.length)
                steps(Q, Out, Lse, tile, keys, mask, beside, factor)
        with wl.kernel():
            row = T.cta_id([T.if_then_else(used_pages > 0, 0, queries)])
            write_nothing(Out, Lse, row)

    return tree_attn_paged_kv
