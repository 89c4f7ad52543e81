"""Which tile of which group a CTA has, where only the device knows how many rows groups have.

Tiles of rows begin where a group does. All tiles of all groups stand in a row: group after group,
in each columns of tiles one after the other, and in a column the tiles of all rows, or of as many
as a band has. So CTAs that take them round-robin get as many, and those that run at a time share
columns of the weights, which then come from memory once. A walk over the groups finds the tile of a
number, with no table that the host, or another kernel, would have to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.errors import IllegalCombination
from warploom.schedulers.raster import grouped_tile

#: Dtypes of the first rows of groups.
INDICES = ("int32", "int64")
#: Tiles of rows of a band. With 16 of 128 rows, the CTAs of a wave load as much of X as of W.
BAND = 16
#: Groups up to which threads keep the sizes of all in registers, from tile to tile (nvcc does so
#: with 64, too, and ptxas spills 580 bytes); and of more groups, iterations of the walk whose loads
#: are issued together.
_HELD_GROUPS, _UNROLLED = 16, 8
#: How kernels with slots are launched. Early, one after the other took 4 to 18 % longer with 8
#: groups, and from 0.7 % less to 2 % more with 64 (H200, 2026-11-23 00:40).
_LAUNCH = {"pdl": False}


def band_and_hints(hints: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Tiles of rows of a band, which the hint ``group`` says, and the hints of the kernel."""
    others = dict(hints)
    band = others.pop("group", BAND)
    if others.get("persistent") is not False:
        others["raster"] = "rows"  # the tiles are in order already
    return band, {**_LAUNCH, **others}


@T.meta_class
class Slot:
    """The tile of a number; :meth:`find` sets its group, row and column.

    Parameters
    ----------
    indptr : Buffer
        ``(groups + 1,)``: the first row of each group, ascending from 0, and the end of the last.
    groups : int
    rows : int
        Of a tile.
    columns : int
        Tiles, or clusters of them, side by side.
    band : int
        Tiles of rows that are visited together, column after column.

    Attributes
    ----------
    group : int32 scalar
        Whose tile it is.
    row, count : int32 scalars
        Its first row, and how many belong to the group, at most ``rows``; 0 behind the last tile.
    column : int32 scalar
        From 0 to ``columns - 1``.
    """

    def __init__(
        self, indptr: Any, groups: int, rows: int, columns: int, band: int = BAND
    ) -> None:
        self._indptr, self._groups, self._rows = indptr, groups, rows
        self._columns, self._band = columns, band
        self._unroll = None if groups <= _HELD_GROUPS else _UNROLLED
        self.group = T.local_scalar("int32")
        self.row = T.local_scalar("int32")
        self.count = T.local_scalar("int32")
        self.column = T.local_scalar("int32")
        # The first number of the group, and the first behind all groups so far.
        self._first = T.local_scalar("int32")
        self._next = T.local_scalar("int32")

    def _height(self, group: Any) -> Any:
        """Tiles of rows of a group. Unsigned numbers spare the division the care for signs."""
        size = T.cast(self._indptr[group + 1] - self._indptr[group], "uint32")
        return T.cast(T.truncdiv(size + T.uint32(self._rows - 1), T.uint32(self._rows)), "int32")

    @T.inline
    def find(self, number):
        """The last group that begins at the number or before it, and the tile in it."""
        self.group = 0
        self._first = 0
        self._next = 0
        for g in T.serial(self._groups, unroll=self._unroll):
            if self._next <= number:
                self.group = g
                self._first = self._next
            self._next = self._next + self._height(g) * self._columns
        # Numbers behind the last tile are given one that exists, of no rows.
        height: T.let = T.max(self._height(self.group), 1)
        within: T.let = T.min(number - self._first, height * self._columns - 1)
        y, x = T.meta_var(grouped_tile(within, height, self._columns, self._band))
        self.column = x
        self.row = T.cast(self._indptr[self.group], "int32") + y * self._rows
        left: T.let = T.cast(self._indptr[self.group + 1], "int32") - self.row
        self.count = T.Select(number < self._next, T.min(left, self._rows), 0)

    @T.inline
    def store(self, C, out, first):
        """The tile's rows that belong to the group, to the columns from ``first`` on."""
        columns = T.meta_var(int(out.shape[1]))
        # TMA stores whole tiles; what it cannot leave out are rows of the next group.
        if self.count == self._rows:
            Tx.cta.copy(C[self.row : self.row + self._rows, first : first + columns], out)
        else:
            Tx.cta.copy(
                C[self.row : self.row + self.count, first : first + columns],
                out[0 : self.count, 0:columns],
            )


def slots(rows: Any, groups: int, tile_rows: int) -> Any:
    """How many tiles of rows groups of so many rows in all have, at most; each has a row."""
    return T.min(rows, T.truncdiv(rows, tile_rows) + groups)


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
