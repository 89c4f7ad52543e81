"""Which thread of a consumer warpgroup holds which element of a tile, by architecture.

Hopper leaves accumulators in the registers of the warpgroup that multiplies: 64 rows an
instruction, each row in four lanes. On Blackwell they lie in tensor memory, of which a warp reads
its own 32 lanes; ``tcgen05.ld`` gives 128 rows one to each thread (``.32x32b``), and 64 rows in
the fragment of Hopper (``.16x256b``), since M = 64 leaves 16 rows with each warp.

A tile that is computed as the transpose of accumulators has the transpose of their fragment:
threads hold its columns as they hold rows of accumulators, and its rows as they hold columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm.tirx import Buffer
from tvm.tirx.layout import Axis, Iter, TileLayout

from warploom.errors import IllegalCombination
from warploom.layout.fragment import (
    column_fragment,
    row_fragment,
    wgmma_accumulator,
    wgmma_register_a,
)
from warploom.target import SM100A
from warploom.target.wgmma import WGMMA_M
from warploom.tile.scopes import TILE_SCOPES
from warploom.tile.statement import Block, Mma, walk

#: Rows of a warpgroup's part of a tile on Blackwell: one a thread, or those of the fragment.
_THREAD_ROWS = SM100A.warpgroup
SM100_ROWS = (WGMMA_M, _THREAD_ROWS)
#: Bits of the elements of an operand A whose fragment is not that of accumulators.
_BYTE = 8


@dataclass(frozen=True)
class Fragments:
    """Layouts of the tiles of one program.

    Attributes
    ----------
    row_a_thread : bool
        Each thread of a warpgroup holds whole rows; else rows are those of a wgmma accumulator.
    transposed : bool
        Tiles are the transpose of that.
    operand : str
        The dtype of tiles in the order of an operand A of wgmma, where it is not that of
        accumulators; else empty.
    """

    row_a_thread: bool = False
    transposed: bool = False
    operand: str = ""

    @property
    def rows(self) -> int:
        """Rows that a warpgroup handles at a time; of transposed tiles, columns."""
        return _THREAD_ROWS if self.row_a_thread else WGMMA_M

    def matrix(self, rows: int, columns: int, warpgroups: int = 1) -> TileLayout:
        """A tile of rows and columns."""
        if self.transposed:
            plain = dataclasses.replace(self, transposed=False)
            parts, ends = plain.matrix(columns, rows, warpgroups).group([columns, rows])
            return parts.permute_by_groups(list(ends), [1, 0])
        if self.operand:
            return wgmma_register_a(self.operand, columns, rows, warpgroups=warpgroups)
        if not self.row_a_thread:
            return wgmma_accumulator(rows, columns, warpgroups=warpgroups)
        return TileLayout.from_iters([*_threads(warpgroups), Iter(columns, 1, "m")])

    def along_rows(self, rows: int, warpgroups: int = 1) -> TileLayout:
        """A vector with an element for each row."""
        if not self.row_a_thread:
            return row_fragment(rows, warpgroups=warpgroups)
        return TileLayout.from_iters(_threads(warpgroups))

    def along_columns(self, columns: int, warpgroups: int = 1) -> TileLayout:
        """A vector with an element for each column; every thread that needs one has it."""
        if not self.row_a_thread:
            return column_fragment(columns, warpgroups=warpgroups)
        return TileLayout.from_iters([Iter(columns, 1, "m")], _threads(warpgroups))


def _threads(warpgroups: int) -> list[Iter]:
    """All threads of a warpgroup, or of several."""
    if warpgroups == 1:
        return [Iter(_THREAD_ROWS, 1, Axis.tid_in_wg)]
    return [Iter(_THREAD_ROWS * warpgroups, 1, Axis.tx)]


def fragments(tensor_memory: bool, rows: int) -> Fragments:
    """The layouts of tiles of which a warpgroup holds ``rows`` rows.

    ``tensor_memory`` says whether accumulators of the program lie there.
    """
    return Fragments(tensor_memory and rows == _THREAD_ROWS)


def rows_of(
    tile: Buffer, heights: Mapping[Buffer, int], count: int, along_columns: bool = False
) -> int:
    """Rows of the fragment that a tile is made of, where accumulators lie in tensor memory.

    Accumulators have their own number. Other tiles have that, too, if an accumulator has it, or no
    accumulator has fewer; else they are blocks of the smallest.

    Parameters
    ----------
    tile : Buffer
        A matrix or a vector.
    heights : mapping
        Rows that a warpgroup holds of each matrix.
    count : int
        Warpgroups that share tiles.
    along_columns : bool
        Whether it is a vector along the columns of matrices: threads hold it as they hold those.
    """
    if along_columns and heights:
        return max(rows_of(matrix, heights, count) for matrix in heights)
    own = heights[tile] if tile in heights else int(tile.shape[0]) // count
    written = {rows for each, rows in heights.items() if each.scope() == "accumulator"}
    if tile.scope() == "accumulator" or not written:
        return own
    known = own in SM100_ROWS and (own in written or own < min(written))
    return own if known else min(written)


def byte_operands_of(block: Block) -> frozenset[Buffer]:
    """Tiles in registers that MMAs read as operand A, of elements of 8 bits."""
    tiles = (mma.operands[0].source for mma in walk(block) if isinstance(mma, Mma))
    return frozenset(
        tile for tile in tiles
        if tile.scope() in TILE_SCOPES and tvm.DataType(str(tile.dtype)).bits == _BYTE
    )  # fmt: skip


def fragments_of(tile: Buffer, tensor_memory: bool) -> Fragments:
    """The kind of layouts that the layout of a tile in the registers of a warpgroup is one of."""
    kinds = [fragments(tensor_memory, int(tile.shape[0]))]
    if kinds[0].row_a_thread:  # or several blocks of the rows of a fragment
        kinds.append(Fragments())
    if len(tile.shape) == 2:
        columns = fragments(tensor_memory, int(tile.shape[1]))
        kinds.append(dataclasses.replace(columns, transposed=True))
    return next((kind for kind in kinds if _has_layout(tile, kind)), kinds[0])


def _has_layout(tile: Buffer, kind: Fragments) -> bool:
    """Whether the layout of a tile is one of a kind."""
    shape = [int(extent) for extent in tile.shape]
    try:
        layout = kind.matrix(*shape) if len(shape) == 2 else kind.along_rows(*shape)
    except IllegalCombination:
        return False
    return tvm_ffi.structural_equal(tile.layout.canonicalize(), layout.canonicalize())
