"""Statements on the current stages of rings, in place of the tiles that their author named."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, TensorRegion
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir


def place_tiles(statement: Stmt, current: dict[Buffer, tuple[Buffer, Any]]) -> Stmt:
    """A statement on stages of rings in place of tiles."""

    def tile_region(one: TensorRegion) -> Any:
        if one.source not in current:
            return one
        buffer, stage = current[one.source]
        return ir.region(buffer, (stage, 1), *ir.ranges(one))

    def load(one: TensorLoad) -> Any:
        if one.source not in current:
            return one
        buffer, stage = current[one.source]
        return buffer[(stage, *one.indices)]

    def store(one: tirx.BufferStore) -> Stmt:
        if one.buffer not in current:
            return one
        buffer, stage = current[one.buffer]
        return tirx.BufferStore(buffer, one.value, [stage, *one.indices], one.span)

    if isinstance(statement, TilePrimitiveCall):
        args = [
            tile_region(arg) if isinstance(arg, TensorRegion) else arg for arg in statement.args
        ]
        return ir.tile_call(statement, *args)
    callbacks = [(TensorRegion, tile_region), (TensorLoad, load), (tirx.BufferStore, store)]
    return tvm_ffi.structural_map(statement, callbacks, order="post")
