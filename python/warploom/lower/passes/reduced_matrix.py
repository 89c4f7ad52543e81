"""A region of any dimensions as a matrix for a reduction: a row for each result.

Columns are the elements of a result. Rows and columns count dimensions as memory does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.lower.passes.parts_of_tiles import accumulated, inside
from warploom.tile import ir


def matrix_of(region: TensorRegion, reduced: Collection[int], scope: str) -> Buffer:
    """The matrix of a region with constant extents, without its elements."""
    tile, extents = region.source, [int(extent) for _, extent in ir.ranges(region)]
    shape = [
        math.prod(extent for d, extent in enumerate(extents) if (d in reduced) == columns)
        for columns in (False, True)
    ]
    return tirx.decl_buffer(shape, str(tile.dtype), f"{tile.name}_matrix", scope=scope)


def from_tile(matrix: Buffer, region: TensorRegion, reduced: Collection[int]) -> Stmt:
    """The nest over all of a tile that stores the elements of a region into the matrix."""
    counters = ir.counters(len(region.region))
    within = [place_from(counter, first, -1)
              for counter, (first, _) in zip(counters, ir.ranges(region), strict=True)]  # fmt: skip
    place = [_number(region, within, dimensions) for dimensions in _sides(region, reduced)]
    store = tirx.BufferStore(matrix, region.source[tuple(counters)], place)
    return ir.nest(
        counters, region.source.shape, [ir.when(inside(region, counters), [store])]
    )  # fmt: skip


def into_matrix(matrix: Buffer, region: TensorRegion, reduced: Collection[int]) -> Stmt:
    """The nest over the matrix that reads its elements from a region."""
    counters = ir.counters(2)
    indices = [first for first, _ in ir.ranges(region)]
    for counter, dimensions in zip(counters, _sides(region, reduced), strict=True):
        rest: Any = counter
        wide = [d for d in dimensions if int(ir.ranges(region)[d][1]) != 1]
        for dimension in reversed(wide):
            extent = int(ir.ranges(region)[dimension][1])
            place = rest if dimension == wide[0] else T.truncmod(rest, extent)
            indices[dimension] = place_from(place, indices[dimension])
            rest = T.truncdiv(rest, extent)
    store = tirx.BufferStore(matrix, region.source[tuple(indices)], counters)
    return ir.nest(counters, matrix.shape, [store])


def placed(call: TilePrimitiveCall, total: Buffer) -> Stmt:
    """The nest that puts each result of a reduction, in a vector, in its place.

    Old values take part in the dtype of the vector, so that a result is rounded once.
    """
    to, _, _, accumulate = call.args
    counters = ir.counters(len(to.region))
    places = [place_from(counter, first)
              for counter, (first, _) in zip(counters, ir.ranges(to), strict=True)]  # fmt: skip
    value = total[_number(to, counters, range(len(counters)))]
    old = T.Cast(str(total.dtype), to.source[tuple(places)])
    value = T.Cast(str(to.source.dtype), accumulated(call, old, value, accumulate))
    store = tirx.BufferStore(to.source, value, places)
    return ir.nest(counters, [extent for _, extent in ir.ranges(to)], [store])


def place_from(counter: Any, first: Any, sign: int = 1) -> Any:
    """A place that a counter is ``first`` away from."""
    return counter if ir.is_constant(first, 0) else counter + sign * first


def _sides(region: TensorRegion, reduced: Collection[int]) -> tuple[list[int], list[int]]:
    """The dimensions that are rows, and those that are columns."""
    every = range(len(region.region))
    return [d for d in every if d not in reduced], [d for d in every if d in reduced]


def _number(region: TensorRegion, places: Sequence[Any], dimensions: Collection[int]) -> Any:
    """The number of an element in row-major order of some dimensions of a region."""
    number: Any = None
    for dimension in dimensions:
        extent = int(ir.ranges(region)[dimension][1])
        if extent != 1:
            place = places[dimension]
            number = place if number is None else number * extent + place
    return tirx.const(0, "int32") if number is None else number
