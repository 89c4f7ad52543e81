"""Which rows of which group a tile has, where only the device knows how many rows groups have.

Tiles begin where a group does, and have slots, group after group: those of all groups follow each
other without a gap, so that CTAs which take slots in turn get as many tiles. What follows the last
are slots of no rows. A walk over the groups finds that of a slot, with no table that the host, or
another kernel, would have to make.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.errors import IllegalCombination

#: Dtypes of the first rows of groups.
INDICES = ("int32", "int64")


@T.meta_class
class Slot:
    """The tile of a slot; :meth:`find` sets what it is.

    Parameters
    ----------
    indptr : Buffer
        ``(groups + 1,)``: the first row of each group, ascending from 0, and the end of the last.
    groups : int
    rows : int
        Of a tile.

    Attributes
    ----------
    group : int32 scalar
        Whose tile it is.
    row, count : int32 scalars
        Its first row, and how many belong to the group, at most ``rows``; none if 0 or less.
    """

    def __init__(self, indptr: Any, groups: int, rows: int) -> None:
        self._indptr, self._groups, self._rows = indptr, groups, rows
        self.group = T.local_scalar("int32")
        self.row = T.local_scalar("int32")
        self.count = T.local_scalar("int32")
        # The first slot of the group, and of the one behind it.
        self._first = T.local_scalar("int32")
        self._next = T.local_scalar("int32")

    @T.inline
    def find(self, slot):
        """The last group that begins at the slot or before it, and its rows."""
        self.group = 0
        self._first = 0
        self._next = 0
        for g in T.serial(self._groups):
            if self._next <= slot:
                self.group = g
                self._first = self._next
            size: T.let = T.cast(self._indptr[g + 1] - self._indptr[g], "int32")
            self._next = self._next + T.truncdiv(size + (self._rows - 1), self._rows)
        self.row = T.cast(self._indptr[self.group], "int32")
        self.row = self.row + (slot - self._first) * self._rows
        self.count = T.min(
            T.cast(self._indptr[self.group + 1], "int32") - self.row, self._rows
        )


def slots(rows: Any, groups: int, tile_rows: int) -> Any:
    """How many slots groups of so many rows in all have."""
    return T.truncdiv(rows, tile_rows) + groups


def check_groups(groups: int, indptr_dtype: str) -> None:
    """Check the arguments of a program for groups.

    Raises
    ------
    IllegalCombination
        If there is no group, or the offsets have another dtype.
    """
    if groups < 1:
        raise IllegalCombination(f"groups is {groups}; there must be at least one.")
    if indptr_dtype not in INDICES:
        raise IllegalCombination(
            f"indptr_dtype is {indptr_dtype!r}; it must be one of {', '.join(map(repr, INDICES))}."
        )
