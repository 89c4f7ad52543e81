"""Functions with numbers of 64 bits in memory, as row kernels compute them: with 32 bits.

Relax indexes with int64, and stores tokens and the results of ``argmax`` so. TVM narrows indices,
but no function with a buffer of int64. Here such buffers are read and written through stand-ins of
int32, which is exact for what indexes a dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import Buffer, BufferStore, PrimFunc

from warploom.errors import Decline
from warploom.gemm.equations import narrow
from warploom.tile import ir

WIDE, NARROW = "int64", "int32"


def narrowed(func: PrimFunc) -> tuple[PrimFunc, dict[Buffer, Buffer]]:
    """The function with 32-bit numbers, and the parameters of int64 that its stand-ins stand for.

    Raises
    ------
    Decline
        If an extent does not fit into 32 bits.
    """
    table = {buffer: _stand_in(buffer) for buffer in _wide_buffers(func)}
    if table:
        params = [table.get(param, param) for param in func.params]
        func = PrimFunc(params, _through(func.body, table), func.ret_type, func.attrs)
    made = narrow(func)
    pairs = zip(func.params, made.params, strict=True)
    wide = set(table.values())
    return made, {
        new: tirx.decl_buffer(list(new.shape), WIDE, new.name)
        for old, new in pairs
        if old in wide
    }


def without_stand_ins(value: Any, stand_ins: Mapping[Buffer, Buffer]) -> Any:
    """A value that reads the parameters themselves where they index others.

    Raises
    ------
    Decline
        If it computes with numbers of 64 bits, which 32 bits may not hold.
    """
    if not stand_ins:
        return value
    return _at_indices(value, stand_ins, False)


def _at_indices(value: Any, stand_ins: Mapping[Buffer, Buffer], index: bool) -> Any:
    def load(node: TensorLoad) -> Any:
        indices = [_at_indices(one, stand_ins, True) for one in node.indices]
        known = stand_ins.get(node.source)
        if known is None:
            return node.source[tuple(indices)]
        if not index:
            raise Decline(
                f"{node.source.name} holds numbers of {WIDE}; only those that index another "
                f"tensor are followed. Cast it to {NARROW}."
            )
        return tirx.Cast(NARROW, known[tuple(indices)])

    if isinstance(value, TensorLoad):
        return load(value)
    return tvm_ffi.structural_map(value, (TensorLoad, load), order="pre")


def _wide_buffers(func: PrimFunc) -> list[Buffer]:
    found = [p for p in func.params if ir.is_buffer(p) and str(p.dtype) == WIDE]

    def visit(block: SBlock) -> None:
        found.extend(buffer for buffer in block.alloc_buffers if str(buffer.dtype) == WIDE)

    tvm_ffi.structural_walk(func.body, (SBlock, visit))
    return found


def _stand_in(buffer: Buffer) -> Buffer:
    return tirx.decl_buffer(list(buffer.shape), NARROW, buffer.name, layout=None)


def _through(body: Any, table: Mapping[Buffer, Buffer]) -> Any:
    """A body that loads and stores stand-ins; types of expressions stay as they are."""

    def load(node: TensorLoad) -> Any:
        known = table.get(node.source)
        return node if known is None else tirx.Cast(WIDE, known[tuple(node.indices)])

    def store(node: BufferStore) -> Any:
        known = table.get(node.buffer)
        if known is None:
            return node
        return BufferStore(known, tirx.Cast(NARROW, node.value), list(node.indices))

    def region(node: TensorRegion) -> Any:
        known = table.get(node.source)
        return node if known is None else ir.region(known, *ir.ranges(node))

    def block(node: SBlock) -> Any:
        buffers = [table.get(buffer, buffer) for buffer in node.alloc_buffers]
        return SBlock(
            node.iter_vars, node.reads, node.writes, node.name_hint, node.body, node.init, buffers,
            node.match_buffers, node.annotations,
        )  # fmt: skip

    callbacks = {TensorLoad: load, BufferStore: store, TensorRegion: region, SBlock: block}
    return ir.map_nodes(body, callbacks, {})


def plain(value: Any) -> Any:
    """An expression without conversions of a type to itself, which narrowing leaves."""

    def cast(node: tirx.Cast) -> Any:
        return node.value if str(node.ty.dtype) == str(node.value.ty.dtype) else node

    return ir.map_nodes(value, {tirx.Cast: cast}, {})
