"""Scalars that the host computes lie on the stack of the host.

TVM gives every buffer that host code allocates the memory of the function's device. A scalar of the
host would be there as well, and the host would store to an address that only the GPU knows: the
process ends with a segmentation fault.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, Stmt, Var

from warploom.lower.host.kernels import is_host
from warploom.target.dtypes import bits_of
from warploom.tile import ir

#: What TVM can place on the stack by name: elements of a shape have so many bits.
_ELEMENT, _BITS = "shape", 64
_LOCAL = "local"


def KeepScalarsOnHost() -> tvm.transform.Pass:
    """A pass that moves the local buffers of host functions to the host's stack."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.KeepScalarsOnHost")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        changed = {
            variable: _on_stack(function) if is_host(function) else function
            for variable, function in mod.functions.items()
        }
        return tvm.IRModule(changed, attrs=mod.attrs)

    return run


def _on_stack(host: PrimFunc) -> PrimFunc:
    def sequence(old: tirx.SeqStmt) -> Stmt:
        return ir.seq(new for statement in ir.flatten(old) for new in _placed(statement))

    body = ir.seq([host.body])
    return host.with_body(tvm_ffi.structural_map(body, (tirx.SeqStmt, sequence), order="post"))


def _placed(statement: Stmt) -> list[Stmt]:
    """An allocation of a local buffer as a place on the stack; other statements as they are."""
    if not isinstance(statement, tirx.AllocBuffer) or statement.buffer.scope() != _LOCAL:
        return [statement]
    buffer = statement.buffer
    bits = bits_of(str(buffer.dtype))
    for extent in buffer.shape:
        bits *= int(extent)
    kind = PointerType(PrimType(str(buffer.dtype)), _LOCAL)
    memory = T.tvm_stack_alloca(_ELEMENT, -(-bits // _BITS))
    words, place = Var(f"{buffer.name}_words", memory.ty), Var(f"{buffer.name}_place", kind)
    return [
        tirx.Bind(words, memory),
        tirx.Bind(place, T.reinterpret(kind, words)),
        tirx.DeclBuffer(buffer, data=place),
    ]
