"""The order in which a grid visits the tiles of C."""

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
