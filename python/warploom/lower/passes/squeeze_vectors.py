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
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES
from warploom.tile.statement import Nest, view


def squeeze_vectors(program: TileProgram) -> TileProgram:
    """Drop the dimensions of extent 1 of tiles in registers, and the loops over them."""
    kept: dict[Buffer, int] = {}
    vectors: dict[Buffer, Buffer] = {}
    for tile in allocations(program.body):
        wide = [d for d, extent in enumerate(tile.shape) if int(extent) != 1]
        if tile.scope() not in TILE_SCOPES or len(tile.shape) != 2 or len(wide) != 1:
            continue
        (kept[tile],) = wide
        extent = int(tile.shape[wide[0]])
        vectors[tile] = tirx.decl_buffer(
            (extent,), str(tile.dtype), tile.name, scope=tile.scope()
        )
    if not vectors:
        return program

    def region(one: TensorRegion) -> Any:
        if one.source not in vectors:
            return one
        return ir.region(vectors[one.source], ir.ranges(one)[kept[one.source]])

    def load(one: TensorLoad) -> Any:
        if one.source not in vectors:
            return one
        return vectors[one.source][one.indices[kept[one.source]]]

    def store(one: tirx.BufferStore) -> Stmt:
        if one.buffer not in vectors:
            return one
        index = one.indices[kept[one.buffer]]
        return tirx.BufferStore(vectors[one.buffer], one.value, [index], one.span)

    def call(one: TilePrimitiveCall) -> Stmt:
        args = [region(arg) if isinstance(arg, TensorRegion) else arg for arg in one.args]
        return ir.tile_call(one, *args)

    def loop(one: tirx.For) -> Stmt:
        if ir.is_constant(one.extent, 1) and isinstance(view(one), Nest):
            return ir.substitute(one.body, {one.loop_var: one.min})
        return one

    # Loops first: a nest is told by the tiles that it stores, and indexed by what is left of it.
    callbacks = [(TensorLoad, load), (tirx.BufferStore, store), (TilePrimitiveCall, call)]
    body = [tvm_ffi.structural_map(one, (tirx.For, loop), order="post") for one in program.body]
    body = [tvm_ffi.structural_map(one, callbacks, order="post") for one in body]
    return program.replace(body=tuple(ir.substitute(one, vectors) for one in body))
