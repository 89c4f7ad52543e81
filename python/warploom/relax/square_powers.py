"""``power(x, 2)`` becomes ``x * x``: right for negative numbers, too, and part of its neighbours.

TVM has CUDA compiled with fast mathematics, where a power is ``exp2(y * log2(x))``: that of a
negative number is not a number (CUDA programming guide, "Intrinsic Functions", ``__powf``). The
norms of models that PyTorch exports are written with ``pow(2)``.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import Op
from tvm.ir.expr import GenericConst

from warploom.relax.visiting import visited


def SquarePowers() -> tvm.transform.Pass:
    """A pass that multiplies where a tensor is raised to the power of the constant 2."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.SquarePowers")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Squarer(mod))

    return run


@relax.expr_functor.mutator
class _Squarer(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op != Op.get("relax.power") or not _is_two(call.args[1]):
            return call
        return relax.op.multiply(call.args[0], call.args[0])


def _is_two(exponent: relax.Expr) -> bool:
    """Whether an expression is the scalar constant 2, which changes no shape."""
    if not isinstance(exponent, GenericConst) or len(exponent.value.shape):
        return False
    return float(exponent.value.numpy()) == 2
