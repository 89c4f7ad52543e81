"""Which keys of a sequence its queries see, for the prefill programs.

A mask has ``begin(query)``, ``end(query)`` and ``whole(query)``, which ascend with the query: it
sees none of the keys before ``begin``, none from ``end`` on, and all of the first ``whole`` keys.
``sees(query, key)`` says it of each key. Numbers may be below 0 or above that of the keys.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.programs.kv_pages import SequencePages, named_scalar


@T.meta_class
class CausalMask:
    """All keys, or those up to a query's own place; the last query has the last key.

    Parameters
    ----------
    causal : int32 expression
        Above 0 for the latter.
    queries, keys : int32 expression
        How many there are.
    """

    def __init__(self, causal: Any, queries: Any, keys: Any) -> None:
        self._keys = keys
        self._ahead = named_scalar(T.Select(causal > 0, keys - queries, keys))

    def begin(self, query: Any) -> Any:
        return 0

    def end(self, query: Any) -> Any:
        return T.min(query + 1 + self._ahead, self._keys)

    whole = end

    def sees(self, query: Any, key: Any) -> Any:
        return T.And(key < self._keys, key <= query + self._ahead)


@T.meta_class
class SlidingMask:
    """The last keys of a window that ends with each query, whose newest keys are not in the cache.

    The cache holds the tokens before the queries. As in TVM's kernel, query i sees the last
    ``size - 1 - i`` of them where the attention is causal, and otherwise all that were kept.

    Parameters
    ----------
    causal : int32 expression
    pages : SequencePages
        With a sliding window.
    size : int
        Tokens of the window.
    """

    def __init__(self, causal: Any, pages: SequencePages, size: int) -> None:
        self._causal, self._pages, self._size = causal, pages, size
        self._hidden = named_scalar(pages.hidden())
        self._seen = named_scalar(pages.length - self._hidden)

    def _place(self, query: Any) -> Any:
        """The number of the first token that a query sees, if it is causal, among those seen."""
        return T.max(self._seen - T.max(self._size - 1 - query, 0), 0)

    def _first(self, query: Any) -> Any:
        """The first token that a query sees, if it is causal; those of the sink are older."""
        place = self._place(query)
        return T.Select(place < self._pages.sink, place, place + self._hidden)

    def begin(self, query: Any) -> Any:
        return T.Select(self._causal > 0, self._first(query), 0)

    def end(self, query: Any) -> Any:
        return self._pages.length

    def whole(self, query: Any) -> Any:
        hidden = T.Or(self._causal > 0, self._pages.hides(0, self._pages.length))
        return T.Select(hidden, 0, self._pages.length)

    def sees(self, query: Any, key: Any) -> Any:
        # Not ``begin``: TVM simplifies a comparison with choices, of each key, for long.
        place, hidden = self._place(query), self._hidden
        late = T.Select(place < self._pages.sink, key >= place, key >= place + hidden)
        return T.And(self._pages.sees(key), T.Or(self._causal <= 0, late))


@T.meta_class
class TreeMask:
    """The keys before a tree of tokens, and in the tree a token's ancestors and itself.

    The last queries are the last tokens of the tree, the last keys are the tree. A token with the
    range ``(begin, end)`` of an order of the tree is an ancestor of those that begin in its range.

    Parameters
    ----------
    order : Buffer
        ``(tokens, 2)`` of int32: the ranges.
    indptr : Buffer
        ``(batch + 1,)``: where the trees of sequences begin.
    b, queries, keys : int32 expression
        The sequence, and how many queries and keys it has.
    """

    def __init__(self, order: Any, indptr: Any, b: Any, queries: Any, keys: Any) -> None:
        self._order, self._keys = order, keys
        self._end = named_scalar(indptr[b + 1])
        # Keys before the tree, and what query 0 and key 0 are in the order.
        self._before = named_scalar(keys - (self._end - indptr[b]))
        self._query, self._key = self._end - queries, self._end - keys

    def _range(self, token: Any, which: int) -> Any:
        """An end of a range; that of some token for those that are not in the tree."""
        last = self._order.shape[0] - 1  # loads are seen to be inside, and need no condition
        return self._order[T.max(T.min(token, last), 0), which]

    def begin(self, query: Any) -> Any:
        return 0

    def end(self, query: Any) -> Any:
        return self._keys

    def whole(self, query: Any) -> Any:
        return self._before

    def sees(self, query: Any, key: Any) -> Any:
        own = self._range(self._query + query, 0)
        ancestor, end = (self._range(self._key + key, which) for which in range(2))
        related = T.And(own >= ancestor, own < end)
        return T.And(key < self._keys, T.Or(key < self._before, related))
