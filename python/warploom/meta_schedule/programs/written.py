"""The parameters that a tile program writes, and those whose contents before matter."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad, TensorRegion
from tvm.tirx import BufferStore, PrimFunc
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir


def written_by(program: PrimFunc) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions, among the tensors, of parameters that are written; of those also read.

    The destination of a tile primitive is its first argument.
    """
    stored: set[Any] = set()
    read: set[Any] = set()

    def primitive(call: TilePrimitiveCall) -> None:
        for at, argument in enumerate(call.args):
            if isinstance(argument, TensorRegion):
                (read if at else stored).add(argument.source)

    tvm_ffi.structural_walk(
        program.body,
        [
            (BufferStore, lambda store: stored.add(store.buffer)),
            (TensorLoad, lambda load: read.add(load.source)),
            (TilePrimitiveCall, primitive),
        ],
    )
    tensors = [param for param in program.params if ir.is_buffer(param)]
    # What only has its address taken may be written, and read, by an instruction.
    addressed = ir.uses(program.body) - stored - read
    stored |= addressed
    read |= addressed
    written = tuple(at for at, param in enumerate(tensors) if param in stored)
    return written, tuple(at for at in written if tensors[at] in read)
