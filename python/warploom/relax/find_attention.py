"""``matmul(softmax(matmul(q, k) * scale + bias), v)`` becomes ``R.nn.attention``.

Models whose attention is written out, and frontends that decompose it, leave two products and a
softmax, with all logits in memory between them. Casts on the way are left out: the tile program
keeps logits and weights in float32 until the weights are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op
from tvm.ir.expr import GenericConst
from tvm.target import Target
from tvm.tirx import FloatImm

from warploom.errors import Decline
from warploom.relax.attention import check_attention
from warploom.relax.visiting import bound, visited
from warploom.target import SM90A

#: By the number of dimensions: the order that makes tokens the second of them, of q, of the keys
#: along the first product, and of v.
_ORDERS = {
    4: ((0, 2, 1, 3), (0, 3, 1, 2), (0, 2, 1, 3)),
    3: ((0, 1, 2), (0, 2, 1), (0, 1, 2)),
    2: ((0, 1), (1, 0), (0, 1)),
}


def FindAttention() -> tvm.transform.Pass:
    """A pass that calls ``R.nn.attention`` where a model has its products and softmax.

    To be run before ``LegalizeOps``, :func:`~warploom.relax.permutations.JoinPermutations` and
    :func:`~warploom.relax.attention.CallAttention`, which takes what this finds: what it would
    decline stays as it is.

    Tensors are ``[batch, heads, tokens, elements]``, or have fewer dimensions before the tokens.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.FindAttention")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        target = Target.current(allow_none=True)
        if target is None or str(target.attrs.get("arch", "")) != SM90A.name:
            return mod
        return visited(mod, _Finder(mod), clean=True)

    return run


@dataclass(frozen=True)
class _Logits:
    """``matmul(q, turned_keys) * scale + bias``."""

    q: relax.Expr
    turned_keys: relax.Expr
    scale: float
    bias: relax.Expr | None


@relax.expr_functor.mutator
class _Finder(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        weights = self._called("relax.matmul", call)
        if weights is None:
            return call
        softmax = self._called("relax.nn.softmax", self._uncast(weights.args[0]))
        if softmax is None or not _along_last(softmax):
            return call
        logits = self._logits(softmax.args[0])
        made = None if logits is None else self._attention(logits, call.args[1], call)
        return call if made is None else made

    def _called(self, name: str, expr: relax.Expr) -> relax.Call | None:
        """The call of an operator that an expression is."""
        found = bound(self, expr)
        return found if isinstance(found, relax.Call) and found.op == Op.get(name) else None

    def _uncast(self, expr: relax.Expr) -> relax.Expr:
        while (cast := self._called("relax.astype", expr)) is not None:
            expr = cast.args[0]
        return expr

    def _logits(self, expr: relax.Expr) -> _Logits | None:
        expr, bias = self._uncast(expr), None
        added = self._called("relax.add", expr)
        if added is not None:
            sides = [self._scaled(one) for one in added.args]
            product, bias = (0, 1) if sides[0] is not None else (1, 0)
            found, bias = sides[product], added.args[bias]
        else:
            found = self._scaled(expr)
        if found is None:
            return None
        product, scale = found
        return _Logits(product.args[0], product.args[1], scale, bias)

    def _scaled(self, expr: relax.Expr) -> tuple[relax.Call, float] | None:
        """A product and the constant that it is multiplied by."""
        scale = 1.0
        while True:
            expr = self._uncast(expr)
            product = self._called("relax.matmul", expr)
            if product is not None:
                return product, scale
            times, over = (self._called(f"relax.{op}", expr) for op in ("multiply", "divide"))
            call = over if times is None else times
            if call is None:
                return None
            factor, expr = _number(call.args[1]), call.args[0]
            if factor is None and times is not None:
                factor, expr = _number(call.args[0]), call.args[1]
            if not factor:
                return None
            scale = scale / factor if times is None else scale * factor

    def _attention(
        self, logits: _Logits, v: relax.Expr, call: relax.Call
    ) -> relax.Expr | None:
        operands = [logits.q, logits.turned_keys, v]
        if logits.bias is not None:
            operands.append(logits.bias)
        shapes = [getattr(getattr(one.ty, "shape", None), "values", None) for one in operands]
        if any(shape is None for shape in shapes):
            return None
        count = len(shapes[0])
        if any(len(shape) != count for shape in shapes[1:3]) or len(shapes[-1]) > count:
            return None
        if count not in _ORDERS:
            return None
        orders = [*_ORDERS[count], tuple(range(count))][: len(operands)]
        # Of a bias, dimensions that it is broadcast along are missing.
        shapes = [[*[1] * (count - len(shape)), *shape] for shape in shapes]
        turned = [[shape[axis] for axis in order]
                  for shape, order in zip(shapes, orders, strict=True)]  # fmt: skip
        whole = [_with_heads(shape, number < 3) for number, shape in enumerate(turned)]
        types = [relax.TensorType(shape, one.ty.dtype)
                 for one, shape in zip(operands, whole, strict=True)]  # fmt: skip
        try:
            check_attention(_call([relax.Var("x", ty) for ty in types], logits.scale))
        except Decline:
            return None
        for number, order in enumerate(orders):
            if order != tuple(range(count)):
                operands[number] = self._emit(relax.op.permute_dims(operands[number], order))
            if len(operands[number].ty.shape.values) != len(whole[number]):
                operands[number] = self._emit(relax.op.reshape(operands[number], whole[number]))
        found = self._emit(_call(operands, logits.scale))
        if count == 4:
            found = self._emit(relax.op.permute_dims(found, _ORDERS[count][0]))
        else:
            found = self._emit(relax.op.reshape(found, call.ty.shape))
        dtype = call.ty.dtype
        return found if str(found.ty.dtype) == str(dtype) else relax.op.astype(found, dtype)

    def _emit(self, expr: relax.Expr) -> relax.Var:
        return self.builder_.emit(expr)


def _call(operands: list[relax.Expr], scale: float) -> relax.Call:
    # TVM multiplies logits, which have the type of operands, by a constant of this type.
    return relax.op.nn.attention(*operands, scale=FloatImm(operands[0].ty.dtype, scale))


def _with_heads(shape: list[Any], tokens_first: bool) -> list[Any]:
    """Sizes with four dimensions: a batch and heads that are missing are 1.

    A single dimension before the tokens is the batch: that of heads may not be dynamic.
    """
    if len(shape) == 4:
        return shape
    *outer, tokens, elements = shape
    batch = outer[0] if outer else 1
    return [batch, tokens, 1, elements] if tokens_first else [batch, 1, tokens, elements]


def _along_last(softmax: relax.Call) -> bool:
    axis, count = int(softmax.attrs.axis), len(softmax.ty.shape.values)
    return axis % count == count - 1


def _number(expr: relax.Expr) -> float | None:
    """The value of a constant of one element."""
    if not isinstance(expr, GenericConst):
        return None
    value = expr.value.numpy()
    return float(value.reshape(())) if value.size == 1 else None
