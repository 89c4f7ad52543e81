"""Queries and keys are rotated, for an attention that takes them so: kernels by hand.

It is TVM's rotary embedding without a scaling of its own (``rope_scaling`` is empty): element d of
the lower half of a head and d of the upper half are a point, which turns by ``position * scale /
theta ** (2 d / head_dim)``. Angles are of float32, the result is rounded to the dtype.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.errors import IllegalCombination
from warploom.programs.kv_pages import named_scalar
from warploom.programs.sequences import SequenceSearch

#: Where queries and keys of an attention are rotated: before it, in it, or as its argument
#: ``rotary_mode`` says.
BEFORE, INLINE, EITHER = "before", "inline", "either"
#: Threads of a CTA.
THREADS = 128
#: Elements of a half that a thread turns, and the words of 32 bits that they are.
_VECTOR, _WORDS = 4, 2


def check_rotary(rotary: str) -> None:
    """Raise :class:`IllegalCombination` unless it is a word of this module."""
    if rotary not in (BEFORE, INLINE, EITHER):
        raise IllegalCombination(
            f"rotary is {rotary!r}; it can be {BEFORE!r}, {INLINE!r} or {EITHER!r}."
        )


@T.meta_class
class Rotation:
    """The rotary embedding of heads of ``head_dim`` elements, a multiple of 8.

    Parameters
    ----------
    head_dim : int
    dtype : str
        Of 16 bits.
    scale, theta : float32 expression
    """

    def __init__(self, head_dim: int, dtype: str, scale: Any, theta: Any) -> None:
        self._dim, self._dtype, self._scale, self._theta = head_dim, dtype, scale, theta
        # Threads that turn a token, and tokens of a CTA.
        self._lanes = head_dim // (2 * _VECTOR)
        self._tokens = THREADS // self._lanes

    def words(self, rows: Any, of: Any, offset: Any = 0) -> Any:
        """Rows of heads as words of 32 bits; ``offset`` in elements."""
        return T.decl_buffer(
            (rows, self._dim // 2), "uint32", data=of.data, elem_offset=T.truncdiv(offset, 2)
        )

    def ctas(self, tokens: Any) -> Any:
        """CTAs for so many tokens."""
        return T.truncdiv(tokens + (self._tokens - 1), self._tokens)

    def token(self, cta: Any, thread: Any) -> Any:
        """The token of a thread, which may be beyond all of them."""
        return named_scalar(cta * self._tokens + T.truncdiv(thread, self._lanes))

    def works(self, thread: Any) -> Any:
        """Whether a thread has a token."""
        return thread < self._tokens * self._lanes

    @T.inline
    def turn(self, source, to, row, to_row, stride, heads, position, thread):
        """Turn heads of a token: every ``stride``-th row, from ``row`` and ``to_row`` on."""
        first: T.let = T.truncmod(thread, self._lanes) * _VECTOR
        cos = T.alloc_buffer((_VECTOR,), "float32", scope="local")
        sin = T.alloc_buffer((_VECTOR,), "float32", scope="local")
        low = T.alloc_buffer((_VECTOR,), self._dtype, scope="local")
        high = T.alloc_buffer((_VECTOR,), self._dtype, scope="local")
        other = T.alloc_buffer((_VECTOR,), self._dtype, scope="local")
        low_words = T.decl_buffer((_WORDS,), "uint32", data=low.data, scope="local")
        high_words = T.decl_buffer((_WORDS,), "uint32", data=high.data, scope="local")
        other_words = T.decl_buffer((_WORDS,), "uint32", data=other.data, scope="local")
        for v in T.unroll(_VECTOR):
            part: T.let = T.cast((first + v) * 2, "float32") / T.float32(self._dim)
            angle: T.float32 = T.cast(position, "float32") * self._scale / T.pow(self._theta, part)
            cos[v] = T.cos(angle)
            sin[v] = T.sin(angle)
        word: T.let = T.truncdiv(first, 2)
        for head in T.serial(heads):
            for i in T.vectorized(_WORDS):
                low_words[i] = source[row + head * stride, word + i]
            for i in T.vectorized(_WORDS):
                high_words[i] = source[row + head * stride, self._dim // 4 + word + i]
            for v in T.unroll(_VECTOR):
                other[v] = T.cast(
                    T.cast(high[v], "float32") * cos[v] + T.cast(low[v], "float32") * sin[v],
                    self._dtype,
                )
                low[v] = T.cast(
                    T.cast(low[v], "float32") * cos[v] - T.cast(high[v], "float32") * sin[v],
                    self._dtype,
                )
            for i in T.vectorized(_WORDS):
                to[to_row + head * stride, word + i] = low_words[i]
            for i in T.vectorized(_WORDS):
                to[to_row + head * stride, self._dim // 4 + word + i] = other_words[i]

    @T.inline
    def turn_rows(self, source, to, tokens, heads, positions):
        """Queries ``(tokens, heads, head_dim)``: a kernel, with the position of each of them."""
        From = self.words(tokens * heads, source)
        To = self.words(tokens * heads, to)
        cta = T.cta_id([self.ctas(tokens)])
        thread = T.thread_id([THREADS])
        T.ptx.griddepcontrol.launch_dependents()
        T.ptx.griddepcontrol.wait()
        token: T.let = self.token(cta, thread)
        if T.And(token < tokens, self.works(thread)):
            self.turn(From, To, token * heads, token * heads, 1, heads, positions[token], thread)

    @T.inline
    def turn_keys(self, source, to, keys, heads, indptr, offsets, batch, rounds):
        """Keys ``(keys, heads, head_dim)``: a kernel. Those of sequence b are at ``indptr[b] :
        indptr[b + 1]``, and the first of them has the position ``offsets[b]``.
        """
        From = self.words(keys * heads, source)
        To = self.words(keys * heads, to)
        cta = T.cta_id([self.ctas(keys)])
        thread = T.thread_id([THREADS])
        T.ptx.griddepcontrol.launch_dependents()
        T.ptx.griddepcontrol.wait()
        key: T.let = self.token(cta, thread)
        search = SequenceSearch()
        search.find(indptr, batch, rounds, key + 1)
        b: T.let = search.b
        if T.And(key < keys, self.works(thread)):
            position: T.let = offsets[b] + key - indptr[b]
            self.turn(From, To, key * heads, key * heads, 1, heads, position, thread)

    @T.inline
    def turn_pages(
        self, pages, unit, to, used, indptr, values, info, offsets, batch, rounds, sliding
    ):
        """Keys in pages: a kernel. Those of page ``values[n]`` become page n of ``to``.

        ``pages`` is ``(pages, 2, heads, page_size, head_dim)`` and begins ``unit`` times 16 bytes
        inside its memory, ``to`` is ``(pages * heads * page_size, head_dim)``. ``sliding`` says
        whether sequences have windows: positions leave out the tokens that a window hides.
        """
        heads = T.meta_var(int(pages.shape[2]))
        page_size = T.meta_var(int(pages.shape[3]))
        From = self.words(
            T.cast(pages.shape[0], "int64") * (2 * heads * page_size), pages, unit * 8
        )
        To = self.words(T.cast(used, "int64") * (heads * page_size), to)
        cta = T.cta_id([self.ctas(used * page_size)])
        thread = T.thread_id([THREADS])
        T.ptx.griddepcontrol.launch_dependents()
        T.ptx.griddepcontrol.wait()
        token: T.let = self.token(cta, thread)
        place: T.int32 = T.truncdiv(token, page_size)
        within: T.int32 = token - place * page_size
        search = SequenceSearch()
        search.find(indptr, batch, rounds, place + 1)
        b: T.let = search.b
        if T.And(place < used, self.works(thread)):
            number: T.int32 = (place - indptr[b]) * page_size + within
            if sliding:
                hidden: T.let = T.max(info[1, b] - info[2, b], 0)
                if number >= info[2, b]:
                    number = T.max(number - hidden, 0)
            page: T.let = T.cast(values[place], "int64")
            row: T.int64 = page * (2 * heads * page_size) + T.cast(within, "int64")
            to_row: T.int64 = T.cast(place, "int64") * (heads * page_size) + T.cast(within, "int64")
            self.turn(From, To, row, to_row, page_size, heads, offsets[b] + number, thread)
