"""Rows of several axes as one: which functions, and that they compute what they did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from tests.gemm.convolutions import Convolution
from tests.gemm.test_generate import check
from tests.shared.gemm_functions import Function, _wide
from warploom.decide import Config
from warploom.gemm import recognise

_CONFIGS = (
    Config(64, 64, 32, 3, consumers=1),
    Config(128, 48, 32, 4, cluster_m=2, split_k=2),
    Config(24, 64, 64, 2, consumers=1, swap_ab=True),
)


def _extent(size: int | str) -> Any:
    return te.var(size) if isinstance(size, str) else size


def sequences(
    batch: int | str = 3, rows: int | str = 20, n: int = 72, k: int = 96, scale: str = "bs"
) -> Function:
    """``relu(X[b, s, k] W[n, k]) * scale + residual``, a scale for each of some of the axes."""
    b, s = _extent(batch), _extent(rows)
    x, w = te.placeholder((b, s, k), "float16", "X"), te.placeholder((n, k), "float16", "W")
    z = te.placeholder([{"b": b, "s": s}[one] for one in scale], "float32", "Z")
    r = te.placeholder((b, s, n), "float16", "R")
    q = te.reduce_axis((0, k), "q")
    total = te.compute(
        (b, s, n),
        lambda i, j, o: te.sum(x[i, j, q].astype("float32") * w[o, q].astype("float32"), q),
        "matmul",
    )

    def value(i: Any, j: Any, o: Any) -> Any:
        at = [{"b": i, "s": j}[one] for one in scale]
        scaled = te.max(total[i, j, o], tirx.const(0, "float32")) * z[tuple(at)]
        return (scaled + r[i, j, o].astype("float32")).astype("float16")

    c = te.compute((b, s, n), value, "C")

    def expected(x: Any, w: Any, z: Any, r: Any, *_: Any) -> list[np.ndarray]:
        z = z.reshape([n if one in scale else 1 for one, n in zip("bs", x.shape, strict=False)])
        return [np.maximum(_wide(x) @ _wide(w).T, 0) * z[..., None] + r]

    return Function(te.create_prim_func([x, w, z, r, c]), expected)


@pytest.mark.parametrize("config", _CONFIGS)
def test_sequences_are_one_matrix(config: Config, rng: np.random.Generator) -> None:
    function = sequences()
    gemm = recognise(function.func)
    assert (gemm.problem.m, gemm.problem.batch, gemm.pixels) == (60, 1, ())
    assert {view.param.name for view in gemm.views} == {"X", "Z", "R", "C"}
    check(function, config, rng)


@pytest.mark.parametrize(("batch", "rows"), [("b", 5), (3, "s"), ("b", "s")])
@pytest.mark.some(1)
def test_unknown_numbers(batch: int | str, rows: int | str, rng: np.random.Generator) -> None:
    function = sequences(batch, rows)
    assert recognise(function.func).problem.m is None
    for config, (b, s) in zip(_CONFIGS, ((1, 7), (3, 40), (5, 1)), strict=True):
        check(function, config, rng, b=b, s=s)


@pytest.mark.parametrize("scale", ["b", "s"])
def test_rows_stay_apart_where_something_tells_them_apart(
    scale: str, rng: np.random.Generator
) -> None:
    function = sequences(scale=scale)
    gemm = recognise(function.func)
    assert gemm.problem.m == 60 and len(gemm.pixels) == 2 and not gemm.views
    check(function, _CONFIGS[0], rng)
    # The strides of a box of several sequences follow from the rows' number.
    check(sequences(3, "s", scale=scale), _CONFIGS[1], rng, s=37)


def test_single_pixels_are_rows(rng: np.random.Generator) -> None:
    def convolution(**more: Any) -> Convolution:
        return Convolution(taps=(1, 1), padding=(0, 0, 0, 0), **more)

    assert recognise(convolution(epilogue=True).function().func).views
    function = convolution(n=None).function()
    gemm = recognise(function.func)
    assert gemm.problem.m is None and gemm.views
    check(function, _CONFIGS[0], rng, n=2)
    assert not recognise(convolution(stride=(2, 2)).function().func).views
