"""The scopes that the language has for the tiles to which passes have given a place."""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, PrimFunc
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir
from warploom.tile.primitives import op_name
from warploom.tile.scopes import is_tile


def with_scopes(func: PrimFunc) -> PrimFunc:
    """A program whose tiles in registers and in tensor memory have the scopes of the language.

    Registers of threads are fragments or accumulators again. An operand in tensor memory, which
    passes allocate as an accumulator, is a fragment: threads compute it, and products read it.
    """
    products: set[Buffer] = set()
    operands: set[Buffer] = set()
    tiles: list[Buffer] = []

    def note_product(call: TilePrimitiveCall) -> None:
        if op_name(call) == "gemm_async":
            products.add(call.args[0].source)
            operands.update(arg.source for arg in call.args[1:3] if isinstance(arg, TensorRegion))

    def note_tile(allocation: tirx.AllocBuffer) -> None:
        if allocation.buffer.scope() in ("local", "accumulator") and is_tile(allocation.buffer):
            tiles.append(allocation.buffer)

    callbacks = [(TilePrimitiveCall, note_product), (tirx.AllocBuffer, note_tile)]
    tvm_ffi.structural_walk(func.body, callbacks)
    scopes = {tile: _scope(tile, products, operands) for tile in tiles}
    table = {
        tile: tirx.decl_buffer(tile.shape, str(tile.dtype), tile.name, scope=scope)
        for tile, scope in scopes.items() if scope != tile.scope()
    }  # fmt: skip
    if not table:
        return func
    body = ir.substitute(func.body, table)
    return PrimFunc(func.params, body, func.ret_type, func.attrs, func.span)


def _scope(tile: Buffer, products: set[Buffer], operands: set[Buffer]) -> str:
    if tile in products:
        return "accumulator"
    return "fragment" if tile in operands or tile.scope() == "local" else tile.scope()
