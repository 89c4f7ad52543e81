"""Which tiles in registers are the transpose of accumulators.

``out[y, x] = acc[x, y]`` needs no exchange between threads if their part of ``out`` is the
transpose of their part of ``acc``. GEMMs of few rows are computed that way round, since the tensor
core takes 64 rows at a time: those of the other operand.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir
from warploom.tile.scopes import TILE_SCOPES, is_global
from warploom.tile.statement import Block, Copy, Nest, Statement, walk


def transposed_tiles(body: Block) -> frozenset[Buffer]:
    """Tiles that nests make of others with rows and columns exchanged, or of such ones as they are.

    Those that a primitive uses, other than to copy them to global memory, are none.
    """
    nests: list[list[tuple[Buffer, list[Any]]]] = []
    kept: set[Buffer] = set()
    for statement in walk(body):
        if isinstance(statement, Nest):
            nests += _stores(statement.raw)
        elif isinstance(statement.raw, TilePrimitiveCall) and not _leaves(statement):
            kept |= {tile for tile in ir.uses(statement.raw) if ir.is_buffer(tile)}
    tiles: set[Buffer] = set()
    while True:
        more = {
            tile
            for (tile, at), *loads in nests
            if tile not in kept
            and any(at[1].same_as(other[1 if target in tiles else 0]) for target, other in loads)
        }
        if more <= tiles:
            return frozenset(tiles)
        tiles |= more


def _leaves(statement: Statement) -> bool:
    """Whether a statement copies a tile to global memory."""
    return isinstance(statement, Copy) and is_global(statement.raw.args[0].source)


def _stores(nest: Stmt) -> list[list[tuple[Buffer, list[Any]]]]:
    """Each matrix that a nest stores, with its indices, before all that the nest loads."""
    stores: list[tuple[Buffer, list[Any]]] = []
    loads: list[tuple[Buffer, list[Any]]] = []

    def add(node: Any) -> None:
        stored = isinstance(node, tirx.BufferStore)
        tile = node.buffer if stored else node.source
        if ir.is_buffer(tile) and tile.scope() in TILE_SCOPES and len(tile.shape) == 2:
            (stores if stored else loads).append((tile, list(node.indices)))

    tvm_ffi.structural_walk(nest, [((tirx.BufferStore, TensorLoad), add)])
    return [[store, *loads] for store in stores]
