"""Which dimensions of a region of global memory are those of the tile that it is copied to."""

from __future__ import annotations

from typing import Any

from warploom.tile import ir


def wide_dimensions(ranges: list[tuple[Any, Any]], rank: int) -> list[int]:
    """Dimensions of a region that are those of a tile: all but enough of extent 1."""
    drop = len(ranges) - rank
    result = []
    for dimension, (_, extent) in enumerate(ranges):
        if drop and ir.is_constant(extent, 1):
            drop -= 1
        else:
            result.append(dimension)
    return result
