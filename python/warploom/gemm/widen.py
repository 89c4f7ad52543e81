"""Epilogues of 16-bit numbers that call functions, computed in float32.

Relax computes a SiLU of float16 in float16: four roundings, where the sum that it starts from is
a float32. A GPU converts 16-bit numbers to float32 for such functions anyway, so that the exact
way is the quick one, too. Sums and products of 16-bit numbers stay what they are: those have
instructions for two at once.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.ir.expr import TensorLoad
from tvm.ir.prim import expr as prim

from warploom.gemm.gelu import with_quick_gelu

#: Types that are widened.
NARROW = ("float16", "bfloat16")
_WIDE = "float32"
_ARITHMETIC = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Max, prim.Min)
#: Functions that are defined for float32 as for the narrow types.
_FUNCTIONS = frozenset(
    f"tirx.{name}"
    for name in ("cos", "erf", "exp", "exp2", "fabs", "log", "log2", "pow", "rsqrt", "sigmoid",
                 "sin", "sqrt", "tanh", "nearbyint", "floor", "ceil", "trunc", "round")
)  # fmt: skip
_CHOICE = "prim.if_then_else"


def widened(value: Any) -> Any:
    """A 16-bit value that is rounded once, at the end; others, and plain arithmetic, as they are.

    GELUs in it are computed as :mod:`warploom.gemm.gelu` does.

    Parameters
    ----------
    value : Expr
        Of any type.
    """
    dtype = str(value.ty.dtype)
    if dtype not in NARROW:
        return value
    if _calls_functions(value):
        value = tirx.Cast(dtype, _wide(value))
    return with_quick_gelu(value)


def _calls_functions(value: Any) -> bool:
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        narrow = str(node.ty.dtype) in NARROW
        found |= narrow and (isinstance(node, prim.Div) or _is_function(node))
        found |= _is_function(node) and any(map(_has_rounded, node.args))

    tvm_ffi.structural_walk(value, [(Call, visit), (prim.Div, visit)])
    return found


def _is_function(value: Any) -> bool:
    return isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in _FUNCTIONS


def _has_rounded(value: Any) -> bool:
    """Whether a float32 is made of a narrow number that was computed, not read."""
    found = False

    def visit(node: prim.Cast) -> None:
        nonlocal found
        narrow = str(node.value.ty.dtype) in NARROW and str(node.ty.dtype) == _WIDE
        found |= narrow and not isinstance(node.value, TensorLoad)

    tvm_ffi.structural_walk(value, (prim.Cast, visit))
    return found


def _unrounded(value: Any) -> Any:
    """A float32 in which narrow numbers are computed as float32, too."""

    def cast(node: prim.Cast) -> Any:
        narrow = str(node.value.ty.dtype) in NARROW and str(node.ty.dtype) == _WIDE
        return _wide(node.value) if narrow else node

    return tvm_ffi.structural_map(value, (prim.Cast, cast), order="post")


def _wide(value: Any) -> Any:
    """A narrow value as float32."""
    if isinstance(value, prim.FloatImm):
        return tirx.const(float(value), _WIDE)
    if isinstance(value, prim.Cast) and str(value.value.ty.dtype) == _WIDE:
        return _unrounded(value.value)
    if isinstance(value, _ARITHMETIC):
        return type(value)(_wide(value.a), _wide(value.b))
    if isinstance(value, prim.Select):
        chosen = _wide(value.true_value), _wide(value.false_value)
        return prim.Select(value.condition, *chosen)
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == _CHOICE:
        condition, *chosen = value.args
        return tirx.if_then_else(condition, *map(_wide, chosen))
    if _is_function(value):
        return tirx.call_intrin(_WIDE, value.op, *map(_wide, value.args))
    return tirx.Cast(_WIDE, value)
