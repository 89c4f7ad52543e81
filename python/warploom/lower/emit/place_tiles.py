"""Statements on the current stages of rings, in place of the tiles that their author named."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, TensorRegion
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir
from warploom.tile.effects import REDUCTIONS
from warploom.tile.primitives import op_name, tile_call


def place_tiles(statement: Stmt, current: dict[Buffer, tuple[Buffer, Any]]) -> Stmt:
    """A statement on stages of rings in place of tiles."""

    def tile_region(region: TensorRegion) -> Any:
        if region.source not in current:
            return region
        buffer, stage = current[region.source]
        return ir.region(buffer, (stage, 1), *ir.ranges(region))

    def load(node: TensorLoad) -> Any:
        if node.source not in current:
            return node
        buffer, stage = current[node.source]
        return buffer[(stage, *node.indices)]

    def store(node: tirx.BufferStore) -> Stmt:
        if node.buffer not in current:
            return node
        buffer, stage = current[node.buffer]
        return tirx.BufferStore(buffer, node.value, [stage, *node.indices], node.span)

    if isinstance(statement, TilePrimitiveCall):
        args = [
            tile_region(arg) if isinstance(arg, TensorRegion) else arg for arg in statement.args
        ]
        if op_name(statement) in REDUCTIONS and statement.args[1].source in current:
            # Counted from the last dimension, axes are the same behind that of the stages.
            rank = len(statement.args[1].region)
            args[2] = [int(axis) % rank - rank for axis in statement.args[2]]
        return tile_call(statement, *args)
    callbacks = [(TensorRegion, tile_region), (TensorLoad, load), (tirx.BufferStore, store)]
    return tvm_ffi.structural_map(statement, callbacks, order="post")
