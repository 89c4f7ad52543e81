"""Shared tiles of two copies, of which even iterations of a loop use one and odd ones the other."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, TensorRegion
from tvm.tirx import Buffer

from warploom.tile import ir
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Loop

#: How many copies there are.
COPIES = 2


def copy_in(loop: Loop) -> Any:
    """The number of the copy that an iteration uses."""
    return tirx.floormod(loop.var, COPIES)


def alternating(loop: Loop) -> frozenset[Buffer]:
    """The tiles whose first index, wherever the loop touches them, is :func:`copy_in`."""
    if loop.raw.step is not None and not ir.is_constant(loop.raw.step, 1):
        return frozenset()
    wanted = copy_in(loop)
    alike: dict[Buffer, bool] = {}

    def note(buffer: Any, first: Any) -> None:
        if ir.is_buffer(buffer) and is_shared(buffer) and len(buffer.shape) > 2:
            own = ir.is_constant(buffer.shape[0], COPIES)
            same = own and tvm_ffi.structural_equal(first, wanted)
            alike[buffer] = alike.get(buffer, True) and same

    def region(node: TensorRegion) -> None:
        note(node.source, node.region[0].min if len(node.region) else None)

    callbacks = [
        (TensorRegion, region),
        (TensorLoad, lambda node: note(node.source, node.indices[0] if node.indices else None)),
        (tirx.BufferStore, lambda node: note(node.buffer, node.indices[0])),
    ]
    tvm_ffi.structural_walk(loop.raw.body, callbacks)
    return frozenset(tile for tile, same in alike.items() if same)
