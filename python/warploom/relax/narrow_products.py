"""Matmuls of 16-bit numbers that a frontend has widened to float32 become matmuls of 16 bits again.

A tensor core multiplies 16-bit numbers exactly and sums in float32, so a matmul of two widened
operands loses nothing. Where one operand is widened, and the other is computed in float32 from
matmuls of 16-bit numbers, that one is rounded to 16 bits: TVM's frontend for PyTorch makes the
results of all such matmuls float32, where PyTorch rounds them, and widens the weight behind them.
"""

from __future__ import annotations

import math

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from warploom.relax.visiting import bound, is_for_hopper, visited

#: Attribute of a Relax function: float32 operands of its matmuls are not rounded.
KEEP = "warploom.keep_float32"
_NARROW = ("float16", "bfloat16")
_WIDE = "float32"
#: Operators that only move the elements of their first argument.
_MOVES = frozenset(
    f"relax.{name}" for name in ("permute_dims", "reshape", "expand_dims", "squeeze", "flatten",
                                 "broadcast_to", "strided_slice", "flip")
)  # fmt: skip
#: Element-wise operators: what they make of rounded numbers is as exact as those were.
_MAPS = frozenset(
    f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum",
                                 "negative", "abs", "sqrt", "square", "exp", "sigmoid", "tanh",
                                 "erf", "clip", "where", "nn.relu", "nn.gelu", "nn.gelu_tanh",
                                 "nn.silu", "nn.leakyrelu", "nn.softplus")
)  # fmt: skip


def NarrowProducts() -> tvm.transform.Pass:
    """A pass that multiplies 16-bit numbers as such where a model has widened them to float32.

    To be run before ``LegalizeOps``. Results stay float32. A float32 operand is rounded only where
    the other one is a widened 16-bit tensor, and all that it is computed from are matmuls of
    16-bit operands, 16-bit tensors and scalars; in a Relax function with the attribute
    ``warploom.keep_float32``, none is. Exact rewrites are done in all functions.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.NarrowProducts")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_for_hopper():
            return mod
        return visited(mod, _Narrower(mod), clean=True)

    return run


@relax.expr_functor.mutator
class _Narrower(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.rounds = True

    def visit_function_(self, func: relax.Function) -> relax.Expr:
        self.rounds = not (func.attrs or {}).get(KEEP, False)
        return super().visit_function_(func)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if _name(call) != "relax.matmul" or any(_dtype(arg) != _WIDE for arg in call.args):
            return call
        if _dtype(call) != _WIDE:
            return call
        types = [self._narrow_type(arg) for arg in call.args]
        known = {dtype for dtype in types if dtype is not None}
        if len(known) != 1:
            return call
        (dtype,) = known
        for arg, found in zip(call.args, types, strict=True):
            if found is None and not (self.rounds and self._is_rounded(arg, dtype)):
                return call
        narrow = [
            self.builder_.emit(relax.op.astype(arg, dtype)) if found is None
            else self._narrow(arg)
            for arg, found in zip(call.args, types, strict=True)
        ]  # fmt: skip
        return relax.op.matmul(*narrow, out_dtype=_WIDE)

    def _narrow_type(self, expr: relax.Expr) -> str | None:
        """The 16-bit type that a float32 tensor was widened from."""
        found = bound(self, expr)
        if not isinstance(found, relax.Call):
            return None
        if _name(found) == "relax.astype":
            source = _dtype(found.args[0])
            return source if source in _NARROW else self._narrow_type(found.args[0])
        return self._narrow_type(found.args[0]) if _name(found) in _MOVES else None

    def _narrow(self, expr: relax.Expr) -> relax.Expr:
        """A widened tensor before it was."""
        found = bound(self, expr)
        if _name(found) == "relax.astype":
            source = found.args[0]
            return source if _dtype(source) in _NARROW else self._narrow(source)
        moved = relax.Call(found.op, [self._narrow(found.args[0]), *found.args[1:]], found.attrs)
        return self.builder_.emit(moved)

    def _is_rounded(self, expr: relax.Expr, dtype: str) -> bool:
        """Whether a float32 tensor is computed from 16-bit numbers and a matmul of such."""
        seen: set[relax.Expr] = set()
        waiting, products = [expr], 0
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            found = bound(self, one)
            if _dtype(found) == dtype or _is_scalar(found):
                continue
            if _dtype(found) not in (_WIDE, "bool") or not isinstance(found, relax.Call):
                return False
            name = _name(found)
            if name == "relax.matmul" and {_dtype(arg) for arg in found.args} == {dtype}:
                products += 1
            elif name in _MAPS:
                waiting.extend(found.args)
            elif name in _MOVES or name == "relax.astype":
                waiting.append(found.args[0])
            else:
                return False
        return products > 0


def _name(expr: relax.Expr) -> str:
    return str(getattr(getattr(expr, "op", None), "name", ""))


def _dtype(expr: relax.Expr) -> str:
    return str(getattr(expr.ty, "dtype", ""))


def _is_scalar(expr: relax.Expr) -> bool:
    return isinstance(expr, GenericConst) and math.prod(expr.value.shape) == 1
