"""Shared-memory swizzle modes, and the chunks that rows are cut into for them.

:mod:`warploom.target.swizzle_codes` has the numbers that interfaces give to the modes.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from warploom.target.swizzle_codes import SWIZZLE_CODES, SwizzleCodes

#: Rows of a swizzle atom and of a core matrix.
ATOM_ROWS = 8
#: Bytes of the chunks of transposed tiles.
_CHUNK_BYTES = 4096


class Major(enum.Enum):
    """Which dimension of an operand is contiguous in shared memory.

    ``K``: A is stored ``[M, K]`` and B ``[N, K]``. ``MN``: A is ``[K, M]`` and B is ``[K, N]``,
    which TIRx spells ``transA`` / ``transB``.

    Examples
    --------
    >>> Major("K")
    <Major.K: 'K'>
    """

    K = "K"
    MN = "MN"


class Swizzle(enum.Enum):
    """XOR permutation of the 16-byte chunks of a shared-memory tile (PTX ISA, "Swizzling modes").

    The value is the width in bytes of the row that is permuted; ``NONE`` means that consecutive
    16-byte chunks are not exchanged.

    Examples
    --------
    >>> Swizzle.B128.apply(128)  # the first chunk of the second row
    144
    """

    NONE = 16
    B32 = 32
    B64 = 64
    B128 = 128

    @property
    def row_bytes(self) -> int:
        """Bytes of the contiguous dimension that one swizzle atom covers."""
        return self.value

    @property
    def atom_bytes(self) -> int:
        """Bytes of one atom: eight rows of ``row_bytes``. A tile starts at a multiple of it."""
        return 8 * self.value

    @property
    def bits(self) -> int:
        """How many bits of the chunk index are XORed with the row index: 0, 1, 2 or 3.

        This is also TVM's ``SwizzleMode`` number and the value of ``CUtensorMapSwizzle``.
        """
        return self.value.bit_length() - 5

    @property
    def codes(self) -> SwizzleCodes:
        """The numbers that tensor maps and descriptors have for it."""
        return SWIZZLE_CODES[self.bits]

    @property
    def wgmma_code(self) -> int:
        """Bits 62-63 of the wgmma matrix descriptor (PTX ISA, "Matrix Descriptor Format")."""
        return self.codes.wgmma

    @property
    def tcgen05_code(self) -> int:
        """Bits 61-63 of the tcgen05 matrix descriptor (PTX ISA, "Shared memory descriptor")."""
        return self.codes.tcgen05

    @classmethod
    def from_bits(cls, bits: int) -> Swizzle:
        """The mode with ``bits`` XORed bits, the inverse of :attr:`bits`."""
        return cls(16 << bits)

    def apply(self, offset: int) -> int:
        """Where the byte at ``offset`` of an unswizzled, atom-aligned tile really lies."""
        return offset ^ ((offset >> 7 & (1 << self.bits) - 1) << 4)


for _mode in Swizzle:
    assert _mode.codes.row_bytes == _mode.value and _mode.codes.tensor_map == _mode.bits


def swizzle_chunks(columns: int, size: int, most: int | None = None) -> list[int]:
    """The widths, in columns, of the chunks that a row is cut into: each a swizzled row of TMA's.

    The widest come first; there are none if the row has no multiple of 16 bytes.

    Parameters
    ----------
    columns : int
        Of the row.
    size : int
        Bytes of an element.
    most : int, optional
        The widest chunk that is allowed.

    Examples
    --------
    >>> swizzle_chunks(176, 2)
    [64, 64, 32, 16]
    """
    widths: list[int] = []
    for swizzle in reversed(Swizzle):
        width = swizzle.row_bytes // size
        if most is None or width <= most:
            widths += [width] * (columns // width)
            columns %= width
    return [] if columns else widths


def transposed_chunks(rows: int, columns: int, size: int) -> list[int]:
    """The rows of the chunks that a tile is cut into whose threads hold columns.

    Powers of two, the largest first, and 4 KiB at most, so that two buffers of two warpgroups leave
    room for five stages of 200 x 128 16-bit operands. There are none if ``rows`` is no multiple of
    8, the rows of a swizzle atom.

    Parameters
    ----------
    rows : int
        Of the tile.
    columns : int
        Of a chunk: those that a warpgroup holds at a time.
    size : int
        Bytes of an element.

    Examples
    --------
    >>> transposed_chunks(88, 64, 2)
    [32, 32, 16, 8]
    """
    widths: list[int] = []
    height = _CHUNK_BYTES // (columns * size)
    while height >= ATOM_ROWS:
        widths += [height] * (rows // height)
        rows %= height
        height //= 2
    return [] if rows else widths


def tile_chunks(
    rows: int, columns: int, size: int, held: int, transposed: bool, most: int | None = None
) -> tuple[list[int], list[int]] | None:
    """The rows of the chunks of a column of a tile, and the columns of those of a row.

    Parameters
    ----------
    rows, columns : int
        Of the tile.
    size : int
        Bytes of an element.
    held : int
        Rows, or columns of a transposed tile, that a warpgroup holds at a time.
    transposed : bool
        Whether threads hold columns.
    most : int, optional
        Columns of a chunk at most, unless the tile is transposed.

    Returns
    -------
    tuple or None
        None if there are no such chunks.

    Examples
    --------
    >>> tile_chunks(128, 176, 2, held=64, transposed=False)
    ([64, 64], [64, 64, 32, 16])
    """
    if transposed:
        heights, widths = transposed_chunks(rows, held, size), [held] * (columns // held)
    else:
        heights, widths = [held] * (rows // held), swizzle_chunks(columns, size, most)
    return (heights, widths) if heights and widths else None


def chunk_buffers(widths: Sequence[int], buffers: int) -> dict[int, int]:
    """How many buffers there are for chunks of each width.

    At most ``buffers`` of each, and together no more than so many of the widest need, so that tiles
    of any width leave the same place to operands; but one of each.

    Parameters
    ----------
    widths : sequence of int
        Of all chunks of a tile.
    buffers : int

    Examples
    --------
    >>> chunk_buffers([64, 64, 32, 16], 2)
    {64: 1, 32: 1, 16: 1}
    """
    counts = dict.fromkeys(sorted(widths, reverse=True), 1)
    left = buffers * max(widths) - sum(counts)
    for width in counts:
        more = max(0, min(widths.count(width), buffers, 1 + left // width) - 1)
        counts[width] += more
        left -= more * width
    return counts
