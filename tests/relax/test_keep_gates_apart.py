"""Gates that a product computes are multiplied in a kernel of their own."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import warploom
from warploom.relax.inspect import inspect
from warploom.relax.keep_gates_apart import KeepGatesApart

_TARGET = warploom.cuda_target("h200")
_IMAGE, _SQUEEZED = (2, 6, 6, 64), 16


def _gated(operator: str = "multiply", squeezed: int = _SQUEEZED) -> tvm.IRModule:
    """Squeeze and excitation of an image whose channels are last, in float16."""
    batch, _, _, channels = _IMAGE
    builder = relax.BlockBuilder()
    shapes = {"x": _IMAGE, "w1": (channels, squeezed), "w2": (squeezed, channels), "b": (channels,)}
    x, w1, w2, b = (
        relax.Var(name, relax.TensorType(shape, "float16")) for name, shape in shapes.items()
    )
    with builder.function("main", [x, w1, w2, b]):
        with builder.dataflow():
            means = builder.emit(relax.op.mean(x, [1, 2]))
            hidden = builder.emit(relax.op.nn.silu(builder.emit(relax.op.matmul(means, w1))))
            logits = builder.emit(relax.op.add(builder.emit(relax.op.matmul(hidden, w2)), b))
            gate = builder.emit(relax.op.sigmoid(logits))
            gate = builder.emit(relax.op.reshape(gate, (batch, 1, 1, channels)))
            y = builder.emit_output(getattr(relax.op, operator)(x, gate))
        builder.emit_func_output(y)
    return builder.get()


def _convolved() -> tvm.IRModule:
    """The same by a convolution of one pixel, as PyTorch's models have it."""
    channels = _IMAGE[-1]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(_IMAGE, "float16"))
    w = relax.Var("w", relax.TensorType((channels, 1, 1, channels), "float16"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            means = builder.emit(relax.op.mean(x, [1, 2], keepdims=True))
            product = builder.emit(
                relax.op.nn.conv2d(means, w, data_layout="NHWC", kernel_layout="OHWI")
            )
            gate = builder.emit(relax.op.sigmoid(product))
            y = builder.emit_output(relax.op.multiply(x, gate))
        builder.emit_func_output(y)
    return builder.get()


def test_no_product_is_computed_for_each_pixel():
    reports = inspect(_convolved(), _TARGET)
    assert not [one.name for one in reports if "conv2d" in one.name and "multiply" in one.name]
    assert all(one.reshapes or not one.reason for one in reports), reports


@pytest.mark.gpu
@pytest.mark.parametrize("operator", ["multiply", "add"])
def test_results_are_those_of_numpy(operator, rng):
    machine = relax.VirtualMachine(relax.build(_gated(operator), _TARGET), tvm.cuda(0))
    channels = _IMAGE[-1]
    shapes = (_IMAGE, (channels, _SQUEEZED), (_SQUEEZED, channels), (channels,))
    given = [rng.standard_normal(shape).astype("float16") for shape in shapes]
    found = machine["main"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in given)).numpy()
    x, w1, w2, b = (one.astype(np.float64) for one in given)
    hidden = x.mean((1, 2)) @ w1
    gate = 1 / (1 + np.exp(-(hidden / (1 + np.exp(-hidden)) @ w2 + b)))[:, None, None]
    wanted = x * gate if operator == "multiply" else x + gate
    assert np.abs(found - wanted).max() <= 4e-3 * np.abs(wanted).max()


def test_what_is_as_large_as_the_result_stays_an_epilogue():
    builder = relax.BlockBuilder()
    x, w, r = (relax.Var(name, relax.TensorType((32, 32), "float16")) for name in "xwr")
    with builder.function("main", [x, w, r]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, w))
            y = builder.emit_output(relax.op.multiply(product, r))
        builder.emit_func_output(y)
    before = builder.get()
    tvm.ir.assert_structural_equal(KeepGatesApart()(before), before)
