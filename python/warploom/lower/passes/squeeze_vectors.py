"""Makes vectors of tiles in registers that have one row or one column.

``(rows, 1)`` and ``(1, columns)`` are how a program says along what a vector is broadcast. A thread
holds an element of each row or column that it has a part of, not a column of eight that the tensor
core's layout would want: exactly what vectors of one dimension are.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, TensorRegion
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES
from warploom.tile.statement import Nest, view


def squeeze_vectors(program: TileProgram) -> TileProgram:
    """Drop the dimensions of extent 1 of tiles in registers, and the loops over them."""
    wide = {
        tile: [d for d, extent in enumerate(tile.shape) if int(extent) != 1]
        for tile in allocations(program.body)
        if tile.scope() in TILE_SCOPES and len(tile.shape) == 2
    }
    return squeeze(program, {tile for tile, dimensions in wide.items() if len(dimensions) == 1})


def squeeze(program: TileProgram, tiles: set[Buffer], loops: bool = True) -> TileProgram:
    """Make vectors of these matrices in registers, each of one row or one column.

    ``loops`` says whether loops of one iteration go as well.
    """
    kept: dict[Buffer, int] = {}
    vectors: dict[Buffer, Buffer] = {}
    for tile in tiles:
        kept[tile] = int(int(tile.shape[1]) != 1)
        extent = int(tile.shape[kept[tile]])
        vectors[tile] = ir.declare_tile((extent,), str(tile.dtype), tile.name, tile.scope())
    if not vectors:
        return program

    def region(node: TensorRegion) -> Any:
        if node.source not in vectors:
            return node
        return ir.region(vectors[node.source], ir.ranges(node)[kept[node.source]])

    def load(node: TensorLoad) -> Any:
        if node.source not in vectors:
            return node
        return vectors[node.source][node.indices[kept[node.source]]]

    def store(node: tirx.BufferStore) -> Stmt:
        if node.buffer not in vectors:
            return node
        index = node.indices[kept[node.buffer]]
        return tirx.BufferStore(vectors[node.buffer], node.value, [index], node.span)

    def call(primitive: TilePrimitiveCall) -> Stmt:
        args = [region(arg) if isinstance(arg, TensorRegion) else arg for arg in primitive.args]
        return tile_call(primitive, *args)

    def loop(node: tirx.For) -> Stmt:
        if ir.is_constant(node.extent, 1) and isinstance(view(node), Nest):
            return ir.substitute(node.body, {node.loop_var: node.min})
        return node

    # Loops first: a nest is told by the tiles that it stores, and indexed by what is left of it.
    callbacks = [(TensorLoad, load), (tirx.BufferStore, store), (TilePrimitiveCall, call)]
    body = list(program.body)
    if loops:
        body = [tvm_ffi.structural_map(raw, (tirx.For, loop), order="post") for raw in body]
    body = [tvm_ffi.structural_map(statement, callbacks, order="post") for statement in body]
    return program.replace(body=tuple(ir.substitute(statement, vectors) for statement in body))
