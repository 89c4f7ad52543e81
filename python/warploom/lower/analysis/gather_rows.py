"""Loads of single rows that have an index each: four of a tile go by one instruction of Blackwell.

The copies stand in the program one after the other, as :mod:`warploom.lower.passes.copy_loops`
writes them. Of four that fill neighbouring rows the last becomes the instruction, since scalars
that a row depends on may stand between them.

Source: PTX ISA, "cp.async.bulk.tensor", ".tile::gather4".
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.ops.copy_gather import GATHERED
from warploom.tile import ir


def is_row(load: TilePrimitiveCall) -> bool:
    """Whether a load fills one of several rows of a tile, from a row of a matrix."""
    (first, rows), *_ = ir.ranges(load.args[0])
    source = ir.ranges(load.args[1])
    return (
        ir.is_constant(rows, 1)
        and isinstance(first, int | tirx.IntImm)
        and int(load.args[0].source.shape[0]) % GATHERED == 0
        and len(source) == len(load.args[0].source.shape) == 2
        and ir.is_constant(source[0][1], 1)
    )


def gathered(
    load: TilePrimitiveCall, loads: list[TilePrimitiveCall]
) -> list[TilePrimitiveCall] | None:
    """The four of all loads of a stage that one goes with; None if it goes alone."""
    if not is_row(load):
        return None
    tile = load.args[0].source
    own = [one for one in loads if one.args[0].source.same_as(tile)]
    at = next(number for number, one in enumerate(own) if one.same_as(load))
    first = at - _row(load) % GATHERED
    group = own[first : first + GATHERED] if first >= 0 else []
    if len(group) < GATHERED or not all(map(is_row, group)):
        return None
    start = _row(load) // GATHERED * GATHERED
    neighbours = [_row(one) for one in group] == list(range(start, start + GATHERED))
    return group if neighbours and all(_alike(one, load) for one in group) else None


def rows_of(group: list[TilePrimitiveCall]) -> list[Any]:
    """The rows of the source that they copy."""
    return [ir.ranges(one.args[1])[0][0] for one in group]


def _row(load: TilePrimitiveCall) -> int:
    return int(ir.ranges(load.args[0])[0][0])


def _alike(one: TilePrimitiveCall, other: TilePrimitiveCall) -> bool:
    """Whether two loads copy the same columns of the same matrix."""
    columns = [ir.ranges(load.args[1])[1] for load in (one, other)]
    return one.args[1].source.same_as(other.args[1].source) and all(
        tvm_ffi.structural_equal(ir.as_expr(a), ir.as_expr(b))
        for a, b in zip(*columns, strict=True)
    )
