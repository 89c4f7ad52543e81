"""Sums of a few rows above each other: of the experts of a token, or of all of them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.tirx import PrimFunc

import warploom
from warploom.errors import Decline
from warploom.rows import row_kernel
from warploom.rows.problem import read_rows

_TARGET = warploom.cuda_target("h200")


def weighted(tokens: int, choices: int, width: int, dtype: str, first: bool) -> PrimFunc:
    """``sum(y[t, c] * weights[t, c] over c)``; ``first``: choices are the first dimension of y."""
    shape = (choices, tokens, width) if first else (tokens, choices, width)
    y = te.placeholder(shape, dtype, "y")
    weights = te.placeholder((tokens, choices), "float32", "weights")
    c = te.reduce_axis((0, choices), "c")
    out = te.compute(
        (tokens, width),
        lambda t, h: te.sum(
            y[(c, t, h) if first else (t, c, h)].astype("float32") * weights[t, c], c
        ),
        "out",
    )
    return te.create_prim_func([y, weights, out])


def of_rows(choices: int, width: int, dtype: str, reduce: str) -> PrimFunc:
    y, c = te.placeholder((5, choices, width), dtype, "y"), te.reduce_axis((0, choices), "c")
    combine = getattr(te, reduce)
    out = te.compute((5, width), lambda t, h: combine(y[t, c, h], c), "out")
    return te.create_prim_func([y, out])


def _run(function, *arrays, out):
    kernel = row_kernel(read_rows(function)).with_attr("global_symbol", "main")
    built = tvm.compile(tvm.IRModule({"main": kernel}), _TARGET, tir_pipeline="warploom")
    given = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in (*arrays, out)]
    built["main"](*given)
    return given[-1].numpy().astype(np.float64)


@pytest.mark.gpu
@pytest.mark.some(4)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("tokens", "choices", "width"),
    [(1, 2, 64), (7, 8, 40), (3, 1, 33), (24, 6, 256), (2, 16, 8), (1, 4, 1)],
)
def test_experts_of_a_token_are_added(rng, tokens, choices, width, first, dtype):
    y = rng.standard_normal((choices, tokens, width) if first else (tokens, choices, width))
    y = y.astype(dtype)
    weights = rng.random((tokens, choices)).astype(np.float32)
    function = weighted(tokens, choices, width, dtype, first)
    found = _run(function, y, weights, out=np.full((tokens, width), np.nan, np.float32))
    order = "cth,tc->th" if first else "tch,tc->th"
    wanted = np.einsum(order, y.astype(np.float64), weights.astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_sums_of_16_bits_are_rounded_once(rng, reduce, dtype):
    y = rng.standard_normal((5, 8, 64)).astype(dtype)
    found = _run(of_rows(8, 64, dtype, reduce), y, out=np.full((5, 64), np.nan, dtype))
    wanted = getattr(y.astype(np.float64), reduce)(axis=1)
    bound = {"float16": 2.0**-11, "float32": 1e-6}[dtype]
    np.testing.assert_allclose(found, wanted, rtol=bound, atol=1e-5)


def test_a_vector_of_each_row_is_loaded():
    loads = [str(load) for load in read_rows(of_rows(4, 64, "float16", "sum")).loads]
    assert len(loads) == 4


def _matmul() -> PrimFunc:
    x, w = te.placeholder((24, 8), "float32", "x"), te.placeholder((8, 64), "float32", "w")
    k = te.reduce_axis((0, 8), "k")
    return te.create_prim_func(
        [x, w, te.compute((24, 64), lambda i, j: te.sum(x[i, k] * w[k, j], k), "out")]
    )


def _window() -> PrimFunc:
    x, k = te.placeholder((26, 64), "float32", "x"), te.reduce_axis((0, 3), "k")
    return te.create_prim_func(
        [x, te.compute((24, 64), lambda i, j: te.sum(x[i + k, j] * tirx.const(0.5, "float32"), k))]
    )


def test_matmuls_stay_reductions():
    with pytest.raises(Decline):
        row_kernel(read_rows(_matmul()))


@pytest.mark.parametrize("make", [_window, lambda: of_rows(17, 64, "float16", "sum")])
def test_windows_and_longer_sums_are_not_written_out(make):
    """A thread goes over them in a loop."""
    function = read_rows(make())
    assert not function.reductions and len(function.windows) == 1
