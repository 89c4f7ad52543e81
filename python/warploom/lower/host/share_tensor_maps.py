"""One tensor map for all copies that need the same.

TVM makes a map for every place in the code that copies by TMA
(:mod:`warploom.ops.tensor_map_keys`). A result that leaves in many chunks then costs the host an
encoding for each of them in every launch, and the kernel a parameter of 128 bytes and a fetch. TVM
has split host and device here: maps are variables of the host, and parameters of the kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.tirx import PrimFunc, Stmt, Var

from warploom.lower.host.kernels import is_kernel, is_tensor_map
from warploom.tile import ir

_ENCODE, _LAUNCH = "tirx.tensormap_encode_tiled", "tirx.call_ffi_kernel"


def ShareTensorMaps() -> tvm.transform.Pass:
    """A pass that lets kernels have each tensor map once."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.ShareTensorMaps")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        hosts = {
            variable: function.with_body(_shared(function.body))
            for variable, function in mod.functions.items()
            if isinstance(function, PrimFunc) and not is_kernel(function)
        }
        launches = [call for function in hosts.values() for call in _calls(function.body, _LAUNCH)]
        count = Counter(_kernel_of(call) for call in launches)
        # Where there are several launches, all would have to repeat the same maps.
        firsts = {
            _kernel_of(call): _firsts(list(call.args)[1:])
            for call in launches
            if count[_kernel_of(call)] == 1
        }
        functions = {
            variable: _with_fewer_parameters(function, firsts) if is_kernel(function)
            else _with_fewer_arguments(hosts[variable], firsts) if variable in hosts
            else function
            for variable, function in mod.functions.items()
        }  # fmt: skip
        return tvm.IRModule(functions, attrs=mod.attrs)

    return run


def _calls(body: Stmt, op: str) -> list[Call]:
    calls: list[Call] = []

    def visit(call: Call) -> None:
        if _is(call, op):
            calls.append(call)

    tvm_ffi.structural_walk(body, (Call, visit))
    return calls


def _is(node: Any, op: str) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.name == op


def _shared(body: Stmt) -> Stmt:
    """A host's statements with one map for those of a sequence that are encoded alike."""
    table: dict[Var, Var] = {}

    def sequence(old: tirx.SeqStmt) -> Stmt:
        encoded: list[Call] = []
        for statement in ir.flatten(old):
            if not (isinstance(statement, tirx.Evaluate) and _is(statement.value, _ENCODE)):
                continue
            same = next((earlier for earlier in encoded if _alike(statement.value, earlier)), None)
            if same is None:
                encoded.append(statement.value)
            else:
                table[statement.value.args[0]] = same.args[0]
        return ir.seq(node for node in ir.flatten(old) if not _defines(node, table))

    changed = tvm_ffi.structural_map(body, (tirx.SeqStmt, sequence), order="post")
    return ir.substitute(changed, table) if table else body


def _alike(call: Call, earlier: Call) -> bool:
    """Whether two maps are of the same memory, in the same way."""
    return tvm_ffi.structural_equal(call.attrs, earlier.attrs) and all(
        tvm_ffi.structural_equal(a, b)
        for a, b in zip(list(call.args)[1:], list(earlier.args)[1:], strict=True)
    )


def _defines(statement: Stmt, table: Mapping[Var, Var]) -> bool:
    """Whether a statement makes a map that another one replaces."""
    if isinstance(statement, tirx.Bind):
        return statement.var in table
    return (
        isinstance(statement, tirx.Evaluate)
        and _is(statement.value, _ENCODE)
        and statement.value.args[0] in table
    )


def _kernel_of(call: Call) -> str:
    return str(call.args[0].value)


def _firsts(arguments: list[Any]) -> list[int]:
    """For each argument its place, or that of the first one which is the same map."""
    maps: dict[Var, int] = {}
    return [
        maps.setdefault(argument, place) if is_tensor_map(argument) else place
        for place, argument in enumerate(arguments)
    ]


def _with_fewer_arguments(host: PrimFunc, firsts: Mapping[str, list[int]]) -> PrimFunc:
    def launch(call: Call) -> Any:
        places = firsts.get(_kernel_of(call)) if _is(call, _LAUNCH) else None
        if places is None:
            return call
        name, *arguments = call.args
        kept = [argument for place, argument in enumerate(arguments) if places[place] == place]
        return Call(call.op, [name, *kept], call.attrs, call.ty_args, call.span, call.ty)

    return host.with_body(tvm_ffi.structural_map(host.body, (Call, launch), order="post"))


def _with_fewer_parameters(kernel: PrimFunc, firsts: Mapping[str, list[int]]) -> PrimFunc:
    params = list(kernel.params)
    places = firsts.get(str(kernel.attrs["global_symbol"]), [])[: len(params)]
    table = {params[i]: params[first] for i, first in enumerate(places) if first != i}
    if not table:
        return kernel
    kept = [param for param in params if param not in table]
    body = ir.substitute(kernel.body, table)
    return PrimFunc(kept, body, kernel.ret_type, kernel.attrs, kernel.span)
