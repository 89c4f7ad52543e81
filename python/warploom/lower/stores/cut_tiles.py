"""Cuts a tile of registers into the chunks that TMA stores, if TMA can store it."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorRegion

from warploom.lower.analysis.fragments import Fragments
from warploom.lower.analysis.rows import part_of_rows, row_dimensions
from warploom.ops.copy_gather import GATHERED
from warploom.ops.register_tile import LANES
from warploom.target import TMA, tile_chunks
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.statement import Scatter

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
    pieces = cut_columns(to, source, kinds, most)
    if pieces is None:
        return None
    wide = [d for d, (_, extent) in enumerate(ir.ranges(to)) if not ir.is_constant(extent, 1)]
    if wide and wide[-1] != len(to.region) - 1:
        return None
    if any(ir.is_constant(to.source.shape[d], 1) for d in wide):  # TVM describes no such copy
        return None
    rows = int(source.source.shape[0])
    if whole and kinds.transposed and rows <= TMA.box_extent:
        pieces = [rows], pieces[1]
    first = 0
    for height in pieces[0]:
        if chunk_of(to, rows, first, height) is None:
            return None
        first += height
    return pieces


def cut_scatter(scatter: Scatter, kinds: Fragments, program: TileProgram) -> Cut | None:
    """The chunks of a tile whose rows have an index each; None if they go element by element."""
    if kinds.transposed:
        return None
    cut = cut_columns(scatter.to, scatter.source, kinds, program.hints.store_columns)
    size = tvm.DataType(str(scatter.source.source.dtype)).bits // 8
    # TMA takes four rows from a multiple of 128 bytes on.
    unit = TMA.shared_align // GATHERED if program.tensor_memory else TMA.chunk_bytes
    if cut is None or any(width * size % unit for width in cut[1]):
        return None
    if max(cut[0]) > GATHERED * LANES:  # a lane stores four rows
        return None
    return cut


def cut_columns(
    to: TensorRegion, source: TensorRegion, kinds: Fragments, most: int | None
) -> Cut | None:
    """As :func:`cut_tile`, wherever the rows of the tile are stored."""
    tile = source.source
    size = tvm.DataType(str(tile.dtype)).bits // 8
    # A thread of a fragment has two neighbours; of single bytes they are too few to write.
    if len(tile.shape) != 2 or size not in STAGED_BYTES:
        return None
    pitch = to.source.shape[-1]
    if not isinstance(pitch, tirx.IntImm) or int(pitch) * size % TMA.chunk_bytes:
        return None
    rows, columns = (int(extent) for extent in tile.shape)
    return tile_chunks(rows, columns, size, kinds.rows, kinds.transposed, most)


def chunk_of(to: TensorRegion, rows: int, first: int, height: int) -> list[tuple[Any, Any]] | None:
    """So many rows of a region, from a multiple of them on; None if they are no box."""
    ranges = ir.ranges(to)
    dimensions = row_dimensions(ranges, rows)
    return dimensions and part_of_rows(ranges, dimensions, first // height, height)
