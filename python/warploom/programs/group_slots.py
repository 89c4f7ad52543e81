"""Which rows of which group a tile has, where only the device knows how many rows groups have.

Tiles begin where a group does, and groups have slots for tiles: group g those from
``indptr[g] // rows + g`` on, ``rows`` being those of a tile. That is as many as it needs or one
more, it grows with g, and so a few steps of bisection find the group of a slot, with no table that
the host, or another kernel, would have to make.
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
        self._steps = (groups - 1).bit_length()
        self.group = T.local_scalar("int32")
        self.row = T.local_scalar("int32")
        self.count = T.local_scalar("int32")

    @T.inline
    def find(self, slot):
        """Bisect for the group."""
        self.group = 0
        for s in T.serial(self._steps):
            ahead: T.let = T.shift_right(T.int32(1 << self._steps >> 1), s)
            probe: T.let = T.min(self.group + ahead, self._groups - 1)
            if T.truncdiv(T.cast(self._indptr[probe], "int32"), self._rows) + probe <= slot:
                self.group = probe
        self.row = T.cast(self._indptr[self.group], "int32")
        self.row = self.row + (slot - T.truncdiv(self.row, self._rows) - self.group) * self._rows
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
