"""Kernels get the values of the host's scalars, not their places in the host's memory.

``x: T.int32 = ...`` before a kernel is a buffer of one element. TVM would give the kernel its
address, behind which the GPU finds nothing.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import Buffer, PrimFunc, Stmt, Var

from warploom.errors import Decline
from warploom.tile import ir
from warploom.tile.entries import device_entries

_LOCAL = "local"


def capture_scalars(func: PrimFunc) -> PrimFunc:
    """The function with a variable for each scalar of the host that a kernel reads.

    Raises
    ------
    Decline
        If a kernel assigns to a scalar of the host.
    """
    captured = [(kernel, _captured(kernel)) for kernel in device_entries(func)]

    def entry(node: tirx.AttrStmt) -> Stmt:
        return next((new for old, new in captured if node.same_as(old)), node)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.AttrStmt, entry), order="post"))


def _captured(kernel: tirx.AttrStmt) -> Stmt:
    own: set[Buffer] = set()
    stored: set[Buffer] = set()
    used: dict[Buffer, None] = {}

    def allocation(node: tirx.AllocBuffer | tirx.DeclBuffer) -> None:
        own.add(node.buffer)

    def load(node: TensorLoad) -> None:
        if ir.is_buffer(node.source):
            used[node.source] = None

    def store(node: tirx.BufferStore) -> None:
        stored.add(node.buffer)
        used[node.buffer] = None

    tvm_ffi.structural_walk(kernel, [
        (tirx.AllocBuffer, allocation), (tirx.DeclBuffer, allocation), (TensorLoad, load),
        (tirx.BufferStore, store),
    ])  # fmt: skip
    of_host = [buffer for buffer in used if buffer.scope() == _LOCAL and buffer not in own]
    for buffer in of_host:
        if buffer in stored:
            raise Decline(
                f"The kernel assigns to {buffer.name}, a scalar of the host; let it assign to a "
                "scalar that it defines itself."
            )
    table = {buffer: Var(buffer.name, str(buffer.dtype)) for buffer in of_host}
    if not table:
        return kernel

    def value(node: TensorLoad) -> Any:
        return table.get(node.source, node)

    body = tvm_ffi.structural_map(kernel, (TensorLoad, value), order="post")
    values = [tirx.Bind(variable, buffer[0]) for buffer, variable in table.items()]
    return ir.seq([*values, body])
