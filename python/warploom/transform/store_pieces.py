"""The pieces in which a tile of registers is stored, and the buffers that they go through."""

from __future__ import annotations

from dataclasses import dataclass

from warploom.target import piece_buffers


@dataclass(frozen=True)
class Piece:
    """A piece of a tile.

    Attributes
    ----------
    row, column, width : int
        Where it begins in the tile, and its columns.
    slot : int
        Which of the buffers of its width it goes through.
    pending : int
        Stores that may still be under way when it is written to that buffer.
    first : bool
        Whether no piece of the tile goes through that buffer before it.
    """

    row: int
    column: int
    width: int
    slot: int
    pending: int
    first: bool


def pieces(rows: int, height: int, widths: list[int], buffers: int) -> list[Piece]:
    """The pieces of a tile, in the order in which they are stored.

    Parameters
    ----------
    rows, height : int
        Of the tile, and of a piece.
    widths : list of int
        Columns of the pieces that a row is cut into.
    buffers : int
        As :func:`warploom.target.piece_buffers` takes them.
    """
    slots = piece_buffers(widths * (rows // height), buffers)
    found: list[Piece] = []
    for row in range(0, rows, height):
        column = 0
        for width in widths:
            same = [number for number, one in enumerate(found) if one.width == width]
            count = slots[width]
            # Stores end in order. Of those before this tile nothing is known: all have ended.
            last = same[-count] if len(same) >= count else None
            pending = len(found) if last is None else len(found) - 1 - last
            found.append(Piece(row, column, width, len(same) % count, pending, last is None))
            column += width
    return found
