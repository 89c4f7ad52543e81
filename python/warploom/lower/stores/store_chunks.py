"""The chunks in which a tile of registers is stored, and the buffers that they go through."""

from __future__ import annotations

from dataclasses import dataclass

from warploom.target import chunk_buffers


@dataclass(frozen=True)
class StoreChunk:
    """A chunk of a tile.

    Attributes
    ----------
    row, column, height, width : int
        Where it begins in the tile, its rows and its columns.
    slot : int
        Which of the buffers of its width it goes through.
    pending : int
        Stores that may still be under way when it is written to that buffer.
    first : bool
        Whether no chunk of the tile goes through that buffer before it.
    """

    row: int
    column: int
    height: int
    width: int
    slot: int
    pending: int
    first: bool


def store_chunks(heights: list[int], widths: list[int], buffers: int) -> list[StoreChunk]:
    """The chunks of a tile, in the order in which they are stored.

    Parameters
    ----------
    heights : list of int
        Rows of the chunks that a column is cut into; a buffer holds the most of these.
    widths : list of int
        Columns of the chunks that a row is cut into.
    buffers : int
        As :func:`warploom.target.chunk_buffers` takes them.
    """
    slots = chunk_buffers(widths * len(heights), buffers)
    parts: list[StoreChunk] = []
    row = 0
    for height in heights:
        column = 0
        for width in widths:
            same = [number for number, part in enumerate(parts) if part.width == width]
            count = slots[width]
            # Stores end in order. Of those before this tile nothing is known: all have ended.
            last = same[-count] if len(same) >= count else None
            pending = len(parts) if last is None else len(parts) - 1 - last
            slot = len(same) % count
            parts.append(StoreChunk(row, column, height, width, slot, pending, last is None))
            column += width
        row += height
    return parts
