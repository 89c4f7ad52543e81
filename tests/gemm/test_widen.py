"""Epilogues of 16-bit numbers that call functions are rounded once."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.ir.prim import expr as prim

from warploom.gemm.widen import widened


def _half(value: float) -> Any:
    return tirx.const(value, "float16")


def _erf(x: Any) -> Any:
    return tirx.Cast("float16", te.erf(tirx.Cast("float32", x)))


#: What the root of one half is in float16.
ROOT = float(np.float16(0.70710678))
#: Name -> (formula of two narrow numbers in TVM, the same in numpy).
FORMULAS = {
    "silu": (lambda x, y: x * te.sigmoid(x) * y, lambda x, y: x / (1 + np.exp(-x)) * y),
    "tanh": (lambda x, y: te.tanh(x + y) * x, lambda x, y: np.tanh(x + y) * x),
    # As Relax has GELU: the function has a float32, made of a number that was rounded before.
    "gelu": (
        lambda x, y: (x + y) * (_half(0.5) + _erf((x + y) * _half(ROOT)) * _half(0.5)),
        lambda x, y: (x + y) * (0.5 + np.vectorize(math.erf)((x + y) * ROOT) * 0.5),
    ),
    "quotient": (lambda x, y: x / (te.abs(y) + 1), lambda x, y: x / (np.abs(y) + 1)),
    "one of two": (
        lambda x, y: tirx.if_then_else(x > y, te.exp(-te.abs(x)), y),
        lambda x, y: np.where(x > y, np.exp(-np.abs(x)), y),
    ),
    "choice": (
        lambda x, y: tirx.Select(x > y, te.exp(-te.abs(x)), te.max(x, y)),
        lambda x, y: np.where(x > y, np.exp(-np.abs(x)), np.maximum(x, y)),
    ),
}


def _narrow_nodes(value: Any) -> list[Any]:
    """Arithmetic and functions of narrow types."""
    found: list[Any] = []

    def visit(one: Any) -> None:
        loads = isinstance(one, tvm.ir.Call) and one.op.name == "te.tensor_load"
        if str(one.ty.dtype) in ("float16", "bfloat16") and not loads:
            found.append(one)

    kinds = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Max, tvm.ir.Call)
    tvm_ffi.structural_walk(value, [(kind, visit) for kind in kinds])
    return found


@pytest.mark.parametrize("name", FORMULAS)
def test_functions_are_rounded_once(name: str, rng: np.random.Generator) -> None:
    formula, exact = FORMULAS[name]
    x, y = (te.placeholder((64,), "float16", one) for one in "xy")
    z = te.compute((64,), lambda i: widened(formula(x[i], y[i])), "z")
    assert not _narrow_nodes(z.op.body[0])
    arrays = [rng.standard_normal(64).astype(np.float16) for _ in range(2)]
    found = np.zeros(64, np.float16)
    tensors = [tvm.runtime.tensor(one) for one in (*arrays, found)]
    tvm.compile(te.create_prim_func([x, y, z]), target="llvm")(*tensors)
    wanted = exact(*(one.astype(np.float64) for one in arrays))
    # Half of the last of 11 bits, and what float32 is off by.
    assert np.all(np.abs(tensors[2].numpy() - wanted) <= np.abs(wanted) * 2.0**-10.9 + 2.0**-24)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_are_taken_as_they_are(dtype: str) -> None:
    total, x = tirx.Var("total", "float32"), tirx.Var("x", dtype)
    value = tirx.sigmoid(tirx.Cast(dtype, total)) * x
    made = widened(value)
    assert str(made.ty.dtype) == dtype and not _narrow_nodes(made)
    wide = tirx.Cast(dtype, tirx.sigmoid(total) * tirx.Cast("float32", x))
    assert tvm_ffi.structural_equal(made, wide)


def test_what_has_instructions_for_pairs_stays_narrow() -> None:
    x, y = tirx.Var("x", "float16"), tirx.Var("y", "float16")
    plain = x * y + x
    assert widened(plain).same_as(plain)
    wide = tirx.sigmoid(tirx.Var("z", "float32"))
    assert widened(wide).same_as(wide)
