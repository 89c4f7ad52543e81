"""Statistics that are repeated along axes which they do not sum are kernels of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import warploom
from warploom.relax.inspect import inspect
from warploom.relax.keep_statistics_apart import KeepStatisticsApart

_TARGET = warploom.cuda_target("h200")


def _response_norm(batch: Any, shape: tuple[int, ...], dtype: str) -> tvm.IRModule:
    """ConvNeXt-V2's global response norm of images whose channels are last."""
    builder, channels = relax.BlockBuilder(), (1, 1, 1, shape[-1])
    x, g, b = (
        relax.Var(name, relax.TensorType(of, dtype))
        for name, of in (("x", (batch, *shape)), ("g", channels), ("b", channels))
    )
    with builder.function("main", [x, g, b]):
        with builder.dataflow():
            emit, op = builder.emit, relax.op
            squares = emit(op.sum(emit(op.multiply(x, x)), [1, 2], keepdims=True))
            size = emit(op.sqrt(squares))
            mean = emit(op.add(emit(op.mean(size, [-1], keepdims=True)), relax.const(1e-3, dtype)))
            scaled = emit(op.multiply(x, emit(op.divide(size, mean))))
            y = builder.emit_output(op.add(emit(op.add(emit(op.multiply(g, scaled)), b)), x))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("batch", [2, "n"])
def test_no_function_is_left_to_tvm(batch):
    batch = tirx.Var(batch, "int64") if batch == "n" else batch
    reports = inspect(_response_norm(batch, (14, 14, 96), "float16"), _TARGET)
    assert 3 <= len(reports) <= 4
    assert not [str(one) for one in reports if one.reason], reports


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("batch", "shape", "dtype"), [(2, (5, 6, 72), "float16"), (3, (4, 3, 40), "bfloat16")]
)
@pytest.mark.some(1)
def test_results_are_those_of_numpy(rng, batch, shape, dtype):
    module = _response_norm(batch, shape, dtype)
    machine = relax.VirtualMachine(relax.build(module, _TARGET), tvm.cuda(0))
    given = [
        rng.standard_normal(of).astype(dtype)
        for of in ((batch, *shape), (1, 1, 1, shape[-1]), (1, 1, 1, shape[-1]))
    ]
    found = machine["main"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in given)).numpy()
    x, g, b = (one.astype(np.float64) for one in given)
    size = np.sqrt((x * x).sum((1, 2), keepdims=True))
    wanted = g * (x * (size / (size.mean(-1, keepdims=True) + 1e-3))) + b + x
    bound = {"float16": 6e-3, "bfloat16": 5e-2}[dtype] * np.abs(wanted).max()
    assert np.abs(found.astype(np.float64) - wanted).max() <= bound


def test_statistics_of_their_own_rows_stay():
    """Those of a layer norm, and of images: what they are repeated along is what they sum."""
    for axes in ([-1], [1, 2], [1, 2, 3], None):
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((2, 4, 4, 64), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                mean = builder.emit(relax.op.mean(x, axes, keepdims=True))
                y = builder.emit(relax.op.subtract(x, builder.emit(relax.op.sqrt(mean))))
                y = builder.emit_output(y)
            builder.emit_func_output(y)
        module = builder.get()
        tvm.ir.assert_structural_equal(KeepStatisticsApart()(module), module)
