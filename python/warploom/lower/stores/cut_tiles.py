"""Cuts a tile of registers into the chunks that TMA stores, if TMA can store it."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorRegion

from warploom.lower.analysis.fragments import Fragments
from warploom.lower.analysis.rows import part_of_rows, row_dimensions
from warploom.target import TMA, tile_chunks
from warploom.tile import ir

#: Bytes of the elements that go through shared memory.
STAGED_BYTES = (2, 4)
#: Rows of the chunks of a column, and columns of those of a row.
Cut = tuple[list[int], list[int]]


def cut_tile(
    to: TensorRegion, source: TensorRegion, kinds: Fragments, most: int | None, whole: bool = False
) -> Cut | None:
    """The chunks, of at most so many columns each; None if TMA cannot store the tile.

    ``whole`` means that there is room for all of them, so that transposed tiles need not be cut.
    """
    tile = source.source
    size = tvm.DataType(str(tile.dtype)).bits // 8
    # A thread of a fragment has two neighbours; of single bytes they are too few to write.
    if len(tile.shape) != 2 or size not in STAGED_BYTES:
        return None
    pitch = to.source.shape[-1]
    if not isinstance(pitch, tirx.IntImm) or int(pitch) * size % TMA.chunk_bytes:
        return None
    wide = [d for d, (_, extent) in enumerate(ir.ranges(to)) if not ir.is_constant(extent, 1)]
    if wide and wide[-1] != len(to.region) - 1:
        return None
    if any(ir.is_constant(to.source.shape[d], 1) for d in wide):  # TVM describes no such copy
        return None
    rows, columns = (int(extent) for extent in tile.shape)
    cut = tile_chunks(rows, columns, size, kinds.rows, kinds.transposed, most)
    if cut is not None and whole and kinds.transposed and rows <= TMA.box_extent:
        cut = [rows], cut[1]
    first = 0
    for height in cut[0] if cut is not None else ():
        if chunk_of(to, rows, first, height) is None:
            return None
        first += height
    return cut


def chunk_of(to: TensorRegion, rows: int, first: int, height: int) -> list[tuple[Any, Any]] | None:
    """So many rows of a region, from a multiple of them on; None if they are no box."""
    ranges = ir.ranges(to)
    dimensions = row_dimensions(ranges, rows)
    return dimensions and part_of_rows(ranges, dimensions, first // height, height)
