"""Keys and values move inside the pages of a KV cache: kernels by hand, 16 bytes a thread."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from warploom.kernels.kernel_name import named
from warploom.programs.append_to_pages import THREADS, WORDS, vectors_of
from warploom.target.dtypes import with_dtype_names
from warploom.tile.kinds import MARK

#: Tokens that a thread loads before it stores the first of them.
_GROUP = 8


@with_dtype_names
@named
def copy_page(kv_heads: int, head_dim: int, dtype: str = "float16") -> PrimFunc:
    """The first tokens of a page are copied to another page.

    The signature is that of ``copy_single_page``, which TVM's ``TIRPagedKVCache`` calls when a
    sequence is forked (``tvm.relax.frontend.nn.llm._page_kernels._copy_single_page``).

    Parameters
    ----------
    kv_heads, head_dim : int
        A head is a multiple of 16 bytes.
    dtype : str
        Any dtype of whole bytes.

    Returns
    -------
    PrimFunc
        ``(pages, source, target, count)``: pages are ``(pages, 2, kv_heads, page_size, head_dim)``
        of any page size, the others int64: two numbers of pages, and of tokens.

    Raises
    ------
    IllegalCombination
        If a head is no multiple of 16 bytes.

    Examples
    --------
    >>> copy_page(8, 128).attrs["global_symbol"]
    'copy_page_kvheads8_headdim128'
    """
    vector, words = vectors_of(head_dim, dtype)

    @T.prim_func
    def copy_single_page(p: T.handle, source: T.int64, target: T.int64, count: T.int64):
        pages = T.int32()
        page_size = T.int64()
        offset = T.int64()
        Pages = T.match_buffer(
            p, (pages, 2, kv_heads, page_size, head_dim), dtype, elem_offset=offset,
            offset_factor=vector, align=16,
        )  # fmt: skip
        half: T.let[T.int64] = page_size * (kv_heads * words)
        begin: T.let[T.int64] = offset // vector
        all_words: T.let[T.int64] = T.cast(pages, "int64") * 2 * half
        Places = T.decl_buffer(
            (all_words, WORDS), "uint32", data=Pages.data, elem_offset=begin * WORDS
        )
        of_head: T.let[T.int32] = T.cast(count, "int32") * words
        total: T.let[T.int32] = of_head * kv_heads
        T.device_entry()
        cta = T.cta_id([T.max((total + (THREADS - 1)) // THREADS, 1)])
        thread = T.thread_id([THREADS])
        T.ptx.griddepcontrol.launch_dependents()
        T.ptx.griddepcontrol.wait()
        held = T.alloc_buffer((2, WORDS), "uint32", scope="local")
        at: T.int32 = cta * THREADS + thread
        if at < total:
            head: T.int32 = T.truncdiv(at, of_head)
            word: T.int64 = T.cast(head, "int64") * (page_size * words) + T.cast(
                at - head * of_head, "int64"
            )
            for kind in T.unroll(2):
                for i in T.vectorized(WORDS):
                    held[kind, i] = Places[(source * 2 + kind) * half + word, i]
            for kind in T.unroll(2):
                for i in T.vectorized(WORDS):
                    Places[(target * 2 + kind) * half + word, i] = held[kind, i]

    return copy_single_page.with_attr(MARK, True)


@with_dtype_names
@named
def copy_latent_page(width: int, dtype: str = "float16") -> PrimFunc:
    """The first tokens of a page of latent vectors (MLA) are copied to another page.

    The signature is that of ``copy_single_page_mla``; pages are ``(pages, page_size, width)`` of
    any page size, the rest is that of :func:`copy_page`.

    Raises
    ------
    IllegalCombination
        If a token is no multiple of 16 bytes.
    """
    vector, words = vectors_of(width, dtype)

    @T.prim_func
    def copy_single_page_mla(p: T.handle, source: T.int64, target: T.int64, count: T.int64):
        pages = T.int32()
        page_size = T.int64()
        offset = T.int64()
        Pages = T.match_buffer(
            p, (pages, page_size, width), dtype, elem_offset=offset, offset_factor=vector, align=16
        )
        page_words: T.let[T.int64] = page_size * words
        begin: T.let[T.int64] = offset // vector
        all_words: T.let[T.int64] = T.cast(pages, "int64") * page_words
        Places = T.decl_buffer(
            (all_words, WORDS), "uint32", data=Pages.data, elem_offset=begin * WORDS
        )
        total: T.let[T.int32] = T.cast(count, "int32") * words
        T.device_entry()
        cta = T.cta_id([T.max((total + (THREADS - 1)) // THREADS, 1)])
        thread = T.thread_id([THREADS])
        T.ptx.griddepcontrol.launch_dependents()
        T.ptx.griddepcontrol.wait()
        at: T.int32 = cta * THREADS + thread
        if at < total:
            word: T.int64 = T.cast(at, "int64")
            for i in T.vectorized(WORDS):
                Places[target * page_words + word, i] = Places[source * page_words + word, i]

    return copy_single_page_mla.with_attr(MARK, True)


@with_dtype_names
@named
def move_tokens(
    kv_heads: int, head_dim: int, dtype: str = "float16", page_size: int = 16
) -> PrimFunc:
    """Tokens of each sequence move to other places, one after the other.

    The signature is that of ``compact_kv_copy``, which TVM's ``TIRPagedKVCache`` calls when tokens
    of a tree are accepted (``tvm.relax.frontend.nn.llm._page_kernels._compact_kv_copy``). Eight
    tokens are loaded before the first is stored, unless one of them is to be overwritten first.

    Parameters
    ----------
    kv_heads, head_dim : int
        A head is a multiple of 16 bytes.
    dtype : str
        Any dtype of whole bytes.
    page_size : int
        Tokens of a page.

    Returns
    -------
    PrimFunc
        ``(pages, indptr, moves, batch)``: pages are ``(pages, 2, kv_heads, page_size, head_dim)``,
        indptr ``(batch + 1,)`` and moves ``(2, moves)`` of int32. Moves ``indptr[b]`` to
        ``indptr[b + 1]`` are those of sequence b: positions as in
        :func:`~warploom.programs.append_to_pages.append_to_pages`, first from where, then to where.

    Raises
    ------
    IllegalCombination
        If a head is no multiple of 16 bytes.
    """
    vector, words = vectors_of(head_dim, dtype)
    of_page = 2 * kv_heads * page_size * words
    between = kv_heads * page_size * words

    def word_of(position: Any, column: Any) -> Any:
        """The word of a column of a token; ``column`` is that of a page's first token."""
        page, place = T.truncdiv(position, page_size), T.truncmod(position, page_size)
        return T.cast(page, "int64") * of_page + T.cast(column + place * words, "int64")

    @T.prim_func
    def compact_kv_copy(p: T.handle, n: T.handle, m: T.handle, batch: T.int32):
        pages = T.int32()
        moves = T.int32()
        offset = T.int64()
        indptr_offset = T.int32()
        moves_offset = T.int32()
        Pages = T.match_buffer(
            p, (pages, 2, kv_heads, page_size, head_dim), dtype, elem_offset=offset,
            offset_factor=vector, align=16,
        )  # fmt: skip
        Indptr = T.match_buffer(n, (batch + 1,), "int32", elem_offset=indptr_offset)
        Moves = T.match_buffer(m, (2, moves), "int32", elem_offset=moves_offset)
        begin: T.let[T.int64] = offset // vector
        all_words: T.let[T.int64] = T.cast(pages, "int64") * of_page
        Places = T.decl_buffer(
            (all_words, WORDS), "uint32", data=Pages.data, elem_offset=begin * WORDS
        )
        total: T.let[T.int32] = batch * (kv_heads * words)
        T.device_entry()
        cta = T.cta_id([T.max((total + (THREADS - 1)) // THREADS, 1)])
        thread = T.thread_id([THREADS])
        T.ptx.griddepcontrol.launch_dependents()
        T.ptx.griddepcontrol.wait()
        source = T.alloc_buffer((_GROUP,), "int32", scope="local")
        target = T.alloc_buffer((_GROUP,), "int32", scope="local")
        held = T.alloc_buffer((2 * _GROUP, WORDS), "uint32", scope="local")
        at: T.int32 = cta * THREADS + thread
        if at < total:
            b: T.int32 = T.truncdiv(at, kv_heads * words)
            row: T.int32 = T.truncdiv(T.truncmod(at, kv_heads * words), words)
            column: T.int32 = row * (page_size * words) + T.truncmod(at, words)
            first: T.int32 = Indptr[b]
            count: T.int32 = Indptr[b + 1] - first
            for group in T.serial(T.truncdiv(count + (_GROUP - 1), _GROUP)):
                # Moves behind the end are those of a token to itself.
                for g in T.unroll(_GROUP):
                    number: T.let = T.min(group * _GROUP + g, count - 1)
                    source[g] = Moves[0, first + number]
                    target[g] = T.if_then_else(
                        group * _GROUP + g < count, Moves[1, first + number], source[g]
                    )
                overwritten: T.int32 = 0
                for g in T.unroll(_GROUP):
                    for before in T.unroll(_GROUP):
                        moved: T.let = target[before] != source[before]
                        if T.And(before < g, T.And(moved, source[g] == target[before])):
                            overwritten = 1
                for g in T.unroll(_GROUP):
                    for kind in T.unroll(2):
                        for i in T.vectorized(WORDS):
                            held[g * 2 + kind, i] = Places[
                                word_of(source[g], column) + kind * between, i
                            ]
                for g in T.unroll(_GROUP):
                    for kind in T.unroll(2):
                        if overwritten > 0:
                            for i in T.vectorized(WORDS):
                                held[g * 2 + kind, i] = Places[
                                    word_of(source[g], column) + kind * between, i
                                ]
                        if source[g] != target[g]:
                            for i in T.vectorized(WORDS):
                                Places[word_of(target[g], column) + kind * between, i] = held[
                                    g * 2 + kind, i
                                ]

    return compact_kv_copy.with_attr(MARK, True)
