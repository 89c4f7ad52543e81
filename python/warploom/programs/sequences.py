"""Which sequence of a batch a CTA computes for, and which of its queries.

Sequences lie one after the other: ``indptr[b] : indptr[b + 1]`` is sequence b. Its tile t, of so
many ``queries``, has the slot ``indptr[b] // queries + b + t``: slots ascend, no two tiles have the
same, and there are ``total // queries + batch`` of them, whatever the lengths. So the host needs no
lengths, and a CTA finds its sequence by bisection. Some slots between two sequences are empty.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.programs.kv_pages import named_scalar

#: Bisection takes so many steps at most: sequences of a batch are fewer than two to that power.
_BITS = 16


def bits_below(count: Any) -> Any:
    """Bits of the numbers below a count, an int32 expression."""
    bits: Any = 0
    for bit in range(_BITS):
        bits = bits + T.cast(count > (1 << bit), "int32")
    return bits


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
        self._b = T.alloc_buffer((1,), "int32", scope="local")
        self.b = self._b[0]

    @T.inline
    def find(self, slot, batch, bits):
        """Find the sequence of a slot; ``bits`` are those of the numbers below the batch."""
        self._b[0] = 0
        for bit in T.serial(bits):
            ahead: T.let = self._b[0] + T.shift_left(1, bits - 1 - bit)
            start: T.let = self._indptr[T.min(ahead, batch)] * self._heads
            before: T.let = T.truncdiv(start, self._queries) + ahead
            if T.And(ahead < batch, before <= slot):
                self._b[0] = ahead

    def place(self, slot: Any) -> None:
        """Set the attributes, behind :meth:`find`."""
        n = self._queries
        self.begin = named_scalar(self._indptr[self.b] * self._heads)
        self.length = named_scalar(self._indptr[self.b + 1] * self._heads - self.begin)
        number = slot - self.b - T.truncdiv(self.begin, n)
        self.first = named_scalar((T.truncdiv(self.length + (n - 1), n) - 1 - number) * n)
