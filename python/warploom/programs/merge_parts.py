"""Adds the parts of attention that several CTAs have computed for one query: a kernel by hand.

Each part is a mean of values, weighted by the softmax of its keys alone, and the log2 of its
denominator (lse). The mean of all keys is the mean of the parts, weighted by the softmax of their
lse; so a part may itself be a sum of parts.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

#: Threads of a CTA.
THREADS = 256
#: CTAs of the grid, at most: two for each SM. More of them would hold back the kernel behind this
#: one, whose CTAs begin where these have ended, or leave room.
_MOST_CTAS = 264
#: Elements that a thread loads at a time: 16 bytes.
_VECTOR = 4
#: Parts of which a thread loads its elements before it adds the first of them.
_AHEAD = 4
#: Smaller than every lse.
_NOTHING = -1e30
#: Elements of 16 bits in a word.
_HALVES = 2


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
        ``(rows, elements)`` of 16 bits, and ``(rows,)`` of float32. A thread computes 4 elements,
        so there are up to 1024 of them.
    """

    def __init__(self, parts: Any, part_lse: Any, out: Any, lse: Any) -> None:
        self._parts, self._part_lse, self._out, self._lse = parts, part_lse, out, lse
        self._width = int(out.shape[1])
        # Threads that load one part together, and how many such groups a CTA has.
        self._lanes = self._width // _VECTOR
        self.groups = _groups(self._width)
        self._value = T.alloc_buffer((_VECTOR,), "float32", scope="local")
        #: The largest lse so far, and the sum of the weights as shares of its weight.
        self._most = T.alloc_buffer((1,), "float32", scope="local")
        self._total = T.alloc_buffer((1,), "float32", scope="local")
        self._ahead = T.alloc_buffer((_AHEAD * _VECTOR,), "float32", scope="local")
        self._ahead_lse = T.alloc_buffer((_AHEAD,), "float32", scope="local")
        self._rounded = T.alloc_buffer((_VECTOR,), out.dtype, scope="local")

    def group(self, thread: Any) -> Any:
        """The group of a thread; that of threads which are left over is none of the groups."""
        return T.truncdiv(thread, self._lanes)

    @T.inline
    def merge(self, slot, count, column, row, thread):
        """The sum of so many parts from a slot on, in one column, by all threads of the CTA."""
        sums = T.alloc_buffer((self.groups, self._width), "float32", scope="shared")
        largest = T.alloc_buffer((self.groups,), "float32", scope="shared")
        totals = T.alloc_buffer((self.groups,), "float32", scope="shared")
        group: T.let = self.group(thread)
        first: T.let = T.truncmod(thread, self._lanes) * _VECTOR
        if group < self.groups:
            self._gather(slot + group, count - group, self.groups, column, first)
            for v in T.vectorized(_VECTOR):
                sums[group, first + v] = self._value[v]
            if first == 0:
                largest[group] = self._most[0]
                totals[group] = self._total[0]
        T.cuda.cta_sync()
        if group == 0:
            self._most[0] = largest[0]
            for g in T.serial(self.groups):
                self._most[0] = T.max(self._most[0], largest[g])
            self._total[0] = T.float32(0)
            for v in T.vectorized(_VECTOR):
                self._value[v] = T.float32(0)
            for g in T.serial(self.groups):
                scale: T.let = T.exp2(largest[g] - self._most[0])
                self._total[0] = self._total[0] + totals[g] * scale
                for v in T.unroll(_VECTOR):
                    self._value[v] = self._value[v] + sums[g, first + v] * scale
            self._store(row, first)
        T.cuda.cta_sync()

    @T.inline
    def merge_alone(self, slot, count, column, row, thread):
        """The same by one group of threads, which waits for no other one."""
        first: T.let = T.truncmod(thread, self._lanes) * _VECTOR
        self._gather(slot, count, 1, column, first)
        self._store(row, first)

    @T.inline
    def _gather(self, slot, count, step, column, first):
        """What a thread has of every ``step``-th of so many parts from a slot on."""
        self._most[0] = T.float32(_NOTHING)
        self._total[0] = T.float32(0)
        for v in T.vectorized(_VECTOR):
            self._value[v] = T.float32(0)
        last: T.let = T.truncdiv(count - 1, step) * step
        for n in T.serial(T.truncdiv(count + (step * _AHEAD - 1), step * _AHEAD)):
            # Behind the last part it is loaded again, with no weight: loads under no condition are
            # in flight together.
            for i in T.unroll(_AHEAD):
                own: T.let = slot + T.min((n * _AHEAD + i) * step, last)
                for v in T.vectorized(_VECTOR):
                    self._ahead[i * _VECTOR + v] = self._parts[own, column, first + v]
                self._ahead_lse[i] = self._part_lse[own, column]
            for i in T.unroll(_AHEAD):
                if (n * _AHEAD + i) * step >= count:
                    self._ahead_lse[i] = T.float32(_NOTHING)
            larger: T.float32 = self._most[0]
            for i in T.unroll(_AHEAD):
                larger = T.max(larger, self._ahead_lse[i])
            shrink: T.let = T.exp2(self._most[0] - larger)
            self._most[0] = larger
            self._total[0] = self._total[0] * shrink
            for v in T.unroll(_VECTOR):
                self._value[v] = self._value[v] * shrink
            for i in T.unroll(_AHEAD):
                weight: T.let = T.exp2(self._ahead_lse[i] - larger)
                self._total[0] = self._total[0] + weight
                for v in T.unroll(_VECTOR):
                    self._value[v] = self._value[v] + self._ahead[i * _VECTOR + v] * weight

    @T.inline
    def _store(self, row, first):
        words = T.decl_buffer(
            (_VECTOR // _HALVES,), "uint32", data=self._rounded.data, scope="local"
        )
        out_words = T.decl_buffer(
            (self._out.shape[0], self._width // _HALVES), "uint32", data=self._out.data
        )
        for v in T.unroll(_VECTOR):
            self._rounded[v] = T.cast(self._value[v] / self._total[0], self._out.dtype)
        for w in T.vectorized(_VECTOR // _HALVES):
            out_words[row, T.truncdiv(first, _HALVES) + w] = words[w]
        if first == 0:
            self._lse[row] = self._most[0] + T.log2(self._total[0])


@T.meta_class
class PartsOfSequences(Parts):
    """The parts of sequences of one query: chunk c of sequence b is in slot ``begin // chunk + b
    + c``, and a column is a head.

    A CTA adds the parts of one head, if there are few heads of all queries, as of one long
    sequence. Of more heads, each group of threads adds the parts of another one; so the sequences
    of a large batch, most of which have one chunk and no parts, cost few CTAs.

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
        self._chunk, self.rows, self._heads = chunk, out.shape[0], int(parts.shape[1])
        #: Whether a CTA has one head.
        self.few = _are_few(self.rows)

    def rounds(self, ctas: Any) -> Any:
        """Rounds in which the groups of all CTAs have all heads."""
        together = T.max(ctas * self.groups, 1)
        return T.truncdiv(self.rows + (together - 1), together)

    def slot(self, seq: Any, row: Any) -> Any:
        """The slot of the first part of a head of a query."""
        return T.truncdiv(seq.begin, self._chunk) + T.truncdiv(row, self._heads)

    def count(self, seq: Any) -> Any:
        """The parts of a sequence."""
        return T.truncdiv(seq.count + (self._chunk - 1), self._chunk)

    def column(self, row: Any) -> Any:
        """The head of a row."""
        return T.truncmod(row, self._heads)


def ctas_of_sequences(rows: Any, width: int, is_cut: Any) -> Any:
    """CTAs of a kernel with :class:`PartsOfSequences`.

    Parameters
    ----------
    rows : int32 expression
        Heads of all queries.
    width : int
        Elements of a head.
    is_cut : bool expression
        Whether any sequence can have more than one chunk; otherwise there are no CTAs.
    """
    groups = _groups(width)
    shared = T.min(T.truncdiv(rows + (groups - 1), groups), _MOST_CTAS)
    return T.if_then_else(is_cut, T.if_then_else(_are_few(rows), rows, shared), 0)


def _are_few(rows: Any) -> Any:
    """Whether each of the heads has a CTA."""
    return rows <= _MOST_CTAS


def _groups(width: int) -> int:
    """Groups of the threads of a CTA, of which each loads one part of so many elements."""
    return THREADS // (width // _VECTOR)
