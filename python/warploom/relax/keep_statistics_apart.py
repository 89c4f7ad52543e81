"""A statistic that is repeated along other axes than it sums is a kernel of its own.

A layer norm uses the mean of a row in that row: both are one kernel. The global response norm of
ConvNeXt-V2 divides the magnitude of each channel by the mean of all channels of its image, and
scales every pixel by the result. TVM's ``FuseOps`` takes the scaling for an epilogue of the mean,
and the function is then none of rows: the mean has a number for an image, and the result a row for
a pixel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax

from warploom.relax.joining import is_call_tir
from warploom.relax.keep_gates_apart import EPILOGUES, OPAQUE, repeated_axes, shape_of
from warploom.relax.visiting import bound, operator_name, visited

_REDUCTIONS = frozenset(
    f"relax.{name}" for name in ("sum", "mean", "max", "min", "prod", "variance", "std")
)
#: Operators that compute an element of elements at its place.
_ELEMENTWISE = EPILOGUES | {
    f"relax.{name}" for name in ("sqrt", "rsqrt", "log", "power", "square", "erf", "floor")
}


def KeepStatisticsApart() -> tvm.transform.Pass:
    """A pass that keeps what scales a tensor from being fused with it, where both are no rows.

    To be run before ``LegalizeOps``: an operator whose result is repeated along an axis that a
    reduction behind it does not sum becomes a function that ``FuseOps`` leaves alone.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.KeepStatisticsApart")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Keeper(mod), clean=True)

    return run


@relax.expr_functor.mutator
class _Keeper(relax.PyExprMutator):
    """Emits a statistic anew, as a function by itself, for the operator that repeats it."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        result = shape_of(call)
        if operator_name(call) not in EPILOGUES or result is None:
            return call
        arguments = [self._apart(arg, result) for arg in call.args]
        if all(made is given for made, given in zip(arguments, call.args, strict=True)):
            return call
        return relax.Call(call.op, arguments, call.attrs)

    def _apart(self, arg: relax.Expr, result: list[Any]) -> relax.Expr:
        """An operand, or the result of a function that nothing is fused with."""
        made, repeated = bound(self, arg), repeated_axes(shape_of(arg), result)
        if not repeated or all(repeated <= summed for summed in self._summed(made)):
            return arg
        called = made.op.get_attr("FLegalize")(self.builder_, made)
        if not is_call_tir(called):
            return arg
        func = self.builder_.get()[called.args[0]].with_attr("op_pattern", OPAQUE)
        variable = self.builder_.add_func(func, called.args[0].name_hint)
        return self.builder_.emit(relax.call_tir(variable, called.args[1], made.ty))

    def _summed(self, expr: relax.Expr) -> Iterator[set[int]]:
        """Axes, from the last, of the reductions that an element is computed of."""
        call = bound(self, expr)
        name = operator_name(call)
        if name in _REDUCTIONS:
            rank, axes = len(shape_of(call.args[0]) or ()), call.attrs.axis
            if call.attrs.keepdims and rank:
                every = range(rank) if axes is None else (int(axis) for axis in axes)
                yield {axis % rank - rank for axis in every}
        elif name in _ELEMENTWISE:
            for arg in call.args:
                yield from self._summed(arg)
