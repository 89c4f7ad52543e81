"""Sums of large pictures, channel by channel, in steps: along lines, and then of the lines.

A row kernel reduces a picture as a window, element after element. Of 56 x 56 pixels that takes
long, and the elements of a result are few: most SMs would be idle. So a reduction over several axes
before the last becomes one of each, innermost first. Sums that pass between them are float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import tvm
from tvm import relax
from tvm.tirx import IntImm

from warploom.relax.keep_gates_apart import shape_of
from warploom.relax.visiting import operator_name, visited
from warploom.rows.windows import MOST_STEPS

#: Reductions that are the same in steps; a mean is a sum that is divided at last, as TVM fuses what
#: comes before a sum alone.
_MEAN = "relax.mean"
_STEPWISE = {
    "relax.sum": relax.op.sum, _MEAN: relax.op.sum, "relax.max": relax.op.max,
    "relax.min": relax.op.min,
}  # fmt: skip
_NARROW, _WIDE = ("float16", "bfloat16"), "float32"


def SplitReductions() -> tvm.transform.Pass:
    """A pass that reduces several axes, of more elements than a window has, step by step.

    To be run before ``LegalizeOps``. The last axis of a tensor is none of them, and all are known.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.SplitReductions")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Splitter(mod))

    return run


@relax.expr_functor.mutator
class _Splitter(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        reduce = _STEPWISE.get(operator_name(call))
        steps = list(_steps(call)) if reduce is not None else []
        if len(steps) < 2:
            return call
        (value,), dtype = call.args, str(call.args[0].ty.dtype)
        rounds = dtype in _NARROW and reduce is relax.op.sum
        wide, shape, emit = _WIDE if rounds else dtype, shape_of(value), self.builder_.emit
        if rounds:
            value = emit(relax.op.astype(value, wide))
        for axes in steps:
            value = emit(reduce(value, axes, bool(call.attrs.keepdims)))
        if operator_name(call) == _MEAN:
            count = math.prod(int(shape[axis]) for axes in steps for axis in axes)
            value = emit(relax.op.divide(value, relax.const(count, wide)))
        return relax.op.astype(value, dtype) if rounds else value


def _steps(call: relax.Call) -> Iterator[list[int]]:
    """Axes that are reduced together, innermost first; none if one step is as good, or must do."""
    shape = shape_of(call.args[0]) or []
    axes = sorted(int(axis) % len(shape) for axis in call.attrs.axis or ()) if shape else []
    sizes = {axis: int(shape[axis]) for axis in axes if isinstance(shape[axis], IntImm)}
    if not axes or axes[-1] == len(shape) - 1 or len(sizes) < len(axes):
        return
    if math.prod(sizes.values()) <= MOST_STEPS:
        return
    together: list[int] = []
    for axis in reversed(axes):
        if together and sizes[axis] * math.prod(sizes[one] for one in together) > MOST_STEPS:
            yield together
            together = []
        together = [axis, *together]
    yield together
