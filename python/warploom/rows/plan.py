"""How threads share the rows of a function: choices as data, and the one way they are made.

A thread loads and stores whole vectors, of 16 bytes where rows allow it. A row that is reduced
stays in registers from the first pass over it to the last: in those of some lanes of a warp, of a
CTA, or of a cluster of CTAs. Only rows that are longer, or of a dynamic length, are read again for
each pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.errors import IllegalCombination
from warploom.target import SM90A

#: Bits that a thread loads or stores at a time, at most.
VECTOR_BITS = 128
WARP = 32
#: Threads of a CTA that shares no row, and of one whose threads share several.
MAP_THREADS, ROW_THREADS = 256, 128
#: Rows of which lanes have one vector each, before the next one of the first row.
ROWS_BESIDE = 8
#: Threads of a CTA that share a row, as long as they have enough to do: four such CTAs fill an SM.
_MOST_THREADS = 512
#: CTAs of a cluster that every GPU launches (CUDA programming guide, "Thread block clusters").
_CLUSTERS = (1, 2, 4, 8)
#: The most elements that a thread has of a row: code is written out for each.
_MOST_ELEMENTS = 64
#: Times the least number of vectors that a lane may have of the row of its warp.
_OF_WARP = 2
#: Vectors that a thread has in flight where it reads a row in a loop.
_LOOPED = 4


@dataclass(frozen=True)
class RowPlan:
    """Vectors, threads and rows of a kernel.

    Attributes
    ----------
    vector : int
        Elements of a row that a thread loads and stores together.
    columns : int or None
        Elements of a row; None if only the launch knows it.
    per_thread : int
        Vectors of a row that a thread has at a time.
    threads : int
        Threads of a CTA that share a row; 0 where rows are not reduced and threads take vectors of
        any.
    rows : int
        Rows of a CTA at a time; more than 1 only for a warp's threads, or fewer.
    cluster : int
        CTAs that share a row.
    looped : bool
        Whether the threads read their row part by part, and again for each reduction.
    points : int
        Neighbouring rows of which a thread computes the same vector, where rows share what a window
        over them reads, or operands lie across the rows.
    across : bool
        Whether a thread reads operands across its rows: vectors of so many ``points``.
    written : bool
        Whether all steps of a window are written out, so that all its loads may be in flight.
    map_threads : int
        Threads of a CTA that shares no row.
    beside : int
        Neighbouring rows whose same vector neighbouring lanes have, where threads share no row.
    """

    vector: int
    columns: int | None
    per_thread: int = 1
    threads: int = 0
    rows: int = 1
    cluster: int = 1
    looped: bool = False
    points: int = 1
    across: bool = False
    written: bool = False
    map_threads: int = MAP_THREADS
    beside: int = 1

    def __post_init__(self) -> None:
        if self.columns is not None and self.threads and self.columns % self.vector:
            raise IllegalCombination(
                f"Rows of {self.columns} elements have no whole number of vectors of {self.vector}."
            )
        whole = self.threads % WARP == 0 or self.threads in (1, 2, 4, 8, 16)
        if not whole or self.threads > SM90A.threads_per_block:
            raise IllegalCombination(
                f"threads = {self.threads}: a row is shared by whole warps of at most "
                f"{SM90A.threads_per_block} threads, or by 1, 2, 4, 8 or 16 lanes."
            )
        if self.points > 1 and self.threads:
            raise IllegalCombination(
                f"points = {self.points}: threads that share a row compute no others."
            )
        if self.beside > 1 and (self.threads or self.points > 1):
            raise IllegalCombination(
                f"beside = {self.beside}: only lanes that share no row, and have one point each, "
                "take rows beside each other."
            )
        if self.rows > 1 and self.threads > WARP:
            raise IllegalCombination(f"rows = {self.rows}: only warps have rows of their own.")
        if self.cluster > 1 and self.threads < WARP:
            raise IllegalCombination(f"cluster = {self.cluster}: CTAs that share a row have warps.")
        if self.threads and not self.looped and self.reach < (self.columns or self.reach + 1):
            raise IllegalCombination(
                f"{self.threads * self.cluster} threads with {self.per_thread} vectors of "
                f"{self.vector} elements do not reach over rows of {self.columns or 'any number'}."
            )

    @property
    def sharing(self) -> int:
        """Threads that share a row."""
        return self.threads * self.cluster

    @property
    def reach(self) -> int:
        """Elements that the threads of a row have at a time."""
        return self.sharing * self.per_thread * self.vector

    @property
    def block(self) -> int:
        """Threads of a CTA."""
        return self.threads * self.rows or self.map_threads

    @property
    def is_even(self) -> bool:
        """Whether all threads of a row have the same number of vectors."""
        return self.reach == self.columns

    def __str__(self) -> str:
        words = []
        if self.threads:
            words.append(f"{self.threads} threads a row")
        if self.cluster > 1:
            words[0] = f"{self.cluster} CTAs of {self.threads} threads a row"
        if self.rows > 1:
            words.append(f"{self.rows} rows a CTA")
        if self.looped:
            words.append("read once for each pass")
        if self.across:
            words.append(f"{self.points} rows a thread, read across")
        elif self.points > 1:
            words.append(f"{self.points} rows a thread")
        if self.beside > 1:
            words.append(f"{self.beside} rows beside each other")
        plural = "" if self.vector == 1 else "s"
        return ", ".join([*words, f"vectors of {self.vector} element{plural}"])

    @classmethod
    def of_map(cls, columns: int | None, vector: int, beside: int = 1) -> RowPlan:
        """The plan for elements that do not depend on each other."""
        return cls(vector, columns, beside=beside)

    @classmethod
    def of(
        cls, columns: int | None, vector: int, per_thread: int = 8, at_least: int = 1
    ) -> RowPlan:
        """The plan for rows that are reduced.

        Parameters
        ----------
        columns : int or None
            Elements of a row; None if only the launch knows it.
        vector : int
            Elements that a thread loads and stores together.
        per_thread : int
            Vectors that a thread has registers for.
        at_least : int
            Vectors that a thread should have, for loads of 16 bytes in flight.
        """
        per_thread = max(1, min(per_thread, _MOST_ELEMENTS // vector))
        at_least = min(at_least, per_thread)
        most = SM90A.threads_per_block
        if columns is None:
            per_thread = min(per_thread, max(_LOOPED, at_least))
            return cls(vector, None, per_thread, ROW_THREADS, looped=True)
        vectors = columns // vector
        for threads in (1, 2, 4, 8, 16, WARP):
            # CTAs of two warps that share a row take longer to launch than to compute it.
            limit = min(at_least * _OF_WARP, per_thread) if threads == WARP else at_least
            if vectors <= threads * limit:
                count = -(-vectors // threads)
                return cls(vector, columns, count, threads, ROW_THREADS // threads)
        for threads_at_most in (_MOST_THREADS, most):
            for cluster in _CLUSTERS:
                for count in range(at_least, per_thread + 1):
                    threads = -(-vectors // (count * cluster) // WARP) * WARP
                    if threads <= threads_at_most:
                        rows = ROW_THREADS // WARP if threads * cluster == WARP else 1
                        count = -(-vectors // (threads * cluster))  # for no thread in vain
                        return cls(vector, columns, count, threads, rows, cluster)
        return cls(vector, columns, min(per_thread, _LOOPED), most, looped=True)

    @classmethod
    def of_products(cls, columns: int | None, vector: int) -> RowPlan:
        """The plan for many sums that are read once, such as matrices times a vector.

        A warp has a row: no warp waits for another one, and each has some vectors in flight.
        """
        lanes = 1 if columns is None else columns // vector
        if columns is not None and lanes <= WARP // 2:
            return cls.of(columns, vector)
        rows = ROW_THREADS // WARP
        if columns is None or lanes > WARP * _LOOPED:
            return cls(vector, columns, _LOOPED, WARP, rows, looped=True)
        return cls(vector, columns, -(-lanes // WARP), WARP, rows)
