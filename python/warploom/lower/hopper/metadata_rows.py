"""Metadata that is in words, as Blackwell reads it, becomes bytes of rows for ``wgmma``."""

from __future__ import annotations

from functools import partial

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.layout.metadata_words import WORD_BYTES
from warploom.lower.emit.filled_tiles import FilledTiles
from warploom.lower.emit.metadata import byte_at, is_words
from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram
from warploom.tile.statement import Mma


def metadata_rows(program: TileProgram) -> TileProgram:
    """Let threads write bytes of rows, where metadata is in words."""
    return _MetadataRows(program).run()


class _MetadataRows(FilledTiles):
    def wants(self, mma: Mma) -> bool:
        return mma.metadata is not None and is_words(mma.metadata)

    def mma(self, mma: Mma) -> tuple[list[Stmt], Stmt]:
        tile, nests = self.filled((mma.metadata,), partial(_rows, mma))
        self.decided.append(f"metadata {mma.metadata.source.name}: by threads into {tile.name}")
        args = mma.raw.args
        return nests, tile_call(mma.raw, *args[:3], ir.whole(tile), *args[4:])


def _rows(mma: Mma) -> tuple[Buffer, Stmt]:
    """A tile of bytes, and the nest that fills it."""
    metadata, dtype = mma.metadata, str(mma.operands[0].source.dtype)
    rows, words = (int(extent) for _, extent in ir.ranges(metadata)[-2:])
    shape = (rows, words * WORD_BYTES)
    tile = tirx.decl_buffer(shape, "uint8", f"{metadata.source.name}_rows", scope="shared")
    row, byte = Var("row", "int32"), Var("byte", "int32")
    value = T.Cast("uint8", byte_at(metadata, row, byte, dtype))
    return tile, ir.nest([row, byte], shape, [tirx.BufferStore(tile, value, [row, byte])])
