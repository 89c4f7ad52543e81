"""A tile in shared memory: its bytes, its swizzled matrix, and the buffer of all its stages."""

from __future__ import annotations

import contextlib
import math

import tvm
from tvm import tirx
from tvm.tirx import Buffer

from warploom.errors import Decline, IllegalCombination
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.analysis.layouts import has_layout
from warploom.target import Major


def stacked(tile: Buffer, stages: int) -> Buffer:
    """A buffer with a stage in front, laid out as copies of the tile.

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
    return tirx.decl_buffer(
        (stages, *shape), str(tile.dtype), tile.name, scope="shared", layout=layout or "default"
    )


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
