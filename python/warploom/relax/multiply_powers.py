"""``power(x, 3)`` becomes ``x * x * x``: right for negative numbers and part of its neighbours.

TVM has CUDA compiled with fast mathematics, where a power is ``exp2(y * log2(x))``: that of a
negative number is not a number (CUDA programming guide, "Intrinsic Functions", ``__powf``). The
norms of models that PyTorch exports are written with ``pow(2)``, and GELUs with ``pow(3)``.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import Op
from tvm.ir.expr import GenericConst

from warploom.relax.visiting import bound, visited

#: Exponents that are written out; a power of 8 takes three multiplications.
_EXPONENTS = range(1, 9)
#: Types whose products of more than two factors would round once a factor.
_NARROW = frozenset({"float16", "bfloat16"})


def MultiplyPowers() -> tvm.transform.Pass:
    """A pass that multiplies where a tensor is raised to the power of a small whole constant.

    Exponents from 1 to 8 are taken, as a scalar. Factors of 16 bits are multiplied in float32 if
    there are more than two of them, and the product is rounded once.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.MultiplyPowers")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Multiplier(mod))

    return run


@relax.expr_functor.mutator
class _Multiplier(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if call.op != Op.get("relax.power"):
            return call
        exponent = _whole(bound(self, call.args[1]))
        if exponent not in _EXPONENTS:
            return call
        dtype = str(call.ty.dtype)
        if exponent < 3 or dtype not in _NARROW:
            return self._power(call.args[0], exponent)
        wide = self.builder_.emit(relax.op.astype(call.args[0], "float32"))
        return relax.op.astype(self.builder_.emit(self._power(wide, exponent)), dtype)

    def _power(self, factor: relax.Expr, exponent: int) -> relax.Expr:
        """By squares: as few multiplications as the exponent has digits in base 2."""
        if exponent == 1:
            return factor
        half = self._power(factor, exponent // 2)
        if exponent > 3:
            half = self.builder_.emit(half)
        square = relax.op.multiply(half, half)
        if exponent % 2 == 0:
            return square
        return relax.op.multiply(self.builder_.emit(square), factor)


def _whole(exponent: relax.Expr) -> int | None:
    """The whole number that a scalar constant, which changes no shape, has as its value."""
    if not isinstance(exponent, GenericConst) or len(exponent.value.shape):
        return None
    value = float(exponent.value.numpy())
    return int(value) if value.is_integer() else None
