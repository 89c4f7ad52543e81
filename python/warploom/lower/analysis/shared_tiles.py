"""A tile in shared memory: its bytes, its swizzled matrix, and the buffer of all its stages."""

from __future__ import annotations

import contextlib
import math

import tvm
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer
from tvm.tirx.layout import S, TileLayout

from warploom.errors import Decline, IllegalCombination
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.analysis.layouts import has_layout
from warploom.target import TMA, Major


def stacked(tile: Buffer, stages: int) -> Buffer:
    """A buffer with a stage in front, laid out as copies of the tile.

    Each begins where TMA may write: the stages of a tile of 64 bytes are 128 bytes apart (PTX ISA,
    "Tensor-data", alignment of shared memory).

    Raises
    ------
    Decline
        If the tile has a layout other than row-major, or that of an operand.
    """
    shape = [int(extent) for extent in tile.shape]
    layout = None
    matrix = shared_matrix(tile)
    if matrix is not None:
        layout = matrix.layout((stages, *shape[:-2]))
    elif has_layout(tile):
        raise Decline(
            f"The tile {tile.name} has a layout that is no operand's, and is to have {stages} "
            "copies; write mma_shared_layout(...), or leave layout= out."
        )
    elif stages > 1 and tile_bytes(tile) % TMA.shared_align:
        layout = _apart(shape, stages, str(tile.dtype))
    return tirx.decl_buffer(
        (stages, *shape), str(tile.dtype), tile.name, scope="shared", layout=layout or "default"
    )


def _apart(shape: list[int], stages: int, dtype: str) -> TileLayout | None:
    """Row-major stages with gaps between them; None if elements do not divide the alignment."""
    size, bits = math.prod(shape), tvm.DataType(dtype).bits
    unit = TMA.shared_align * 8 // bits
    if not unit or TMA.shared_align * 8 % bits:
        return None
    strides = [math.prod(shape[index + 1 :]) for index in range(len(shape))]
    return TileLayout(S[(stages, *shape) : (-(-size // unit) * unit, *strides)])


def shared_matrix(tile: Buffer) -> SharedMatrix | None:
    """The operand of an MMA that a shared tile is, if its layout is one."""
    for major in Major:
        with contextlib.suppress(IllegalCombination):
            return SharedMatrix.from_buffer(tile, major)
    return None


def tile_bytes(tile: Buffer) -> int:
    """Bytes of a tile."""
    bits = tvm.DataType(str(tile.dtype)).bits
    return math.prod(int(extent) for extent in tile.shape) * bits // 8


def region_bytes(region: TensorRegion) -> int:
    """Bytes of a region of a tile."""
    bits = tvm.DataType(str(region.source.dtype)).bits
    return math.prod(int(dimension.extent) for dimension in region.region) * bits // 8


def span_bytes(tile: Buffer) -> int:
    """Bytes from the first to the last element of a tile, with the gaps of its layout."""
    if not isinstance(tile.layout, TileLayout) or not has_layout(tile):
        return tile_bytes(tile)
    bits = tvm.DataType(str(tile.dtype)).bits
    return max(tile_bytes(tile), int(tile.layout.span("m")) * bits // 8)
