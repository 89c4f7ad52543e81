"""Reductions over windows of rows: depthwise convolutions, pooling, means of pictures."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi
from tvm.tirx import PrimFunc

import warploom
from warploom.errors import Decline, IllegalCombination
from warploom.rows import RowPlan, read_rows, row_kernel, window_plan
from warploom.rows.choose import arranged

_TARGET = warploom.cuda_target("h200")
#: Largest error of a result, relative to the largest result.
_ALLOWED = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5}
#: What plans are taken to cost, such that all kinds are chosen.
_LIKED = {
    "neighbours": lambda share: (-share.points, share.vector),
    "single": lambda share: (share.points, -share.vector),
    "short vectors": lambda share: (share.points, share.vector),
}


def depthwise(
    image: tuple[int, ...], taps: tuple[int, int], stride: int, dilation: int, dtype: str
) -> PrimFunc:
    """``relu(conv(x, f) + b + r)``, each channel with filters of its own; channels are last."""
    channels = image[-1]
    x = te.placeholder(image, dtype, "x")
    f = te.placeholder((*taps, channels, 1), dtype, "f")
    padding = [dilation * (tap // 2) for tap in taps]
    sums = topi.nn.depthwise_conv2d_nhwc(x, f, stride, padding, dilation, out_dtype=dtype)
    b = te.placeholder((channels,), dtype, "b")
    r = te.placeholder(sums.shape, dtype, "r")
    return te.create_prim_func([x, f, b, r, topi.nn.relu(topi.add(topi.add(sums, b), r))])


def convolved(x: np.ndarray, f: np.ndarray, stride: int, dilation: int) -> np.ndarray:
    """The convolution in float64."""
    x, f = x.astype(np.float64), f[..., 0].astype(np.float64)
    taps = f.shape[:2]
    before = [dilation * (tap // 2) for tap in taps]
    padded = np.pad(x, ((0, 0), *((one, one) for one in before), (0, 0)))
    reach = [dilation * (tap - 1) + 1 for tap in taps]
    height, width = (
        (size - one) // stride + 1 for size, one in zip(padded.shape[1:3], reach, strict=True)
    )
    return sum(
        padded[:, i * dilation :][:, : stride * height : stride, j * dilation :][
            :, :, : stride * width : stride
        ]
        * f[i, j]
        for i in range(taps[0])
        for j in range(taps[1])
    )


def run(function: PrimFunc, *arrays: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    dtype = arrays[0].dtype
    kernel = row_kernel(read_rows(function)).with_attr("global_symbol", "main")
    built = tvm.compile(tvm.IRModule({"main": kernel}), _TARGET, tir_pipeline="warploom")
    out = np.full(shape, np.nan).astype(dtype)
    given = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in (*arrays, out)]
    built["main"](*given)
    return given[-1].numpy().astype(np.float64)


@pytest.mark.gpu
@pytest.mark.some(6)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("liked", list(_LIKED))
@pytest.mark.parametrize(
    ("image", "taps", "stride", "dilation"),
    [
        ((1, 7, 8, 24), (7, 7), 1, 1), ((2, 5, 6, 16), (3, 3), 1, 1), ((1, 9, 9, 8), (5, 5), 2, 1),
        ((3, 4, 5, 6), (3, 1), 1, 1), ((1, 8, 12, 32), (3, 3), 1, 2), ((1, 3, 4, 40), (1, 9), 1, 1),
    ],
)  # fmt: skip
def test_channels_with_filters_of_their_own(
    image: tuple[int, ...], taps: tuple[int, int], stride: int, dilation: int, liked: str,
    dtype: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(window_plan, "share_cycles", lambda _, share: _LIKED[liked](share))
    x = rng.standard_normal(image).astype(dtype)
    f = rng.standard_normal((*taps, image[-1], 1)).astype(dtype)
    b = rng.standard_normal(image[-1]).astype(dtype)
    sums = convolved(x, f, stride, dilation)
    r = rng.standard_normal(sums.shape).astype(dtype)
    function = depthwise(image, taps, stride, dilation, dtype)
    _, plan = arranged(read_rows(function))
    width = sums.shape[2]
    most = max(points for points in range(1, 9) if width % points == 0)
    assert plan.points == (most if liked == "neighbours" and taps[1] > 1 else 1)
    found = run(function, x, f, b, r, shape=sums.shape)
    wanted = np.maximum(sums + b.astype(np.float64) + r.astype(np.float64), 0)
    # The sums are rounded before the bias is added, as TVM's operators say.
    np.testing.assert_allclose(found, wanted, atol=3 * _ALLOWED[dtype] * np.abs(sums).max())


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [16, 3])
def test_pictures_are_pooled(
    kind: str, stride: int, channels: int, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 9, 8, channels)).astype(np.float32)
    place = te.placeholder(x.shape, "float32", "x")
    pooled = topi.nn.pool2d(
        place, (3, 3), (stride, stride), (1, 1), (1, 1, 1, 1), kind, layout="NHWC",
        count_include_pad=True,
    )  # fmt: skip
    shape = tuple(int(extent) for extent in pooled.shape)
    found = run(te.create_prim_func([place, pooled]), x, shape=shape)
    start = -np.inf if kind == "max" else 0.0
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=start)
    windows = np.stack([
        padded[:, i : i + stride * shape[1] : stride, j : j + stride * shape[2] : stride]
        for i in range(3) for j in range(3)
    ])  # fmt: skip
    wanted = windows.max(0) if kind == "max" else windows.mean(0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(2, 7, 7, 64), (1, 16, 16, 8), (5, 3, 6, 9)])
def test_a_picture_has_a_mean(
    shape: tuple[int, ...], dtype: str, rng: np.random.Generator
) -> None:
    x = rng.standard_normal(shape).astype(dtype)
    place = te.placeholder(shape, dtype, "x")
    mean = topi.divide(topi.sum(place, axis=[1, 2]), tirx.const(shape[1] * shape[2], dtype))
    found = run(te.create_prim_func([place, mean]), x, shape=(shape[0], shape[3]))
    wanted = x.astype(np.float64).mean((1, 2))
    np.testing.assert_allclose(found, wanted, atol=_ALLOWED[dtype])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(4, 24, 64), (1, 3, 8), (2, 100, 5)])
def test_windows_read_results_of_others(
    shape: tuple[int, ...], dtype: str, rng: np.random.Generator
) -> None:
    x = (4 * rng.standard_normal(shape)).astype(dtype)
    place = te.placeholder(shape, dtype, "x")
    wide = topi.cast(place, "float32")
    softmax = topi.cast(topi.nn.softmax(wide, 1), dtype)
    found = run(te.create_prim_func([place, softmax]), x, shape=shape)
    wanted = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    wanted /= wanted.sum(1, keepdims=True)
    np.testing.assert_allclose(found, wanted, atol=_ALLOWED[dtype])
    mean = topi.divide(topi.sum(wide, 1, keepdims=True), tirx.const(shape[1], "float32"))
    apart = topi.subtract(wide, mean)
    squares = topi.cast(topi.sum(topi.multiply(apart, apart), 1), dtype)
    found = run(te.create_prim_func([place, squares]), x, shape=(shape[0], shape[2]))
    wanted = x.astype(np.float64).var(1) * shape[1]
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=_ALLOWED[dtype] * wanted.max())


def matmul(m: int, n: int, k: int) -> PrimFunc:
    a, b = te.placeholder((m, k), "float16", "a"), te.placeholder((k, n), "float16", "b")
    r = te.reduce_axis((0, k), "r")
    out = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], r))
    return te.create_prim_func([a, b, out])


def dense(c: int) -> PrimFunc:
    x = te.placeholder((1, 8, 8, c), "float16", "x")
    f = te.placeholder((3, 3, c, c), "float16", "f")
    return te.create_prim_func([x, f, topi.nn.conv2d_nhwc(x, f, 1, 1, 1)])


def long_sum(rows: int) -> PrimFunc:
    x = te.placeholder((rows, 64), "float16", "x")
    return te.create_prim_func([x, topi.sum(x, axis=0)])


def normalised() -> PrimFunc:
    """Of sums over windows: two kernels apart."""
    x = te.placeholder((4, 32, 64), "float32", "x")
    pooled = topi.sum(x, axis=1)
    return te.create_prim_func([x, topi.nn.softmax(pooled)])


def pooled_twice() -> PrimFunc:
    """Each step of a window reads the result of another window."""
    x = te.placeholder((1, 8, 8, 64), "float32", "x")
    once, again = (te.reduce_axis((0, 3), name) for name in ("once", "again"))
    inner = te.compute((1, 6, 8, 64), lambda n, i, j, c: te.max(x[n, i + once, j, c], once))
    outer = te.compute((1, 4, 8, 64), lambda n, i, j, c: te.max(inner[n, i + again, j, c], again))
    return te.create_prim_func([x, outer])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (pooled_twice, "the two are kernels apart"),
        (lambda: matmul(16, 64, 32), "matmuls are left"), (lambda: dense(16), "matmuls are left"),
        (lambda: long_sum(257), "no vector in memory"), (normalised, "two are kernels apart"),
    ],
)  # fmt: skip
def test_other_sums_are_no_windows(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(Decline, match=reason):
        arranged(read_rows(make()))


def test_threads_that_share_a_row_have_no_neighbours() -> None:
    with pytest.raises(IllegalCombination, match="points = 4"):
        RowPlan(8, 256, 1, 32, points=4)


def test_loads_of_neighbours_are_shared() -> None:
    """Pixels beside each other read six columns more than they are, and seven of filters, once."""
    function = read_rows(depthwise((64, 8, 56, 96), (7, 7), 1, 1, "float16"))
    _, plan = arranged(function)
    assert plan.points >= 4 and not plan.written
    text = row_kernel(function).script()
    loaded = {name: len(re.findall(rf"= {name}_words(_\d+)?\[", text)) for name in "xf"}
    assert loaded == {"x": plan.points + 6, "f": 7}


def test_small_images_have_many_threads() -> None:
    """Threads of one image have few elements each, read all of a window ahead, and fill the SMs."""
    plans = {}
    for image in ((1, 7, 7, 768), (1, 56, 56, 96), (64, 14, 14, 384)):
        function = read_rows(depthwise(image, (7, 7), 1, 1, "float16"))
        plan = arranged(function)[1]
        plans[image] = plan
        threads = math.prod(image) // (plan.points * plan.vector)
        assert threads >= (1 << 14) and plan.map_threads * 132 <= threads
        assert plan.written == (image[0] == 1)
    few, more, many = (plan.points * plan.vector for plan in plans.values())
    assert few < more < many


@pytest.mark.parametrize(("points", "reads"), [(1, 7), (4, 10), (8, 14)])
def test_reads_of_neighbours_are_counted_once(points: int, reads: int) -> None:
    function = read_rows(depthwise((2, 8, 56, 96), (7, 7), 1, 1, "float16"))
    (window,) = function.windows
    found = {
        load.source.name: window_plan._distinct(function, window, load, points)
        for load in function.window_loads
    }
    assert found == {"x": reads, "f": 7}
