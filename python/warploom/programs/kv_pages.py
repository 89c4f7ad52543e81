"""Which tokens of a sequence lie in which pages of a KV cache, as TVM's runtime describes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.script import tirx as T

from warploom.errors import IllegalCombination
from warploom.layout.smem_matrix import ATOM_ROWS


def named_scalar(value: Any) -> Any:
    """A value as a scalar, which is computed once: TVM writes out what a variable is bound to."""
    scalar = T.alloc_buffer((1,), str(value.ty.dtype), scope="local")
    T.buffer_store(scalar, value, [0])
    return scalar[0]


@T.meta_class
class SequencePages:
    """The pages of one sequence that a query may see, in order: numbered from 0, without a gap.

    With a sliding window, pages between the tokens at the start that every query sees (the sink)
    and the window are left out. Tokens are numbered by these pages as well.

    Parameters
    ----------
    indptr, values : Buffer
        ``values[indptr[b] : indptr[b + 1]]`` are the pages of sequence b.
    info : Buffer
        ``(batch,)``: tokens in the last page. With a sliding window ``(3, batch)``: these, the
        first token of the window, and the tokens of the sink.
    b : int32 expression
        The number of the sequence.
    page_size : int
        Tokens of a page.
    sliding_window : bool

    Attributes
    ----------
    begin : int32 scalar
        Where its pages begin in ``values``.
    count : int32 scalar
        Its pages; 0 without keys.
    length : int32 scalar
        Its tokens.
    sink : int32 scalar
        Its first tokens, which every query sees; with a sliding window only.
    """

    def __init__(
        self, indptr: Any, values: Any, info: Any, b: Any, page_size: int, sliding_window: bool
    ) -> None:
        self._values, self._sliding = values, sliding_window
        self.begin = named_scalar(indptr[b])
        self._last = named_scalar(indptr[b + 1] - 1)
        count = self._last + 1 - self.begin
        in_last = info[0, b] if sliding_window else info[b]
        length = T.Select(count > 0, (count - 1) * page_size + in_last, 0)
        if not sliding_window:
            self.count, self.length = named_scalar(count), named_scalar(length)
            return
        self.sink = named_scalar(info[2, b])
        self._sink_pages = named_scalar(T.truncdiv(self.sink + (page_size - 1), page_size))
        first = T.truncdiv(info[1, b], page_size)
        self._left_out = named_scalar(T.min(T.max(first - self._sink_pages, 0), T.max(count, 0)))
        self._window = named_scalar(info[1, b] - self._left_out * page_size)
        self.count = named_scalar(count - self._left_out)
        self.length = named_scalar(length - self._left_out * page_size)

    def page_of(self, number: Any) -> Any:
        """The page of a number; the last one behind the end, some page before the first."""
        return self._values[self.place_of(number)]

    def place_of(self, number: Any) -> Any:
        """Where the page of a number stands in ``values``."""
        place = self.begin + number
        if self._sliding:
            place += T.Select(number < self._sink_pages, 0, self._left_out)
        return T.max(T.min(place, self._last), 0)

    def hides(self, first: Any, count: int) -> Any:
        """Whether a query may not see all of these tokens."""
        behind = first + count > self.length
        if not self._sliding:
            return behind
        return T.Or(behind, T.And(first < self._window, first + count > self.sink))

    def sees(self, token: Any) -> Any:
        """Whether a query sees a token."""
        if not self._sliding:
            return token < self.length
        return T.And(token < self.length, T.Or(token < self.sink, token >= self._window))

    def hidden(self) -> Any:
        """Tokens between the sink and the window, which no query sees."""
        return T.max(self._window - self.sink, 0) if self._sliding else 0


def rows_of_block(
    block: Any, count: int, page_size: int, row_of: Callable[[Any], Any]
) -> list[Any]:
    """Where the parts of a block of ``count`` tokens begin, each in a page of its own.

    ``row_of(number)`` is the row of the first token of a page, by the page's number in a sequence.
    A block is one part if a page has several blocks.
    """
    pages_a_block, blocks_a_page = max(1, count // page_size), max(1, page_size // count)
    if blocks_a_page == 1:
        numbers = [block * pages_a_block + number for number in range(pages_a_block)]
        return [named_scalar(row_of(number)) for number in numbers]
    known = T.max(block, 0)
    within = T.truncmod(known, blocks_a_page) * count
    return [named_scalar(row_of(T.truncdiv(known, blocks_a_page)) + within)]


def check_pages(page_size: int, keys: int) -> None:
    """Raise unless TMA fills a step of so many keys from whole pages, or parts of one.

    Raises
    ------
    IllegalCombination
    """
    if page_size < 1 or page_size % ATOM_ROWS or (keys % page_size and page_size % keys):
        raise IllegalCombination(
            f"page_size is {page_size}; TMA fills a step of {keys} keys from pages of multiples of "
            f"{ATOM_ROWS} tokens that divide {keys}, or are multiples of it."
        )
