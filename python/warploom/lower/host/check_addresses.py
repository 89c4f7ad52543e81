"""Errors of the host that name the operand whose memory begins where TMA cannot read or write it.

A view may begin anywhere in its memory, for instance a slice of a PyTorch tensor. TVM's runtime
refuses its tensor map without a name. A check before that map comes too late: the host's compiler
then takes for granted that operands are aligned as they are declared.
"""

from __future__ import annotations

import re

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, StringImm
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, Stmt

from warploom.lower.host.kernels import is_kernel
from warploom.tile import ir

_ENCODE, _FIELD = "tirx.tensormap_encode_tiled", "tirx.tvm_struct_get"
#: Bytes that the address of a tensor map is a multiple of (CUDA driver API,
#: ``cuTensorMapEncodeTiled``).
_ALIGNED = 16
#: How TVM calls the map of an operand, and what it says of an operand that is nowhere.
_NAME, _NOWHERE = re.compile(r"_tensormap(_\d+)?$"), " data pointer is NULL"
_RULE = f"an address that is a multiple of {_ALIGNED} bytes; pass a copy of the view"
#: The field of a ``DLTensor`` that is its address (``tvm::tirx::builtin::kDLTensorData``).
_ADDRESS = 1


def CheckAddresses() -> tvm.transform.Pass:
    """A pass that lets host functions refuse operands at addresses that TMA does not take."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.CheckAddresses")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        functions = {
            variable: function if not isinstance(function, PrimFunc) or is_kernel(function)
            else function.with_body(_checked(function.body))
            for variable, function in mod.functions.items()
        }  # fmt: skip
        return tvm.IRModule(functions, attrs=mod.attrs)

    return run


def _checked(body: Stmt) -> Stmt:
    """A host's statements, with a check of each operand that has a tensor map."""
    maps = {_NAME.sub("", call.args[0].name) for call in _calls(body, _ENCODE)}

    def check(statement: tirx.AssertStmt) -> Stmt:
        parts = list(statement.message_parts)
        if len(parts) < 2 or not parts[1].value.startswith(_NOWHERE) or parts[0].value not in maps:
            return statement
        addresses = [
            call for call in _calls(statement.condition, _FIELD) if int(call.args[2]) == _ADDRESS
        ]
        fits = tirx.all(*(
            T.truncmod(T.reinterpret("uint64", address), T.uint64(_ALIGNED)) == T.uint64(0)
            for address in addresses
        ))  # fmt: skip
        words = [part.value.replace("non-NULL data pointer", _RULE) for part in parts[2:]]
        named = [parts[0], StringImm(" begins where TMA does not take it on argument #")]
        named += map(StringImm, words)
        return ir.seq([statement, tirx.AssertStmt(fits, statement.error_kind, named)])

    return tvm_ffi.structural_map(body, (tirx.AssertStmt, check), order="post") if maps else body


def _calls(node: object, op: str) -> list[Call]:
    """Calls of an operator."""
    found: list[Call] = []

    def visit(call: Call) -> None:
        if isinstance(call.op, Op) and call.op.name == op:
            found.append(call)

    tvm_ffi.structural_walk(node, (Call, visit))
    return found
