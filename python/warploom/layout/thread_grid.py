"""Tiles in registers where no MMA says which thread holds which element: a grid of threads.

The tensor core prescribes the fragments of its operands and results
(:mod:`warploom.layout.fragment`). All other tiles may be spread over threads in any way. Here
neighbours of a row lie with one thread, as many as one access of memory moves; the next neighbours
lie with the next thread, so that a warp accesses memory that lies together; and as many threads
share a row as its length is worth.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.layout import Axis, Iter, TileLayout

from warploom.errors import IllegalCombination


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True)
class ThreadGrid:
    """The threads of a CTA as rows and columns of a tile: thread ``row * across + column``.

    Attributes
    ----------
    down : int
        Rows of a tile that threads hold at a time.
    across : int
        Threads that share a row.
    vector : int
        Neighbours of a row that a thread holds.

    Raises
    ------
    IllegalCombination
        If one of them is no power of two.

    Examples
    --------
    >>> ThreadGrid(down=4, across=32, vector=4).padded(6, 1000)
    (8, 1024)
    """

    down: int
    across: int
    vector: int

    def __post_init__(self) -> None:
        for name in ("down", "across", "vector"):
            if not _is_power_of_two(getattr(self, name)):
                raise IllegalCombination(
                    f"A grid of threads has powers of two, got {name}={getattr(self, name)}."
                )

    @property
    def threads(self) -> int:
        """Threads of the grid."""
        return self.down * self.across

    @property
    def columns(self) -> int:
        """Columns that the threads of a row hold at a time."""
        return self.across * self.vector

    def padded(self, rows: int, columns: int) -> tuple[int, int]:
        """The extents of the smallest tile of whole rounds that holds one of these extents."""
        return -(-rows // self.down) * self.down, -(-columns // self.columns) * self.columns

    def matrix(self, rows: int, columns: int) -> TileLayout:
        """A tile of padded extents; a thread's registers go along its rows."""
        rounds = columns // self.columns
        return TileLayout.from_iters([
            Iter(rows // self.down, rounds * self.vector, "m"),
            Iter(self.down, self.across, Axis.tx),
            *self._columns(rounds),
        ])  # fmt: skip

    def along_rows(self, rows: int) -> TileLayout:
        """A vector of padded extent with an element for each row, which all its threads hold."""
        shard = [Iter(rows // self.down, 1, "m"), Iter(self.down, self.across, Axis.tx)]
        return TileLayout.from_iters(shard, [Iter(self.across, 1, Axis.tx)])

    def along_columns(self, columns: int) -> TileLayout:
        """A vector of padded extent with an element for each column; all rows have it."""
        same = [Iter(self.down, self.across, Axis.tx)]
        return TileLayout.from_iters(self._columns(columns // self.columns), same)

    def everywhere(self, dimensions: int) -> TileLayout:
        """One element, of which every thread has a copy."""
        single = [Iter(1, 1, "m") for _ in range(dimensions)]
        return TileLayout.from_iters(single, [Iter(self.threads, 1, Axis.tx)])

    def _columns(self, rounds: int) -> list[Iter]:
        return [
            Iter(rounds, self.vector, "m"),
            Iter(self.across, 1, Axis.tx),
            Iter(self.vector, 1, "m"),
        ]
