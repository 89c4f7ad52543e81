"""How threads share the rows of a function: choices as data, and the one way they are made.

A thread loads and stores whole vectors of 16 bytes. A row that is summed stays with one warp, or
one CTA, in registers from the first pass over it to the last.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.errors import IllegalCombination
from warploom.target import SM90A

#: Bits that a thread loads or stores at a time.
VECTOR_BITS = 128
WARP = 32
#: Threads of a CTA that shares no row, and warps of one whose warps have a row each.
MAP_THREADS, ROW_WARPS = 256, 4
#: Threads that share a row, as long as they have enough to do: four such CTAs fill an SM.
_MOST_THREADS = 512


@dataclass(frozen=True)
class RowPlan:
    """Vectors, threads and rows of a kernel.

    Attributes
    ----------
    vector : int
        Elements of a row that a thread loads and stores together.
    columns : int
        Elements of a row.
    per_thread : int
        Vectors of a row that a thread has.
    threads : int
        Threads that share a row; 0 where rows are not summed and threads take vectors of any.
    rows : int
        Rows of a CTA at a time; more than 1 only for warps.
    """

    vector: int
    columns: int
    per_thread: int = 1
    threads: int = 0
    rows: int = 1

    def __post_init__(self) -> None:
        if self.columns % self.vector:
            raise IllegalCombination(
                f"Rows of {self.columns} elements have no whole number of vectors of {self.vector}."
            )
        if self.threads % WARP or self.threads > SM90A.threads_per_block:
            raise IllegalCombination(
                f"threads = {self.threads}: a row is shared by whole warps, of at most "
                f"{SM90A.threads_per_block} threads."
            )
        if self.threads and self.threads * self.per_thread * self.vector < self.columns:
            raise IllegalCombination(
                f"{self.threads} threads with {self.per_thread} vectors of {self.vector} elements "
                f"do not reach over rows of {self.columns}."
            )
        if self.rows > 1 and self.threads != WARP:
            raise IllegalCombination(f"rows = {self.rows}: only warps have a row each.")

    @property
    def vectors(self) -> int:
        """Vectors of a row."""
        return self.columns // self.vector

    @property
    def block(self) -> int:
        """Threads of a CTA."""
        return self.threads * self.rows or MAP_THREADS

    @property
    def is_even(self) -> bool:
        """Whether all threads of a row have the same number of vectors."""
        return self.threads * self.per_thread == self.vectors

    @classmethod
    def of(cls, columns: int, bits: int, summed: bool, per_thread: int = 8) -> RowPlan:
        """The plan for rows of a length.

        Parameters
        ----------
        columns : int
            Elements of a row.
        bits : int
            Size of the smallest elements that are loaded or stored along it.
        summed : bool
            Whether something is summed along rows.
        per_thread : int
            Vectors that a thread has registers for.

        Raises
        ------
        IllegalCombination
            If rows have no whole vectors of 4 bytes or more, or too many for the threads of a CTA.
        """
        widths = (VECTOR_BITS // bits, VECTOR_BITS // bits // 2, VECTOR_BITS // bits // 4)
        vector = next((width for width in widths if width and columns % width == 0), None)
        if vector is None:
            raise IllegalCombination(
                f"Rows of {columns} elements of {bits} bits are no whole number of "
                f"{VECTOR_BITS // 32}-byte words; pad them."
            )
        if not summed:
            return cls(vector, columns)
        vectors = columns // vector
        for count in range(1, per_thread + 1):
            threads = -(-vectors // count // WARP) * WARP
            if threads <= _MOST_THREADS:
                rows = ROW_WARPS if threads == WARP else 1
                return cls(vector, columns, count, threads, rows)
        raise IllegalCombination(
            f"Rows of {columns} elements do not stay in the registers of {_MOST_THREADS} threads "
            f"with {per_thread} vectors of {vector} each."
        )
