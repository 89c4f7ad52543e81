"""Operators of constants become constants, before any of them is a function.

TVM's ``FoldConstant`` comes after ``LegalizeOps``: it compiles a function for each operator of each
weight, and passes on operators would not see the numbers yet: factors, and masks that a model
writes out. Here numpy computes what models apply to weights and masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Op
from tvm.ir.expr import GenericConst
from tvm.tirx import FloatImm, IntImm

from warploom.relax.visiting import bound, known_extents, visited

#: Elements of the largest result: masks of 4096 queries and as many keys.
_MOST_ELEMENTS = 1 << 24
#: Types of elements that numpy has.
_DTYPES = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")
)


def FoldConstants() -> tvm.transform.Pass:
    """A pass that computes operators of constants: casts, transpositions, arithmetic, masks.

    Results that are larger than their operands and have more than 16 million elements are left to
    the model. To be run before ``LegalizeOps``.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.FoldConstants")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Folder(mod), clean=True)

    return run


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        compute = _OPERATORS.get(call.op.name) if isinstance(call.op, Op) else None
        shape = known_extents(call)
        if compute is None or shape is None or str(call.ty.dtype) not in _DTYPES:
            return call
        operands = [bound(self, one) for one in call.args]
        types = [getattr(one, "ty", None) for one in operands]
        tensors = [
            one for one, of in zip(operands, types, strict=True) if isinstance(of, relax.TensorType)
        ]
        if not all(
            isinstance(one, GenericConst) and str(one.ty.dtype) in _DTYPES for one in tensors
        ):
            return call
        size = math.prod(shape)
        if size > max([_MOST_ELEMENTS, *(math.prod(one.value.shape) for one in tensors)]):
            return call
        with np.errstate(all="ignore"):  # a mask of the lowest float32 is -inf in float16
            found = compute(call, *(np.from_dlpack(one.value) for one in tensors))
            if found is None:
                return call
            found = np.ascontiguousarray(found).astype(str(call.ty.dtype)).reshape(shape)
        return relax.const(found, str(call.ty.dtype))


Compute = Callable[..., "np.ndarray | None"]


def _elementwise(function: Callable[..., Any]) -> Compute:
    return lambda call, *operands: function(*operands)


def _same_dtype(function: Callable[..., Any]) -> Compute:
    """An operator of operands of one type, which its result has, too."""
    return lambda call, *operands: function(*operands) if len({*(x.dtype for x in operands)}) == 1 \
        else None


def _arange(call: relax.Call) -> np.ndarray | None:
    numbers = [_number(one) for one in call.args]
    return None if None in numbers else np.arange(*numbers)


def _number(value: Any) -> float | int | None:
    value = getattr(value, "value", value)
    if isinstance(value, IntImm):
        return int(value)
    if isinstance(value, FloatImm):
        return float(value)
    return value if isinstance(value, (int, float)) else None


def _triangle(function: Callable[..., Any]) -> Compute:
    def compute(call: relax.Call, x: np.ndarray) -> np.ndarray | None:
        number = _number(call.args[1]) if len(call.args) > 1 else 0
        return function(x, number) if isinstance(number, int) else None

    return compute


def _remainder(call: relax.Call, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Of whole numbers for which all roundings of the quotient are the same."""
    whole = x.dtype == y.dtype and np.issubdtype(x.dtype, np.integer)
    return np.mod(x, y) if whole and (x >= 0).all() and (y > 0).all() else None


def _taken(call: relax.Call, x: np.ndarray, indices: np.ndarray) -> np.ndarray | None:
    axis = call.attrs.axis
    extent = x.size if axis is None else x.shape[int(axis)]
    inside = ((indices >= 0) & (indices < extent)).all()
    return np.take(x, indices, None if axis is None else int(axis)) if inside else None


def _order(call: relax.Call) -> list[int] | None:
    return None if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes]


def _filled(call: relax.Call, *operands: np.ndarray) -> np.ndarray:
    return np.full(known_extents(call), operands[-1])


def _padded(call: relax.Call, x: np.ndarray) -> np.ndarray | None:
    attrs = call.attrs
    if str(attrs.pad_mode) != "constant":
        return None
    widths = [int(one) for one in attrs.pad_width]
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    return np.pad(x, pairs, constant_values=float(attrs.pad_value))


_RESHAPED: Compute = lambda call, x: x  # noqa: E731 -- every result gets the call's shape
_OPERATORS: dict[str, Compute] = {
    f"relax.{name}": compute
    for name, compute in {
        "astype": _RESHAPED, "reshape": _RESHAPED, "expand_dims": _RESHAPED, "squeeze": _RESHAPED,
        "permute_dims": lambda call, x: x.transpose(_order(call)),
        "flip": lambda call, x: np.flip(x, int(call.attrs.axis)), "nn.pad": _padded,
        "broadcast_to": lambda call, x: np.broadcast_to(x, known_extents(call)),
        "full": _filled, "full_like": _filled,
        "zeros": lambda call: np.zeros(known_extents(call)),
        "ones": lambda call: np.ones(known_extents(call)),
        "arange": _arange, "tril": _triangle(np.tril), "triu": _triangle(np.triu),
        "negative": _elementwise(np.negative), "logical_not": _elementwise(np.logical_not),
        "add": _same_dtype(np.add), "subtract": _same_dtype(np.subtract),
        "multiply": _same_dtype(np.multiply), "mod": _remainder, "take": _taken,
        "logical_and": _elementwise(np.logical_and),
        "logical_or": _elementwise(np.logical_or), "where": _elementwise(np.where),
        "equal": _elementwise(np.equal), "not_equal": _elementwise(np.not_equal),
        "less": _elementwise(np.less), "less_equal": _elementwise(np.less_equal),
        "greater": _elementwise(np.greater), "greater_equal": _elementwise(np.greater_equal),
    }.items()
}  # fmt: skip
