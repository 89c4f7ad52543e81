"""Regions whose rows are several dimensions of a tensor, and parts of them.

The rows of a tile may be the pixels of a rectangle of an image: in row-major order, the dimension
of the rows of the rectangle first. A CTA with some of these rows has some of each dimension.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from warploom.tile import ir

Ranges = list[tuple[Any, Any]]


def row_dimensions(ranges: Ranges, rows: int) -> list[int] | None:
    """The dimensions of a region that are the rows of a tile of ``rows`` rows.

    None if there are none: they must be its first ones, apart from those of extent 1.
    """
    dimensions: list[int] = []
    for dimension, (_, extent) in enumerate(ranges):
        if ir.is_constant(extent, 1):
            continue
        if not isinstance(extent, tirx.IntImm):
            return None
        dimensions.append(dimension)
        if math.prod(int(ranges[d][1]) for d in dimensions) >= rows:
            break
    return dimensions if math.prod(int(ranges[d][1]) for d in dimensions) == rows else None


def part_of_rows(ranges: Ranges, dimensions: list[int], part: Any, rows: int) -> Ranges | None:
    """The rows from ``part * rows`` on, as many as ``rows``, of a region.

    Parameters
    ----------
    dimensions : list of int
        Those of :func:`row_dimensions`.
    part : int or Expr
        Which part; an expression only where parts are whole in all dimensions but the first.

    Returns
    -------
    list of (start, extent) or None
        The region; None if that part is no box.
    """
    result = list(ranges)
    for number, dimension in enumerate(dimensions):
        start, _ = ranges[dimension]
        inner = math.prod(int(ranges[d][1]) for d in dimensions[number + 1 :])
        if rows % inner == 0:
            result[dimension] = (start + part * (rows // inner), rows // inner)
            return result
        if inner % rows or not isinstance(part, int):
            return None
        many = inner // rows
        result[dimension] = (start + part // many, 1)
        part %= many
    return None
