"""Which sequence of a batch a CTA computes for, and which of its queries.

Sequences lie one after the other: ``indptr[b] : indptr[b + 1]`` is sequence b. Its tile t, of so
many ``queries``, has the slot ``indptr[b] // queries + b + t``: slots ascend, no two tiles have the
same, and there are ``total // queries + batch`` of them, whatever the lengths. So the host needs no
lengths, and a CTA searches for its sequence. Some slots between two sequences are empty.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.programs.kv_pages import named_scalar

#: Where a round of the search looks, beside where the last one ended: loads that do not wait for
#: each other. All together take as long as one, so a round finds three bits, not one.
_PROBES, _BITS = 7, 3
#: Rounds at most: sequences of a batch are at most two to the power of their bits.
_MOST_ROUNDS = 6


def search_rounds(batch: Any) -> Any:
    """Rounds in which a :class:`SequenceSearch` finds a sequence of a batch, an int32 expression.

    Examples
    --------
    >>> [int(search_rounds(T.int32(batch))) for batch in (1, 2, 8, 9, 64, 65)]
    [0, 1, 1, 2, 2, 3]
    """
    rounds: Any = 0
    for number in range(_MOST_ROUNDS):
        rounds = rounds + T.cast(batch > (1 << (number * _BITS)), "int32")
    return rounds


@T.meta_class
class SequenceSearch:
    """The last sequence b of a batch with ``indptr[b] * scale + b * slope < bound``; or else 0.

    Attributes
    ----------
    b : int32 scalar
    """

    def __init__(self) -> None:
        self._b = T.alloc_buffer((1,), "int32", scope="local")
        self.b = self._b[0]

    @T.inline
    def find(self, indptr, batch, rounds, bound, slope=0, scale=1):
        """Find it; ``rounds`` are those of :func:`search_rounds`."""
        self._b[0] = 0
        for number in T.serial(rounds):
            stride: T.let = T.shift_left(1, (rounds - 1 - number) * _BITS)
            passed: T.let = self._passed(indptr, batch, stride, bound, slope, scale)
            self._b[0] = self._b[0] + stride * passed

    def _passed(
        self, indptr: Any, batch: Any, stride: Any, bound: Any, slope: Any, scale: Any
    ) -> Any:
        """How many of the next sequences, ``stride`` apart, are not behind the one that is found.

        Whatever the first of them say, all are loaded. Slots of a long batch have 64 bits.
        """
        passed: Any = 0
        for number in range(1, _PROBES + 1):
            b = self._b[0] + stride * number
            begin = T.cast(indptr[T.min(b, batch)] * scale, "int64")
            before = begin + T.cast(b, "int64") * slope < T.cast(bound, "int64")
            passed = passed + T.cast(b < batch, "int32") * T.cast(before, "int32")
        return passed


@T.meta_class
class QueryTile:
    """The queries of a tile: some of one sequence, the last ones in the first slot.

    A causal tile of the last queries has the most keys. Where such tiles begin first, those that
    end last have little to do.

    Parameters
    ----------
    indptr : Buffer
        ``(batch + 1,)`` of int32.
    queries : int
        Queries of a tile.
    heads : int
        Of each query, if each head is counted as a query of its own.

    Attributes
    ----------
    b : int32 scalar
        The sequence.
    begin, length : int32 scalar
        Where its queries begin, and how many it has.
    first : int32 scalar
        The first query of the tile, in its sequence; negative in a slot without queries.
    """

    def __init__(self, indptr: Any, queries: int, heads: int = 1) -> None:
        self._indptr, self._queries, self._heads = indptr, queries, heads
        self._search = SequenceSearch()
        self.b = self._search.b

    @T.inline
    def find(self, slot, batch, rounds):
        """Find the sequence of a slot; ``rounds`` are those of :func:`search_rounds`."""
        self._search.find(
            self._indptr, batch, rounds, (slot + 1) * self._queries, self._queries, self._heads
        )

    def place(self, slot: Any) -> None:
        """Set the attributes, behind :meth:`find`."""
        n = self._queries
        self.begin = named_scalar(self._indptr[self.b] * self._heads)
        self.length = named_scalar(self._indptr[self.b + 1] * self._heads - self.begin)
        number = slot - self.b - T.truncdiv(self.begin, n)
        self.first = named_scalar((T.truncdiv(self.length + (n - 1), n) - 1 - number) * n)
