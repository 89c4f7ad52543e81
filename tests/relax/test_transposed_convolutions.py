"""Transposed convolutions are convolutions whose channels are put between the pixels."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import warploom
from warploom.relax.inspect import inspect
from warploom.relax.transposed_convolutions import TurnTransposedConvolutions

_TARGET = warploom.cuda_target("h200")


def _model(
    image: tuple[int, ...], weight: np.ndarray, stride: int, padding: int, more: int,
    groups: int = 1,
) -> tvm.IRModule:  # fmt: skip
    """The convolution with constant weights, of lines, images or volumes, and a ReLU."""
    count = len(image) - 2
    operator = getattr(relax.op.nn, f"conv{count}d_transpose")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(image, str(weight.dtype)))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = operator(
                x, relax.const(weight), [stride] * count, [padding] * count, [more] * count,
                groups=groups,
            )  # fmt: skip
            y = builder.emit_output(relax.op.nn.relu(builder.emit(y)))
        builder.emit_func_output(y)
    return builder.get()


def transposed(x: np.ndarray, w: np.ndarray, stride: int, padding: int, more: int) -> np.ndarray:
    """The convolution by its definition: each pixel adds a filter to the result; float64."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    moves = len(x.shape) - 2
    whole = [
        (size - 1) * stride + tap + more for size, tap in zip(x.shape[2:], w.shape[2:], strict=True)
    ]
    y = np.zeros((x.shape[0], w.shape[1], *whole))
    for place in np.ndindex(*x.shape[2:]):
        at = tuple(
            slice(i * stride, i * stride + tap) for i, tap in zip(place, w.shape[2:], strict=True)
        )
        y[(..., *at)] += np.tensordot(x[(..., *place)], w, 1)
    return y[(..., *[slice(padding, n - padding) for n in whole[:moves]])]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("image", "taps", "stride", "padding", "more"),
    [
        ((1, 16, 5, 6), (2, 2), 2, 0, 0), ((2, 8, 4, 5), (4, 4), 2, 1, 0),
        ((1, 16, 4, 4), (3, 3), 2, 1, 1), ((1, 8, 5, 5), (5, 3), 3, 1, 0),
        ((2, 16, 9), (4,), 2, 1, 0), ((1, 8, 6, 6), (3, 3), 1, 1, 0),
        ((1, 8, 3, 3), (2, 2), 3, 0, 1), ((1, 8, 3, 3), (2, 2), 2, 0, 1),
        ((1, 16, 2, 3, 4), (2, 2, 2), 2, 0, 0), ((2, 8, 3, 2, 3), (3, 4, 3), 2, 1, 1),
    ],
)  # fmt: skip
def test_results_are_those_of_numpy(image, taps, stride, padding, more, rng):
    weight = rng.standard_normal((image[1], 24, *taps)).astype("float16")
    mod = _model(image, weight, stride, padding, more)
    taken = "transpose(" not in str(TurnTransposedConvolutions()(mod)["main"])
    # No tap of 2 x 2 with a stride of 2 reaches one pixel more.
    assert taken == ((taps, stride, more) != ((2, 2), 2, 1))
    if taken:
        assert all("d_transpose" not in one.name for one in inspect(mod, _TARGET))
    machine = relax.VirtualMachine(relax.build(mod, _TARGET), tvm.cuda(0))
    x = rng.standard_normal(image).astype("float16")
    found = machine["main"](tvm.runtime.tensor(x, tvm.cuda(0))).numpy()
    wanted = np.maximum(transposed(x, weight, stride, padding, more), 0)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 4e-3 * np.abs(wanted).max()


def test_groups_stay(rng):
    weight = rng.standard_normal((16, 2, 2, 2)).astype("float16")
    mod = _model((1, 16, 4, 4), weight, 2, 0, 0, groups=16)
    tvm.ir.assert_structural_equal(TurnTransposedConvolutions()(mod), mod)
