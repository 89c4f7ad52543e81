"""A product that many elements share is a kernel of its own, and not computed for each of them.

Squeeze-and-excitation multiplies an image by a gate for each channel, which a matmul computes of
the image's means. TVM's ``FuseOps`` takes the multiplication for an epilogue of that matmul, and
every pixel would sum its products again.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, topi
from tvm.tirx import IntImm

from warploom.relax.visiting import bound, operator_name, visited

#: ``OpPatternKind.kOpaque`` of TVM: a function that is fused with no other.
OPAQUE = 8
#: Operators of two tensors, and what computes them.
_BROADCASTS = {
    "relax.multiply": topi.multiply, "relax.add": topi.add, "relax.subtract": topi.subtract,
    "relax.divide": topi.divide, "relax.maximum": topi.maximum, "relax.minimum": topi.minimum,
}  # fmt: skip
_PRODUCTS = frozenset(
    {"relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d"}
)
#: Operators that FuseOps joins to a product: of each element, or none.
EPILOGUES = frozenset({
    *_BROADCASTS, *(f"relax.{name}" for name in (
        "sigmoid", "tanh", "exp", "clip", "astype", "negative", "abs", "nn.relu", "nn.silu",
        "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu",
    )),
})  # fmt: skip


def KeepGatesApart() -> tvm.transform.Pass:
    """A pass that keeps what is broadcast from being fused with the product that computes it.

    To be run before ``LegalizeOps``, behind passes that look for the operators of
    ``relax.multiply`` and kin: one whose operand is a product, and is smaller than the result,
    becomes a function that ``FuseOps`` leaves alone.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.KeepGatesApart")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Keeper(mod))

    return run


@relax.expr_functor.mutator
class _Keeper(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        compute = _BROADCASTS.get(operator_name(call))
        if compute is None:
            return call
        result = shape_of(call)
        gates = (arg for arg in call.args if is_broadcast(shape_of(arg), result))
        if result is None or not any(self._is_product(gate) for gate in gates):
            return call
        return self.builder_.call_te(compute, *call.args, primfunc_attrs={"op_pattern": OPAQUE})

    def _is_product(self, expr: relax.Expr) -> bool:
        """Whether an expression is a product with an epilogue of its own size."""
        call = bound(self, expr)
        name = operator_name(call)
        if name in _PRODUCTS:
            return True
        if name not in EPILOGUES:
            return False
        whole = (arg for arg in call.args if not is_broadcast(shape_of(arg), shape_of(call)))
        return any(self._is_product(arg) for arg in whole)


def shape_of(expr: relax.Expr) -> list[Any] | None:
    """The extents of a tensor; None where its shape is not known."""
    values = getattr(getattr(expr.ty, "shape", None), "values", None)
    return None if values is None else list(values)


def is_broadcast(shape: list[Any] | None, result: list[Any] | None) -> bool:
    """Whether a tensor has fewer elements than what it is broadcast to."""
    return bool(repeated_axes(shape, result))


def repeated_axes(shape: list[Any] | None, result: list[Any] | None) -> set[int]:
    """Axes of a result, counted from the last, -1, along which it repeats a tensor's elements."""
    if shape is None or result is None:
        return set()
    shape = [IntImm("int64", 1)] * (len(result) - len(shape)) + shape
    return {
        axis - len(result) for axis, (mine, whole) in enumerate(zip(shape, result, strict=True))
        if isinstance(mine, IntImm) and mine.value == 1
        and not (isinstance(whole, IntImm) and whole.value == 1)
    }  # fmt: skip
