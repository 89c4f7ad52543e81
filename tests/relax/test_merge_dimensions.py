"""Operands that a model has reshaped and transposed are loaded where they are, in another shape."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import warploom
from warploom.relax.inspect import inspect

_TARGET = warploom.cuda_target("h200")


def _all_columns(emit, x, w):
    """``[experts, n, k]`` as columns of one matmul, the way torch's frontend writes an einsum."""
    experts, n, k = w.ty.shape.values
    turned = emit(relax.op.permute_dims(emit(relax.op.expand_dims(w, 3)), [3, 2, 0, 1]))
    columns = emit(relax.op.reshape(turned, [1, k, experts * n]))
    return relax.op.matmul(emit(relax.op.expand_dims(x, 0)), columns, out_dtype="float32")


def _four_dimensions(emit, x, w):
    """``[a, b, n, k]``: three dimensions are columns."""
    *outer, k = w.ty.shape.values
    turned = emit(relax.op.permute_dims(w, [3, 0, 1, 2]))
    return relax.op.matmul(x, emit(relax.op.reshape(turned, [k, np.prod([int(s) for s in outer])])))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("body", "shape"), [(_all_columns, (3, 40, 64)), (_four_dimensions, (2, 3, 8, 64))]
)
def test_columns_of_several_dimensions_are_not_copied(rng, body, shape, dtype):
    builder = relax.BlockBuilder()
    params = [relax.Var("x", relax.TensorType((24, 64), dtype)),
              relax.Var("w", relax.TensorType(shape, dtype))]  # fmt: skip
    with builder.function("main", params):
        with builder.dataflow():
            found = builder.emit_output(body(builder.emit, *params))
        builder.emit_func_output(found)
    module = builder.get()
    reports = [one for one in inspect(module) if "only reshapes" not in one.reason]
    assert [one.on_tensor_cores for one in reports] == [True]
    x = rng.standard_normal((24, 64)).astype(dtype)
    w = rng.standard_normal(shape).astype(dtype)
    machine = relax.VirtualMachine(relax.build(module, _TARGET), tvm.cuda(0))
    found = machine["main"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in (x, w))).numpy()
    wanted = x.astype(np.float64) @ w.astype(np.float64).reshape(-1, 64).T
    bound = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    np.testing.assert_allclose(found.astype(np.float64).reshape(wanted.shape), wanted, rtol=bound,
                               atol=1e-3)  # fmt: skip


def test_columns_in_another_order_are_copied():
    """Columns are not in the order of memory: no shape of the weights has them so."""
    x = relax.Var("x", relax.TensorType((24, 64), "float16"))
    w = relax.Var("w", relax.TensorType((3, 40, 64), "float16"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            turned = builder.emit(relax.op.permute_dims(w, [2, 1, 0]))
            columns = builder.emit(relax.op.reshape(turned, [64, 120]))
            found = builder.emit_output(relax.op.matmul(x, columns))
        builder.emit_func_output(found)
    reports = [one for one in inspect(builder.get()) if "only reshapes" not in one.reason]
    assert len(reports) == 2
