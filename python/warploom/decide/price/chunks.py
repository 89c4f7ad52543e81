"""The chunks that a tile is stored in, and the lines of memory that they touch."""

from __future__ import annotations

import math
from functools import lru_cache

from warploom.decide.price.work import LINE_BYTES, TileOut
from warploom.target import WGMMA_M, swizzle_chunks, transposed_chunks


@lru_cache(maxsize=1024)
def store_lines(columns: int, size: float, most: int, pitch: float) -> float:
    """Lines of memory that the chunks of a row of a tile touch, for each that they fill.

    Parameters
    ----------
    columns : int
        Of the tile.
    size : float
        Bytes of an element.
    most : int
        Columns of a chunk, at most.
    pitch : float
        Bytes from row to row; 0 where that is not known.

    Examples
    --------
    >>> store_lines(128, 2, 64, 8192), store_lines(112, 2, 64, 8192), store_lines(128, 2, 64, 8208)
    (1.0, 1.7142857142857142, 1.875)
    """
    begin = alignment(pitch)
    widths = [width * size for width in chunk_widths(columns, size, most)]
    touched = sum(max(1.0, (width + LINE_BYTES - begin) / LINE_BYTES) for width in widths)
    return touched / (sum(widths) / LINE_BYTES)


@lru_cache(maxsize=1024)
def chunk_widths(columns: int, size: float, most: int) -> tuple[int, ...]:
    """Columns of the chunks that a row of a tile is stored in: whole swizzled rows, if it can."""
    return tuple(swizzle_chunks(columns, int(size), most) if size >= 1 else ()) or (columns,)


def chunks_of(tile: TileOut) -> int:
    """Chunks that a warpgroup stores of the rows that it holds at a time."""
    if tile.transposed:
        heights = transposed_chunks(tile.columns, WGMMA_M, max(1, int(tile.size)))
        return len(heights) or 1
    return len(chunk_widths(tile.columns, tile.size, tile.chunk_columns))


def alignment(pitch: float) -> int:
    """Bytes of a line at whose multiples rows begin that are so many bytes apart."""
    return math.gcd(int(pitch), LINE_BYTES)
