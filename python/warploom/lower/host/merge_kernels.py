"""One kernel for all functions of a module that need the same.

A model computes the same GEMM on several ways, such as that of its prompt and that of its decoding.
Their hosts differ, as the shapes of their tensors do, and their kernels differ in nothing but
names. TVM has split host and device here: a kernel depends on its parameters and its launch alone.
The extents of its grid, which may still name sizes of the host, are arguments of the launch.

TVM orders the parameters of a kernel by their names, so that ``n`` of one function stands elsewhere
than ``b`` of another. Kernels are compared with their parameters in the order of their first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm.ir import Call, Op, StringImm
from tvm.tirx import PrimFunc
from tvm.tirx.analysis import undefined_vars

from warploom.lower.host.kernels import is_kernel

_LAUNCH, _NAME = "tirx.call_ffi_kernel", "global_symbol"


def MergeEqualKernels() -> tvm.transform.Pass:
    """A pass after which equal kernels are one, which has the name of the first."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.MergeEqualKernels")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        kernels = EqualKernels()
        kept = {v: function for v, function in mod.functions.items() if kernels.keeps(function)}
        return mod if len(kept) == len(mod.functions) else kernels.launched(kept, mod.attrs)

    return run


@dataclass(frozen=True)
class _Kernel:
    """A kernel without its name and with its parameters in the order of their first use.

    ``order[i]`` is the position, among the parameters that TVM gave it, of the i-th of ``form``.
    """

    name: str
    form: PrimFunc
    order: tuple[int, ...]

    @staticmethod
    def of(function: PrimFunc) -> _Kernel:
        params = list(function.params)
        places = (_position(variable, params) for variable in undefined_vars(function.body))
        used = [place for place in places if place is not None]
        order = (*used, *(place for place in range(len(params)) if place not in used))
        ordered = [params[position] for position in order]
        form = PrimFunc(ordered, function.body, function.ret_type, function.attrs)
        return _Kernel(str(function.attrs[_NAME]), form.without_attr(_NAME), order)


@dataclass(frozen=True)
class _Merged:
    """The kernel that is launched in place of another.

    ``sources[i]`` is the position, in the other's launch, of its i-th argument.
    """

    name: str
    sources: tuple[int, ...]

    @staticmethod
    def into(first: _Kernel, other: _Kernel) -> _Merged:
        sources = [0] * len(first.order)
        for ours, theirs in zip(first.order, other.order, strict=True):
            sources[ours] = theirs
        return _Merged(first.name, tuple(sources))


def _position(variable: Any, params: list[Any]) -> int | None:
    return next((i for i, param in enumerate(params) if param.same_as(variable)), None)


class EqualKernels:
    """Kernels of a module one by one: the first of each kind is kept, and the others are it."""

    def __init__(self) -> None:
        self._firsts: dict[int, list[_Kernel]] = {}
        self._merged: dict[str, _Merged] = {}

    def keeps(self, function: Any) -> bool:
        """Whether a function stays in the module: all but kernels that equal an earlier one."""
        if not is_kernel(function):
            return True
        kernel = _Kernel.of(function)
        key = tvm_ffi.structural_hash(kernel.form, map_free_vars=True)
        alike = self._firsts.setdefault(key, [])
        for first in alike:
            if tvm_ffi.structural_equal(first.form, kernel.form, map_free_vars=True):
                self._merged[kernel.name] = _Merged.into(first, kernel)
                return False
        alike.append(kernel)
        return True

    def launched(self, kept: Mapping[Any, Any], attrs: Any) -> tvm.IRModule:
        """The module of the functions that stay: hosts launch the kernels that were kept."""
        functions = {
            variable: function if is_kernel(function) else _launching(function, self._merged)
            for variable, function in kept.items()
        }
        return tvm.IRModule(functions, attrs=attrs)


def _launching(function: Any, merged: Mapping[str, _Merged]) -> Any:
    """A host function that launches merged kernels by their new names."""
    if not isinstance(function, PrimFunc):
        return function

    def launch(call: Call) -> Any:
        if not (isinstance(call.op, Op) and call.op.name == _LAUNCH):
            return call
        name, *arguments = call.args
        new = merged.get(str(name.value))
        if new is None:
            return call
        extents = arguments[len(new.sources) :]
        ordered = [arguments[source] for source in new.sources]
        args = [StringImm(new.name), *ordered, *extents]
        return Call(call.op, args, call.attrs, call.ty_args, call.span, call.ty)

    body = tvm_ffi.structural_map(function.body, (Call, launch), order="post")
    return function if body.same_as(function.body) else function.with_body(body)
