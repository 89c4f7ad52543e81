"""Scales of the operands of an MMA: their format, and where the scale of a row is."""

from __future__ import annotations

from typing import Any

from tvm.ir import TensorRegion
from tvm.script import tirx as T

from warploom.target.scaled_formats import (
    SCALE_COLUMNS,
    SCALE_ROWS,
    ScaledFormat,
    are_in_blocks,
    scale_blocks,
    scaled_format,
)
from warploom.tile import ir
from warploom.tile.statement import Mma


def format_of(mma: Mma) -> ScaledFormat:
    """The format of the operands of an MMA with scales."""
    return scaled_format(*(str(r.source.dtype) for r in (*mma.operands, *mma.scales)))


def rows_and_scales(row: ScaledFormat, operand: TensorRegion) -> tuple[int, int]:
    """Rows of an operand, and scales of each of them."""
    (_, rows), (_, stored) = ir.ranges(operand)[-2:]
    return int(rows), int(stored) * row.packed // row.block


def is_in_blocks(row: ScaledFormat, operand: TensorRegion, scales: TensorRegion) -> bool:
    """Whether the scales of an operand are in blocks, and not in rows."""
    extents = [int(extent) for _, extent in ir.ranges(scales)]
    return are_in_blocks(extents, *rows_and_scales(row, operand))


def scale_at(row: ScaledFormat, operand: TensorRegion, scales: TensorRegion, r: Any, s: Any) -> Any:
    """The element of a buffer of scales that is scale ``s`` of row ``r`` of an operand."""
    if not is_in_blocks(row, operand, scales):
        starts = [start for start, _ in ir.ranges(scales)]
        return scales.source[(*starts[:-2], starts[-2] + r, starts[-1] + s)]
    blocks = T.floordiv(r, SCALE_ROWS), T.floordiv(s, SCALE_COLUMNS)
    *first, lane, byte = block_at(row, operand, scales, *blocks)
    lane += T.floormod(r, 32)
    byte += T.floordiv(T.floormod(r, SCALE_ROWS), 32) * SCALE_COLUMNS
    return scales.source[(*first, lane, byte + T.floormod(s, SCALE_COLUMNS))]


def block_at(
    row: ScaledFormat, operand: TensorRegion, scales: TensorRegion, block: Any, step: Any
) -> list[Any]:
    """Indices of the first scale of a block: the ``block``-th of rows, ``step``-th along K."""
    counts = scale_blocks(*rows_and_scales(row, operand))
    # Extents of 1 may have been left out, and others may stand in front.
    places = iter(
        place for place, many in zip((block, step), counts, strict=False) if many > 1
    )
    *first, lane, byte = ir.ranges(scales)
    return [
        *(start if ir.is_constant(n, 1) else start + next(places) for start, n in first),
        lane[0], byte[0],
    ]  # fmt: skip
