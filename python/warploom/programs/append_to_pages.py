"""New tokens go into the pages of a KV cache: kernels by hand that move 16 bytes at a time."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from warploom.errors import IllegalCombination
from warploom.kernels.kernel_name import named
from warploom.target.dtypes import bits_of, with_dtype_names
from warploom.tile.kinds import MARK

#: Threads of a CTA.
THREADS = 256
#: Bytes that a thread loads at a time, and how many words of 32 bits they are.
_BYTES, WORDS = 16, 4


@with_dtype_names
@named
def append_to_pages(
    kv_heads: int, head_dim: int, dtype: str = "float16", page_size: int = 16
) -> PrimFunc:
    """Keys and values of new tokens are copied to their places in the pages.

    The signature is that of ``tir_kv_cache_transpose_append``, which TVM's ``TIRPagedKVCache``
    calls (``tvm.relax.frontend.nn.llm._page_kernels._kv_cache_transpose_append``).

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
        ``(pages, k, v, position_map)``: pages are ``(pages, 2, kv_heads, page_size, head_dim)``,
        k and v ``(tokens, kv_heads, head_dim)``, position_map ``(tokens,)`` of int32. Token t goes
        to place ``position_map[t] % page_size`` of page ``position_map[t] // page_size``, unless
        its position is -1.

    Raises
    ------
    IllegalCombination
        If a head is no multiple of 16 bytes.

    Examples
    --------
    >>> append_to_pages(8, 128).attrs["global_symbol"]
    'append_to_pages_kvheads8_headdim128'
    """
    vector, words = vectors_of(head_dim, dtype)

    @T.prim_func
    def tir_kv_cache_transpose_append(p: T.handle, k: T.handle, v: T.handle, m: T.handle):
        tokens = T.int64()
        pages = T.int64()
        pages_offset = T.int64()
        map_offset = T.int32()
        Pages = T.match_buffer(
            p, (pages, 2, kv_heads, page_size, head_dim), dtype, elem_offset=pages_offset,
            offset_factor=vector, align=_BYTES,
        )  # fmt: skip
        K = T.match_buffer(k, (tokens, kv_heads, head_dim), dtype, align=_BYTES)
        V = T.match_buffer(v, (tokens, kv_heads, head_dim), dtype, align=_BYTES)
        Map = T.match_buffer(m, (tokens,), "int32", elem_offset=map_offset)
        count: T.let[T.int32] = T.cast(tokens, "int32") * (kv_heads * words)
        begin: T.let[T.int64] = pages_offset // vector
        all_words: T.let[T.int64] = pages * (2 * kv_heads * page_size * words)
        Places = T.decl_buffer(
            (all_words, WORDS), "uint32", data=Pages.data, elem_offset=begin * WORDS
        )
        Keys = T.decl_buffer((count, WORDS), "uint32", data=K.data)
        Values = T.decl_buffer((count, WORDS), "uint32", data=V.data)
        T.device_entry()
        cta = T.cta_id([T.max((count + (THREADS - 1)) // THREADS, 1)])
        thread = T.thread_id([THREADS])
        T.ptx.griddepcontrol.launch_dependents()
        T.ptx.griddepcontrol.wait()
        key = T.alloc_buffer((WORDS,), "uint32", scope="local")
        value = T.alloc_buffer((WORDS,), "uint32", scope="local")
        at: T.int32 = cta * THREADS + thread
        if at < count:
            row: T.int32 = T.truncdiv(at, words)
            for i in T.vectorized(WORDS):
                key[i] = Keys[at, i]
            for i in T.vectorized(WORDS):
                value[i] = Values[at, i]
            position: T.int32 = Map[T.truncdiv(row, kv_heads)]
            if position != -1:
                page: T.int32 = T.truncdiv(position, page_size)
                place: T.int32 = T.truncmod(row, kv_heads) * page_size
                in_page: T.int32 = (place + T.truncmod(position, page_size)) * words
                column: T.int32 = T.truncmod(at, words)
                word: T.int64 = T.cast(page, "int64") * (2 * kv_heads * page_size * words) + T.cast(
                    in_page + column, "int64"
                )
                for i in T.vectorized(WORDS):
                    Places[word, i] = key[i]
                for i in T.vectorized(WORDS):
                    Places[word + kv_heads * page_size * words, i] = value[i]

    return tir_kv_cache_transpose_append.with_attr(MARK, True)


@with_dtype_names
@named
def append_latent_to_pages(width: int, dtype: str = "float16", page_size: int = 16) -> PrimFunc:
    """Latent vectors of new tokens (MLA) are copied to their places in the pages.

    The signature is that of ``tir_kv_cache_transpose_append_mla``.

    Parameters
    ----------
    width : int
        Elements of a token, a multiple of 16 bytes: the latent vector and the rotated key.
    dtype : str
    page_size : int

    Returns
    -------
    PrimFunc
        ``(pages, data, position_map)``: pages are ``(pages, page_size, width)``, data
        ``(tokens, width)``, position_map as in :func:`append_to_pages`.

    Raises
    ------
    IllegalCombination
        If a token is no multiple of 16 bytes.
    """
    vector, words = vectors_of(width, dtype)

    @T.prim_func
    def tir_kv_cache_transpose_append_mla(p: T.handle, d: T.handle, m: T.handle):
        tokens = T.int64()
        pages = T.int64()
        pages_offset = T.int64()
        map_offset = T.int32()
        Pages = T.match_buffer(
            p, (pages, page_size, width), dtype, elem_offset=pages_offset, offset_factor=vector,
            align=_BYTES,
        )  # fmt: skip
        Data = T.match_buffer(d, (tokens, width), dtype, align=_BYTES)
        Map = T.match_buffer(m, (tokens,), "int32", elem_offset=map_offset)
        count: T.let[T.int32] = T.cast(tokens, "int32") * words
        begin: T.let[T.int64] = pages_offset // vector
        all_words: T.let[T.int64] = pages * (page_size * words)
        Places = T.decl_buffer(
            (all_words, WORDS), "uint32", data=Pages.data, elem_offset=begin * WORDS
        )
        Words = T.decl_buffer((count, WORDS), "uint32", data=Data.data)
        T.device_entry()
        cta = T.cta_id([T.max((count + (THREADS - 1)) // THREADS, 1)])
        thread = T.thread_id([THREADS])
        T.ptx.griddepcontrol.launch_dependents()
        T.ptx.griddepcontrol.wait()
        data = T.alloc_buffer((WORDS,), "uint32", scope="local")
        at: T.int32 = cta * THREADS + thread
        if at < count:
            for i in T.vectorized(WORDS):
                data[i] = Words[at, i]
            position: T.int32 = Map[T.truncdiv(at, words)]
            if position != -1:
                column: T.int32 = T.truncmod(at, words)
                word: T.int64 = T.cast(position, "int64") * words + T.cast(column, "int64")
                for i in T.vectorized(WORDS):
                    Places[word, i] = data[i]

    return tir_kv_cache_transpose_append_mla.with_attr(MARK, True)


def vectors_of(width: int, dtype: str) -> tuple[Any, Any]:
    """Elements of a word, and words of a row."""
    bits = bits_of(dtype)
    if width < 1 or bits % 8 or width * bits % (8 * _BYTES):
        raise IllegalCombination(
            f"a row of {width} {dtype} is no multiple of {_BYTES} bytes, which a thread moves at a "
            "time; pad it."
        )
    return 8 * _BYTES // bits, width * bits // (8 * _BYTES)
