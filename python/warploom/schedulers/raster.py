"""The order in which a persistent grid visits the tiles of C."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import IntImm


def grouped_tile(index: Any, rows: Any, columns: int, group: int) -> tuple[Any, Any]:
    """Row and column of tile ``index`` when ``group`` rows of tiles are visited together.

    Within a group, columns are the slow direction: the CTAs that run at the same time then touch
    few rows of A and few columns of B, which stay in L2. The last group may have fewer rows.

    Parameters
    ----------
    index : int or Expr
        From 0 to ``rows * columns - 1``.
    rows : int or Expr
        Rows of tiles, symbolic where M is.
    columns, group : int
        Columns of tiles, and rows of a group.
    """
    known = int(rows) if isinstance(rows, int | IntImm) else None
    if known is not None:
        group = max(1, min(group, known))
    first = T.truncdiv(index, group * columns) * group
    within = T.truncmod(index, group * columns)
    # Divisions by a number that the compiler knows take no divider, which is slow.
    whole = known is not None and known % group == 0
    height = group if whole else T.min(group, rows - first)
    return first + T.truncmod(within, height), T.truncdiv(within, height)


@T.meta_class
class TileLoop:
    """Walks over the tiles of one cluster: ``first``, ``first + step``, ...

    Attributes
    ----------
    row, column : int32 scalars
        The current tile, valid after :meth:`locate`.
    """

    def __init__(self, rows: Any, columns: int, group: int, first: Any, step: int):
        self.rows, self.columns, self.group = rows, columns, group
        self.step = step
        self.index = T.local_scalar("int32")
        self.row = T.local_scalar("int32")
        self.column = T.local_scalar("int32")
        # Plain emission, not T.inline: parsing an inline costs tens of milliseconds.
        for scalar, value in ((self.index, first), (self.row, 0), (self.column, 0)):
            _set(scalar, value)

    def valid(self) -> Any:
        """Whether the current tile exists."""
        return self.index < self.rows * self.columns

    def locate(self) -> None:
        """Compute :attr:`row` and :attr:`column` of the current tile."""
        row, column = grouped_tile(self.index, self.rows, self.columns, self.group)
        _set(self.row, row)
        _set(self.column, column)

    def advance(self) -> None:
        """Go to this cluster's next tile."""
        _set(self.index, self.index + self.step)


def _set(scalar: Any, value: Any) -> None:
    T.buffer_store(_load(scalar).source, value, [0])


def _load(scalar: Any) -> Any:
    return scalar.scalar if isinstance(scalar, T.scalar_wrapper) else scalar
