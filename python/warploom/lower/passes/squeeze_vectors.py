"""Makes vectors of tiles in registers that have one row or one column.

``(rows, 1)`` and ``(1, columns)`` are how a program says along what a vector is broadcast. A thread
holds an element of each row or column that it has a part of, not a column of eight that the tensor
core's layout would want: exactly what vectors of one dimension are. A tile of one element, of which
every thread has a copy, gets the shape ``(1, 1)``.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.lower.passes.reductions import by_blocks, of_vectors
from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES, is_single
from warploom.tile.statement import Nest, raws, view


def squeeze_vectors(program: TileProgram) -> TileProgram:
    """Drop the dimensions of extent 1 of tiles in registers, and the loops over them."""
    body = (by_blocks(of_vectors(statement)) for statement in program.body)
    program = program.replace(body=tuple(leaf for raw in body for leaf in ir.flatten(raw)))
    wide = {
        tile: [d for d, extent in enumerate(tile.shape) if int(extent) != 1]
        for tile in allocations(program.body)
        if tile.scope() in TILE_SCOPES and len(tile.shape) <= 2
    }
    tiles = {t for t, dimensions in wide.items() if len(t.shape) == len(dimensions) + 1}
    return squeeze(program, {tile for tile in tiles if len(tile.shape) == 2 or is_single(tile)})


def squeeze(program: TileProgram, tiles: set[Buffer], loops: bool = True) -> TileProgram:
    """Make vectors of these matrices in registers, each of one row or one column.

    ``loops`` says whether loops of one iteration go as well.
    """
    kept: dict[Buffer, int | None] = {}
    vectors: dict[Buffer, Buffer] = {}
    for tile in tiles:
        # One element stays a matrix: TVM does not parse what it prints of a buffer of shape (1,).
        kept[tile] = int(int(tile.shape[1]) != 1) if len(tile.shape) == 2 else None
        along = kept[tile]
        shape = (1, 1) if along is None else (int(tile.shape[along]),)
        vectors[tile] = ir.declare_tile(shape, str(tile.dtype), tile.name, tile.scope())
    if not vectors:
        return program

    def moved(tile: Buffer, indices: Any) -> tuple[Buffer, list[Any]] | None:
        if tile not in vectors:
            return None
        along = kept[tile]
        return vectors[tile], [0, 0] if along is None else [indices[along]]

    def region(node: TensorRegion) -> Any:
        if node.source not in vectors:
            return node
        if kept[node.source] is None:
            return ir.whole(vectors[node.source])
        return ir.region(vectors[node.source], ir.ranges(node)[kept[node.source]])

    def call(primitive: TilePrimitiveCall) -> Stmt:
        args = [region(arg) if isinstance(arg, TensorRegion) else arg for arg in primitive.args]
        return tile_call(primitive, *args)

    def loop(node: tirx.For) -> Stmt:
        nest = view(node)
        if not isinstance(nest, Nest):
            return node
        single = [loop for loop in nest.loops if ir.is_constant(loop.extent, 1)]
        if len(single) == len(nest.loops):
            single = single[1:]  # a nest has a loop
        if not single:
            return node
        body = ir.substitute(ir.seq(raws(nest.parts)), {one.loop_var: one.min for one in single})
        for loop in reversed(nest.loops):
            body = body if loop in single else ir.with_body(loop, [body])
        return body

    # Loops first: a nest is told by the tiles that it stores, and indexed by what is left of it.
    callbacks = [*ir.element_callbacks(moved), (TilePrimitiveCall, call)]
    body = list(program.body)
    if loops:
        body = [tvm_ffi.structural_map(raw, (tirx.For, loop), order="post") for raw in body]
    body = [tvm_ffi.structural_map(statement, callbacks, order="post") for statement in body]
    return program.replace(body=tuple(ir.substitute(statement, vectors) for statement in body))
