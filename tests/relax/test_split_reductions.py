"""Reductions of more elements than a window has, in steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import warploom
from warploom.relax.inspect import inspect
from warploom.relax.split_reductions import SplitReductions

_TARGET = warploom.cuda_target("h200")


def _reduced(
    name: str, shape: tuple[Any, ...], axes: list[int] | None, keepdims: bool, dtype: str
) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(getattr(relax.op, name)(x, axes, keepdims))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "shape", "axes", "keepdims", "dtype"),
    [
        ("mean", (2, 17, 19, 24), [1, 2], True, "float16"),
        ("sum", (1, 3, 18, 20, 8), [-4, -3, -2], False, "bfloat16"),
        ("max", (2, 20, 16, 8), [2, 1], False, "float32"),
        ("min", (33, 2, 9, 16), [0, 2], True, "float16"),
    ],
)
@pytest.mark.some(2)
def test_results_are_those_of_numpy(rng, name, shape, axes, keepdims, dtype):
    module = _reduced(name, shape, axes, keepdims, dtype)
    reports = inspect(module, _TARGET)
    # Two steps, and what is computed of the result.
    assert 2 <= len(reports) <= 3 and not [str(one) for one in reports if one.reason], reports
    x = (rng.standard_normal(shape) + 0.5).astype(dtype)
    machine = relax.VirtualMachine(relax.build(module, _TARGET), tvm.cuda(0))
    found = machine["main"](tvm.runtime.tensor(x, tvm.cuda(0))).numpy()
    wanted = getattr(np, name)(x.astype(np.float64), axis=tuple(axes), keepdims=keepdims)
    assert found.shape == wanted.shape
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 1e-6}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2 * eps, atol=eps)


@pytest.mark.parametrize(
    ("name", "shape", "axes"),
    [
        ("mean", (2, 16, 16, 64), [1, 2]),  # a window
        ("sum", (2, 64, 64, 64), [2, 3]),  # along rows
        ("sum", (2, 64, 64, 64), None),
        ("max", (4096, 64), [0]),  # one axis
        ("sum", (2, "h", 64, 64), [1, 2]),  # known at the launch
        ("variance", (2, 64, 64, 64), [1, 2]),  # needs the mean of all
    ],
)
def test_what_is_one_step(name, shape, axes):
    shape = tuple(tirx.Var(one, "int64") if isinstance(one, str) else one for one in shape)
    module = _reduced(name, shape, axes, True, "float16")
    tvm.ir.assert_structural_equal(SplitReductions()(module), module)
