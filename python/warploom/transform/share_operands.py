"""Operands that threads compute go to the tensor core of Blackwell through shared memory.

``wgmma`` reads A from registers; ``tcgen05.mma`` reads it from shared or tensor memory. A fragment
that is operand A therefore becomes a shared tile; the nests that compute it stay as they are.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.transform import ir
from warploom.transform.program import TileProgram, is_gemm


def share_operands(program: TileProgram) -> TileProgram:
    """Move the fragments that products read to shared memory."""
    table: dict[Buffer, Buffer] = {}

    def visit(call: TilePrimitiveCall) -> None:
        if not is_gemm(call):
            return
        for operand in call.args[1:3]:
            if isinstance(operand, TensorRegion) and operand.source.scope() == "fragment":
                old = operand.source
                table[old] = tirx.decl_buffer(old.shape, str(old.dtype), old.name, scope="shared")

    for statement in program.body:
        tvm_ffi.structural_walk(statement, (TilePrimitiveCall, visit))
    if not table:
        return program
    return program.replace(body=tuple(ir.substitute(one, table) for one in program.body))
