"""``matmul(softmax(matmul(q, k) * scale + bias), v)`` becomes ``R.nn.attention``.

Where a tanh caps the logits, or batches have a bias in turn, it becomes the operator of
:mod:`warploom.relax.attention_operator`.

Models whose attention is written out, and frontends that decompose it, leave two products and a
softmax, with all logits in memory between them. Casts on the way are left out: the tile program
keeps logits and weights in float32 until the weights are multiplied. Scales, masks and what is
around the softmax are read by :mod:`warploom.relax.read_softmax`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.tirx import FloatImm, IntImm

from warploom.errors import Decline
from warploom.relax.attention import check_attention
from warploom.relax.attention_operator import attention_call, bias_batch
from warploom.relax.read_softmax import Logits, SoftmaxReader
from warploom.relax.visiting import is_for_hopper, visited

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
        if not is_for_hopper():
            return mod
        return visited(mod, _Finder(mod), clean=True)

    return run


@relax.expr_functor.mutator
class _Finder(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        reader = SoftmaxReader(self)
        weights = reader.called("relax.matmul", call)
        if weights is None:
            return call
        softmax = reader.softmax(weights.args[0])
        if softmax is None:
            return call
        logits = reader.logits(softmax.args[0])
        if logits is None:
            return call
        bias = self._bias(logits)
        operands = [logits.q, logits.turned_keys, call.args[1], *([] if bias is None else [bias])]
        made = self._attention(operands, logits, call.ty.shape)
        if made is None:
            return call
        dtype = call.ty.dtype
        return made if str(made.ty.dtype) == str(dtype) else relax.op.astype(made, dtype)

    def _attention(
        self, operands: list[relax.Expr], logits: Logits, result: Any
    ) -> relax.Var | None:
        """The attention of q, turned keys, v and perhaps a bias, as a tensor of a shape."""
        shapes = [getattr(getattr(one.ty, "shape", None), "values", None) for one in operands]
        if any(shape is None for shape in shapes):
            return None
        count = max(map(len, shapes[:3]))
        if count > 4:
            merged = [_merged_batches(shape) for shape in shapes]
            if any(shape is None for shape in merged):
                return None
            operands = [
                self._emit(relax.op.reshape(operand, shape))
                for operand, shape in zip(operands, merged, strict=True)
            ]
            of_four = [*merged[0][:3], merged[2][3]]
            found = self._attention(operands, logits, of_four)
            return None if found is None else self._emit(relax.op.reshape(found, result))
        if count not in _ORDERS or any(len(shape) != count for shape in shapes[:3]):
            return None
        if len(shapes[-1]) > count:
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
            check_attention(_call([relax.Var("x", ty) for ty in types], logits))
        except Decline:
            return None
        for number, order in enumerate(orders):
            if order != tuple(range(count)):
                operands[number] = self._emit(relax.op.permute_dims(operands[number], order))
            if len(operands[number].ty.shape.values) != len(whole[number]):
                operands[number] = self._emit(relax.op.reshape(operands[number], whole[number]))
        found = self._emit(_call(operands, logits))
        if count == 4:
            return self._emit(relax.op.permute_dims(found, _ORDERS[count][0]))
        return self._emit(relax.op.reshape(found, result))

    def _bias(self, logits: Logits) -> relax.Expr | None:
        """What is added to logits, minus infinity where a mask leaves them out."""
        if logits.mask is None:
            return logits.bias
        zero = relax.const(np.float32(0)) if logits.bias is None else logits.bias
        lowest = relax.const(np.array(-np.inf, str(zero.ty.dtype)))
        return self._emit(relax.op.where(logits.mask, zero, lowest))

    def _emit(self, expr: relax.Expr) -> relax.Var:
        return self.builder_.emit(expr)


def _call(operands: list[relax.Expr], logits: Logits) -> relax.Call:
    by_turns = len(operands) > 3 and bias_batch(operands[0], operands[3]) is not None
    if logits.soft_cap is not None or by_turns:
        return attention_call(operands, logits.scale, logits.causal or "", logits.soft_cap)
    # TVM multiplies logits, which have the type of operands, by a constant of this type.
    scale = FloatImm(operands[0].ty.dtype, logits.scale)
    return relax.op.nn.attention(*operands, scale=scale, causal_mask=logits.causal)


def _merged_batches(shape: Sequence[Any]) -> list[Any] | None:
    """A shape with all dimensions before the last three as one; None if they are not known."""
    *batches, heads, rows, columns = [*[1] * (4 - len(shape)), *shape]
    known = all(isinstance(extent, (int, IntImm)) for extent in batches)
    return [math.prod(map(int, batches)), heads, rows, columns] if known else None


def _with_heads(shape: list[Any], tokens_first: bool) -> list[Any]:
    """Sizes with four dimensions: a batch and heads that are missing are 1.

    A single dimension before the tokens is the batch: that of heads may not be dynamic.
    """
    if len(shape) == 4:
        return shape
    *outer, tokens, elements = shape
    batch = outer[0] if outer else 1
    return [batch, tokens, 1, elements] if tokens_first else [batch, 1, tokens, elements]
