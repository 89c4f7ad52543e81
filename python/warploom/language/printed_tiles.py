"""``wl.print`` of a tile or a region: a line for every few elements of a row.

A row of a tile in registers, which threads share, goes through a row in shared memory first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Buffer, is_buffer_var

from warploom.errors import IllegalCombination
from warploom.language.builtins.operands import known
from warploom.tile.scopes import TILE_SCOPES

#: Elements of a line.
_PER_LINE = 16


def is_tile(value: Any) -> bool:
    """Whether a value is a whole buffer or a region of one."""
    return isinstance(value, TensorRegion) or is_buffer_var(value)


def print_tile(value: Any, number: int, line: Callable[[str, list[Any], list[Any]], None]) -> None:
    """Write the statements that print a tile.

    Parameters
    ----------
    value : Buffer or TensorRegion
    number : int
        Of the value, for messages.
    line : callable
        ``line(place, coordinates, elements)`` writes the statement that prints a line: what
        stands before the elements, with ``{}`` for each coordinate; and the elements.

    Raises
    ------
    IllegalCombination
        If an extent is not known.
    """
    tile = value.source if isinstance(value, TensorRegion) else value
    if isinstance(value, TensorRegion):
        ranges = [(part.min, known(part.extent)) for part in value.region]
    else:
        ranges = [(0, known(extent)) for extent in tile.shape]
    if any(extent is None for _, extent in ranges):
        raise IllegalCombination(
            f"value {number} of wl.print is {tile.name}, with an extent that only the launch "
            "knows; give a region of constant extents."
        )
    *outer, (first, columns) = ranges
    with contextlib.ExitStack() as stack:
        counters = [
            stack.enter_context(T.serial(extent)) if extent > 1 else 0 for _, extent in outer
        ]
        rows = [_sum(start, counter) for (start, _), counter in zip(outer, counters, strict=True)]
        held = str(tile.scope()) in TILE_SCOPES
        row = _through_shared(tile, rows, first, columns) if held else None
        whole, rest = divmod(columns, _PER_LINE)
        for begins, count, width in ((0, whole, _PER_LINE), (whole * _PER_LINE, rest > 0, rest)):
            if not count:
                continue
            with T.serial(int(count)) as number_of_line:
                at = number_of_line * _PER_LINE + begins if count > 1 else begins
                elements = [
                    tile[tuple([*rows, _sum(first, at + e)])] if row is None else row[0, at + e]
                    for e in range(width)
                ]
                begin = _sum(first, at)
                place = ", ".join(["{}"] * len(rows) + ["{}:{}"])
                coordinates = [*rows, begin, _sum(begin, width)]
                line(f"{tile.name}[{place}]:", coordinates, elements)


def _sum(a: Any, b: Any) -> Any:
    return b if known(a) == 0 else a if known(b) == 0 else a + b


def _through_shared(tile: Buffer, rows: list[Any], first: Any, columns: int) -> Buffer:
    """A row of a tile in registers, in shared memory."""
    row = T.alloc_buffer((1, columns), str(tile.dtype), scope="shared")
    IRBuilder.name(f"{tile.name}_row", row)
    extents = [int(extent) for extent in tile.shape]
    with T.grid(*extents) as counters:
        counters = list(counters) if len(extents) > 1 else [counters]
        *others, column = counters
        guards = [T.EQ(counter, row_) for counter, row_ in zip(others, rows, strict=True)]
        if (known(first), columns) != (0, extents[-1]):
            guards += [column >= first, column < first + columns]
        with contextlib.ExitStack() as stack:
            if guards:
                stack.enter_context(T.If(_all(guards)))
                stack.enter_context(T.Then())
            place = column if known(first) == 0 else column - first
            T.buffer_store(row, tile[tuple(counters)], [0, place])
    return row


def _all(conditions: list[Any]) -> Any:
    result = conditions[0]
    for condition in conditions[1:]:
        result = T.And(result, condition)
    return result
