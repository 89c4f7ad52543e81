"""Adds the parts of attention that several CTAs have computed for one query: a kernel by hand.

Each part is a mean of values, weighted by the softmax of its keys alone, and the log2 of its
denominator (lse). The mean of all keys is the mean of the parts, weighted by the softmax of their
lse; so a part may itself be a sum of parts.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

#: Threads of a CTA, which adds the parts of one head of one query at a time.
THREADS = 128
#: CTAs of the grid, at most: some for each SM, as each waits for memory most of the time.
MOST_CTAS = 2048
#: Elements that a thread loads at a time: 16 bytes.
_VECTOR = 4
#: Smaller than every lse.
_NOTHING = -1e30


@T.meta_class
class Parts:
    """Parts in a workspace, and where their sums belong.

    Parameters
    ----------
    parts : Buffer
        ``(slots, columns, elements)`` of float32.
    part_lse : Buffer
        ``(slots, columns)`` of float32.
    out, lse : Buffer
        ``(rows, elements)``, and ``(rows,)`` of float32. A thread computes 4 elements, so there are
        up to 512 of them.
    """

    def __init__(self, parts: Any, part_lse: Any, out: Any, lse: Any) -> None:
        self._parts, self._part_lse, self._out, self._lse = parts, part_lse, out, lse
        self._width = int(out.shape[1])
        # Threads that load one part together, and how many parts are loaded at a time.
        self._lanes = self._width // _VECTOR
        self._groups = THREADS // self._lanes

    @T.inline
    def merge(self, slot, count, column, row, thread):
        """The sum of so many parts from a slot on, in one column, by all threads of the CTA."""
        sums = T.alloc_buffer((self._groups, self._width), "float32", scope="shared")
        largest = T.alloc_buffer((self._groups,), "float32", scope="shared")
        totals = T.alloc_buffer((self._groups,), "float32", scope="shared")
        value = T.alloc_buffer((_VECTOR,), "float32", scope="local")
        part = T.alloc_buffer((_VECTOR,), "float32", scope="local")
        group: T.let = T.truncdiv(thread, self._lanes)
        first: T.let = T.truncmod(thread, self._lanes) * _VECTOR
        most: T.float32 = T.float32(_NOTHING)
        total: T.float32 = T.float32(0)
        if group < self._groups:
            for v in T.vectorized(_VECTOR):
                value[v] = T.float32(0)
            for n in T.serial(T.truncdiv(count - group + (self._groups - 1), self._groups)):
                own: T.let = slot + group + n * self._groups
                here: T.let = self._part_lse[own, column]
                for v in T.vectorized(_VECTOR):
                    part[v] = self._parts[own, column, first + v]
                larger: T.let = T.max(most, here)
                shrink: T.let = T.exp2(most - larger)
                weight: T.let = T.exp2(here - larger)
                most = larger
                total = total * shrink + weight
                for v in T.unroll(_VECTOR):
                    value[v] = value[v] * shrink + part[v] * weight
            for v in T.vectorized(_VECTOR):
                sums[group, first + v] = value[v]
            if first == 0:
                largest[group] = most
                totals[group] = total
        T.cuda.cta_sync()
        if group == 0:
            most = largest[0]
            for g in T.unroll(self._groups):
                most = T.max(most, largest[g])
            total = T.float32(0)
            for v in T.vectorized(_VECTOR):
                value[v] = T.float32(0)
            for g in T.unroll(self._groups):
                scale: T.let = T.exp2(largest[g] - most)
                total = total + totals[g] * scale
                for v in T.unroll(_VECTOR):
                    value[v] = value[v] + sums[g, first + v] * scale
            for v in T.unroll(_VECTOR):
                self._out[row, first + v] = T.cast(value[v] / total, self._out.dtype)
            if first == 0:
                self._lse[row] = most + T.log2(total)
        T.cuda.cta_sync()


@T.meta_class
class PartsOfSequences(Parts):
    """The parts of sequences of one query: chunk c of sequence b is in slot ``begin // chunk + b
    + c``, and a column is a head.

    Parameters
    ----------
    parts, part_lse : Buffer
        As those of :class:`Parts`.
    out, lse : Buffer
        ``(batch * heads, elements)``, and ``(batch * heads,)`` of float32.
    chunk : int32 expression
        Pages of a chunk.
    """

    def __init__(self, parts: Any, part_lse: Any, out: Any, lse: Any, chunk: Any) -> None:
        super().__init__(parts, part_lse, out, lse)
        self._chunk, self._rows, self._heads = chunk, out.shape[0], int(parts.shape[1])

    def ctas(self, pages: Any) -> Any:
        """CTAs of the kernel: none where no sequence has more than one chunk."""
        return T.if_then_else(pages > self._chunk, T.min(self._rows, MOST_CTAS), 0)

    def rows_of(self, cta: Any) -> Any:
        """Heads of queries that a CTA looks at: every so many-th."""
        return T.truncdiv(self._rows - cta + (MOST_CTAS - 1), MOST_CTAS)

    @T.inline
    def add(self, seq, row, thread):
        """The sum of the parts of one head of one query, by all threads of the CTA."""
        slot: T.let = T.truncdiv(seq.begin, self._chunk) + T.truncdiv(row, self._heads)
        count: T.let = T.truncdiv(seq.count + (self._chunk - 1), self._chunk)
        self.merge(slot, count, T.truncmod(row, self._heads), row, thread)
