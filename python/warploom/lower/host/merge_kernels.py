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
        known = EqualKernels()
        merged: dict[str, _Merged] = {}
        kept: dict[Any, Any] = {}
        for variable, function in mod.functions.items():
            if is_kernel(function):
                first, kernel = known.first_like(function)
                if first is not kernel:
                    merged[kernel.name] = _Merged.into(first, kernel)
                    continue
            kept[variable] = function
        if not merged:
            return mod
        functions = {
            variable: function if is_kernel(function) else _launching(function, merged)
            for variable, function in kept.items()
        }
        return tvm.IRModule(functions, attrs=mod.attrs)

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
    """Kernels that were seen, to tell those that equal an earlier one."""

    def __init__(self) -> None:
        self._firsts: dict[int, list[_Kernel]] = {}

    def has(self, function: PrimFunc) -> bool:
        """Whether an equal kernel was seen; this one now is, too."""
        first, kernel = self.first_like(function)
        return first is not kernel

    def first_like(self, function: PrimFunc) -> tuple[_Kernel, _Kernel]:
        """The first kernel that equals this one, and this one; the same if it is the first."""
        kernel = _Kernel.of(function)
        key = tvm_ffi.structural_hash(kernel.form, map_free_vars=True)
        alike = self._firsts.setdefault(key, [])
        for other in alike:
            if tvm_ffi.structural_equal(other.form, kernel.form, map_free_vars=True):
                return other, kernel
        alike.append(kernel)
        return kernel, kernel


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
