"""One kernel for all functions of a module that need the same.

A model computes the same GEMM on several ways, such as that of its prompt and that of its decoding.
Their hosts differ, as the shapes of their tensors do, and their kernels differ in nothing but
names. TVM has split host and device here: a kernel depends on its parameters and its launch alone.
The extents of its grid, which may still name sizes of the host, are arguments of the launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm.ir import Call, Op, StringImm
from tvm.tirx import PrimFunc

from warploom.lower.host.kernels import is_kernel

_LAUNCH, _NAME = "tirx.call_ffi_kernel", "global_symbol"


def MergeEqualKernels() -> tvm.transform.Pass:
    """A pass after which equal kernels are one, which has the name of the first."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.MergeEqualKernels")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        firsts: dict[int, list[PrimFunc]] = {}
        renamed: dict[str, str] = {}
        kept: dict[Any, Any] = {}
        for variable, function in mod.functions.items():
            if is_kernel(function):
                first = _first_like(function, firsts)
                if first is not None:
                    renamed[_name(function)] = _name(first)
                    continue
            kept[variable] = function
        if not renamed:
            return mod
        functions = {
            variable: function if is_kernel(function) else _launching(function, renamed)
            for variable, function in kept.items()
        }
        return tvm.IRModule(functions, attrs=mod.attrs)

    return run


def _first_like(kernel: PrimFunc, firsts: dict[int, list[PrimFunc]]) -> PrimFunc | None:
    """The first kernel that equals this one; None if this is the first, which is then noted."""
    nameless = kernel.without_attr(_NAME)
    alike = firsts.setdefault(tvm_ffi.structural_hash(nameless, map_free_vars=True), [])
    for other in alike:
        if tvm_ffi.structural_equal(other.without_attr(_NAME), nameless, map_free_vars=True):
            return other
    alike.append(kernel)
    return None


def _name(kernel: PrimFunc) -> str:
    return str(kernel.attrs[_NAME])


def _launching(function: Any, renamed: Mapping[str, str]) -> Any:
    """A host function that launches kernels by their new names."""
    if not isinstance(function, PrimFunc):
        return function

    def launch(call: Call) -> Any:
        if not (isinstance(call.op, Op) and call.op.name == _LAUNCH):
            return call
        name, *arguments = call.args
        if str(name.value) not in renamed:
            return call
        new = StringImm(renamed[str(name.value)])
        return Call(call.op, [new, *arguments], call.attrs, call.ty_args, call.span, call.ty)

    body = tvm_ffi.structural_map(function.body, (Call, launch), order="post")
    return function if body.same_as(function.body) else function.with_body(body)
