"""What models compute between the two matmuls of an attention: scales, masks, softmax, guards.

``softmax(matmul(q, k) * scale + bias)`` as frontends and models write it; a tanh may cap the
scaled product. The scale may be a factor of the product, or of q and of k before it (PyTorch gives
each its root, so that float16 does not overflow). A mask is added, or chosen by ``where``. Behind
the softmax PyTorch has rows of zeros where a mask leaves no key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir import Op
from tvm.ir.expr import GenericConst
from tvm.tirx import IntImm

from warploom.relax.attention import DTYPES
from warploom.relax.summed_bias import SummedBias, Term
from warploom.relax.visiting import bound, operator_name

#: A logit this low has no weight beside any other one, whatever is added to it.
_NO_WEIGHT = -1e30
#: A product, the constant that it is multiplied by, and the soft cap of the result.
_Product = tuple[relax.Call, float, float | None]
#: Operators that keep elements, through which a factor is taken out of an operand.
_MOVES = ("relax.permute_dims", "relax.reshape")


@dataclass(frozen=True)
class Logits:
    """``matmul(q, turned_keys) * scale + bias``, of keys that a mask leaves.

    Attributes
    ----------
    q, turned_keys : Expr
    scale : float
    bias : Expr or None
        What is added to scaled logits, of up to as many dimensions.
    mask : Expr or None
        Which logits stay: booleans; others are minus infinity.
    causal : str or None
        The mask in a word, as ``causal_mask`` of ``relax.op.nn.attention``.
    soft_cap : float or None
        Scaled logits become ``soft_cap * tanh(logit / soft_cap)`` before the bias is added.
    """

    q: relax.Expr
    turned_keys: relax.Expr
    scale: float
    bias: relax.Expr | None = None
    mask: relax.Expr | None = None
    causal: str | None = None
    soft_cap: float | None = None


class SoftmaxReader:
    """Reads expressions of a function that a mutator is in.

    Parameters
    ----------
    mutator : PyExprMutator
        Knows what variables are bound to, and gets the operands without their factors.
    """

    def __init__(self, mutator: relax.PyExprMutator) -> None:
        self.mutator = mutator

    def called(self, name: str, expr: relax.Expr) -> relax.Call | None:
        """The call of an operator that an expression is."""
        found = bound(self.mutator, expr)
        return found if isinstance(found, relax.Call) and found.op == Op.get(name) else None

    def softmax(self, weights: relax.Expr) -> relax.Call | None:
        """The softmax along the last dimension that computes weights."""
        expr = self._uncast(weights)
        chosen = self.called("relax.where", expr)
        if chosen is not None:
            if not self._is_zero(chosen.args[1]):
                return None
            expr = self._uncast(chosen.args[2])
        softmax = self.called("relax.nn.softmax", expr)
        if softmax is None or not _along_last(softmax):
            return None
        guarded = chosen is None or self._has_no_key(chosen.args[0], softmax.args[0])
        return softmax if guarded else None

    def logits(self, expr: relax.Expr) -> Logits | None:
        """The logits that a softmax is of; None if no matmul computes them."""
        expr, bias, mask = self._uncast(expr), None, None
        chosen = self.called("relax.where", expr)
        if chosen is not None:
            mask = self._mask(chosen)
            if mask is None:
                return None
            expr = self._uncast(chosen.args[2 if mask[1] else 1])
        found = self._sum(expr)
        if found is None:
            return None
        (product, scale, cap), terms = found
        if terms:
            bias = SummedBias(self.mutator.builder_.emit).of(terms, product)
            if bias is None:
                return None
        q, of_q = self._without_factor(product.args[0])
        keys, of_keys = self._without_factor(product.args[1])
        shape = [getattr(one.ty.shape, "values", None) for one in (q, keys)]
        causal = None
        if mask is None and bias is not None and None not in shape:
            causal = _causal(bound(self.mutator, bias), shape[0][-2], shape[1][-1])
        kept = None if mask is None else self._kept(*mask)
        return Logits(
            q, keys, scale * of_q * of_keys, None if causal else bias, kept, causal, cap
        )

    def _uncast(self, expr: relax.Expr) -> relax.Expr:
        while (cast := self.called("relax.astype", expr)) is not None:
            expr = cast.args[0]
        return expr

    def _sum(self, expr: relax.Expr) -> tuple[_Product, list[Term]] | None:
        """A product and what is added to it, perhaps where its batches are several dimensions."""
        expr = self._uncast(expr)
        found = self._capped(expr)
        if found is not None:
            return found, []
        reshape = self.called("relax.reshape", expr)
        if reshape is not None:
            return self._sum(reshape.args[0]) if _splits_batch(reshape) else None
        added = self.called("relax.add", expr)
        for number in range(2 if added is not None else 0):
            found = self._sum(added.args[number])
            if found is not None:
                return found[0], [*found[1], Term(added.args[1 - number], added.ty.shape)]
        return None

    def _capped(self, expr: relax.Expr) -> _Product | None:
        """A product, the constant that it is multiplied by, and the soft cap of the result."""
        outer, expr = self._factors(expr)
        tanh = self.called("relax.tanh", expr)
        if tanh is None:
            return self._product(expr, outer, None)
        if outer <= 0:
            return None
        inner, expr = self._factors(tanh.args[0])
        return self._product(expr, outer * inner, outer)

    def _product(self, expr: relax.Expr, scale: float, cap: float | None) -> _Product | None:
        product = self.called("relax.matmul", expr)
        return None if product is None else (product, scale, cap)

    def _factors(self, expr: relax.Expr) -> tuple[float, relax.Expr]:
        """The constant that an expression is multiplied by, and the rest; casts are left out."""
        scale = 1.0
        while (found := self._factor(expr := self._uncast(expr))) is not None:
            expr, factor = found
            scale *= factor
        return scale, expr

    def _factor(self, expr: relax.Expr) -> tuple[relax.Expr, float] | None:
        """A tensor and the number that it is multiplied by; None if it is no such product."""
        times, over = (self.called(f"relax.{op}", expr) for op in ("multiply", "divide"))
        call = over if times is None else times
        if call is None:
            return None
        factor, tensor = self._number(call.args[1]), call.args[0]
        if factor is None and times is not None:
            factor, tensor = self._number(call.args[0]), call.args[1]
        if not factor or len(tensor.ty.shape.values) != len(call.ty.shape.values):
            return None
        return tensor, 1 / factor if times is None else factor

    def _without_factor(self, operand: relax.Expr) -> tuple[relax.Expr, float]:
        """An operand of 16 bits before it was multiplied by a number, and that number."""
        dtype = str(operand.ty.dtype)
        if dtype not in DTYPES or not self._has_factor(operand):
            return operand, 1.0
        return self._unscaled(operand, dtype)

    def _has_factor(self, expr: relax.Expr) -> bool:
        while self._factor(expr) is None:
            call = bound(self.mutator, expr)
            name = operator_name(call)
            if name not in ("relax.astype", *_MOVES):
                return False
            expr = call.args[0]
        return True

    def _unscaled(self, expr: relax.Expr, dtype: str) -> tuple[relax.Expr, float]:
        """A tensor of a type, and the factor it had; what is wider is rounded before that."""
        found = self._factor(expr)
        if found is not None:
            inner = self._unscaled(found[0], dtype)
            return inner[0], inner[1] * found[1]
        call = bound(self.mutator, expr)
        name = operator_name(call)
        if name == "relax.astype":
            return self._unscaled(call.args[0], dtype)
        if name in _MOVES:
            inner = self._unscaled(call.args[0], dtype)
            if inner[0] is not call.args[0]:
                moved = relax.Call(call.op, [inner[0], *list(call.args)[1:]], call.attrs)
                return self.mutator.builder_.emit(moved), inner[1]
        if str(expr.ty.dtype) != dtype:
            expr = self.mutator.builder_.emit(relax.op.astype(expr, dtype))
        return expr, 1.0

    def _mask(self, chosen: relax.Call) -> tuple[relax.Expr, bool] | None:
        """A mask, and whether it says which logits are left out instead of which stay."""
        for place, out in ((2, False), (1, True)):
            number = self._number(chosen.args[place])
            if number is not None and number <= _NO_WEIGHT:
                return chosen.args[0], out
        return None

    def _kept(self, mask: relax.Expr, out: bool) -> relax.Expr:
        return self.mutator.builder_.emit(relax.op.logical_not(mask)) if out else mask

    def _number(self, expr: relax.Expr) -> float | None:
        """The value that all elements of an expression have."""
        expr = self._uncast(expr)
        for name in ("relax.full", "relax.full_like"):
            full = self.called(name, expr)
            if full is not None:
                return self._number(full.args[1])
        found = bound(self.mutator, expr)
        if not isinstance(found, GenericConst):
            return None
        value = found.value.numpy()
        return float(value.reshape(-1)[0]) if value.size == 1 else None

    def _is_zero(self, expr: relax.Expr) -> bool:
        if self._number(expr) == 0:
            return True
        found = bound(self.mutator, self._uncast(expr))
        return isinstance(found, GenericConst) and not found.value.numpy().any()

    def _has_no_key(self, condition: relax.Expr, logits: relax.Expr) -> bool:
        """Whether a condition says of a row that all its logits are minus infinity."""
        expr, turns, largest = condition, 0, False
        while True:
            expr = self._uncast(expr)
            call = bound(self.mutator, expr)
            name = operator_name(call)
            if name == "relax.logical_not":
                turns += 1
            elif name == "relax.reshape" and _same_rows(call):
                pass
            elif name == "relax.max" and turns == 1 and not largest:
                largest = True
            elif name == "relax.equal":
                number = self._number(call.args[1])
                same = self._is_same(call.args[0], logits)
                return turns == 2 and largest and number == -math.inf and same
            else:
                return False
            expr = call.args[0]

    def _is_same(self, one: relax.Expr, other: relax.Expr) -> bool:
        """Whether two expressions are one tensor, but for casts."""
        one, other = self._uncast(one), self._uncast(other)
        return one.same_as(other) or tvm_ffi.structural_equal(
            bound(self.mutator, one), bound(self.mutator, other), map_free_vars=False
        )


def _same_rows(reshape: relax.Call) -> bool:
    """Whether a reshape adds or leaves out nothing but dimensions of one element in front."""
    shapes = []
    for one in (reshape, reshape.args[0]):
        extents = list(getattr(one.ty.shape, "values", None) or ())
        while extents and isinstance(extents[0], IntImm) and extents[0].value == 1:
            del extents[0]
        shapes.append(extents)
    return tvm_ffi.structural_equal(*shapes)


def _splits_batch(reshape: relax.Call) -> bool:
    """Whether a reshape of logits keeps all but the dimensions of the batch."""
    shapes = [getattr(one.ty.shape, "values", None) for one in (reshape, reshape.args[0])]
    if None in shapes or min(map(len, shapes)) < 4:
        return False
    return tvm_ffi.structural_equal(*(list(shape)[-3:] for shape in shapes))


def _along_last(softmax: relax.Call) -> bool:
    axis, count = int(softmax.attrs.axis), len(softmax.ty.shape.values)
    return axis % count == count - 1


def _causal(bias: relax.Expr, queries: Any, keys: Any) -> str | None:
    """The causal mask that a constant is: 0 for keys up to the query's place, else no weight."""
    if not isinstance(bias, GenericConst):
        return None
    sizes = [int(size) if hasattr(size, "value") else None for size in (queries, keys)]
    values = bias.value.numpy()
    if None in sizes or values.size != math.prod(sizes) or list(values.shape[-2:]) != sizes:
        return None
    values = values.reshape(sizes)
    for word, ahead in (("TopLeft", 0), ("BottomRight", sizes[1] - sizes[0])):
        seen = np.tri(*sizes, ahead, dtype=bool)
        if ahead >= 0 and not values[seen].any() and (values[~seen] <= _NO_WEIGHT).all():
            return word
    return None
