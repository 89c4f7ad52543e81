"""Functions that read along one axis and store along another: transpositions, and more."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.tirx import PrimFunc

import warploom
from warploom.compiler import sass
from warploom.compiler.cubin import find_cubins
from warploom.errors import Decline
from warploom.rows import read_rows, row_kernel
from warploom.rows.choose import arranged
from warploom.rows.crossed_kernel import lanes_of

_TARGET = warploom.cuda_target("h200")
Case = tuple[PrimFunc, Callable[..., np.ndarray]]


def _transposed(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> Case:
    x = te.placeholder(shape, dtype, "x")
    return te.create_prim_func([x, tvm.topi.transpose(x, order)]), lambda x: x.transpose(order)


def _residual(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> Case:
    """``relu(x turned + a bias of each channel) + r``; r lies as the result does."""
    x = te.placeholder(shape, dtype, "x")
    turned = tvm.topi.transpose(x, order)
    b = te.placeholder(turned.shape[-1:], dtype, "b")
    r = te.placeholder(turned.shape, dtype, "r")
    y = tvm.topi.add(tvm.topi.nn.relu(tvm.topi.add(turned, b)), r)
    return te.create_prim_func([x, b, r, y]), lambda x, b, r: (
        np.maximum(x.transpose(order) + b, 0) + r
    )


def _cast(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> Case:
    """Rounded to 16 bits while it is turned."""
    x = te.placeholder(shape, "float32", "x")
    turned = tvm.topi.transpose(x, order)
    y = te.compute(turned.shape, lambda *i: turned[i].astype(dtype) * tirx.const(2, dtype), "y")
    return te.create_prim_func([x, y]), lambda x: x.transpose(order).astype(dtype) * 2


def _joined(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> Case:
    """Two tensors one behind the other along what becomes the last axis, turned."""
    x = te.placeholder(shape, dtype, "x")
    z = te.placeholder(shape, dtype, "z")
    axis = order[-1]
    y = tvm.topi.transpose(tvm.topi.concatenate([x, z], axis), order)
    return te.create_prim_func([x, z, y]), lambda x, z: (
        np.concatenate([x, z], axis).transpose(order)
    )


def _sliced(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> Case:
    """The later half of the first axis, turned."""
    x = te.placeholder((2 * shape[0], *shape[1:]), dtype, "x")
    part = te.compute(shape, lambda i, *rest: x[(i + shape[0], *rest)], "part")
    y = tvm.topi.transpose(part, order)
    return te.create_prim_func([x, y]), lambda x: x[shape[0] :].transpose(order)


def _shuffled(shape: tuple[int, ...], order: tuple[int, ...], dtype: str) -> Case:
    """Channels put between the pixels: ``[n, h, w, 2, 2, c]`` as ``[n, c, 2 h, 2 w]``."""
    n, h, w, c = (shape[0], *shape[-3:])
    x = te.placeholder((n, h, w, 4 * c), dtype, "x")
    apart = tvm.topi.reshape(x, (n, h, w, 2, 2, c))
    y = tvm.topi.reshape(tvm.topi.transpose(apart, (0, 5, 1, 3, 2, 4)), (n, c, 2 * h, 2 * w))
    return te.create_prim_func([x, y]), lambda x: (
        x.reshape(n, h, w, 2, 2, c).transpose(0, 5, 1, 3, 2, 4).reshape(n, c, 2 * h, 2 * w)
    )


def run(case: Case, rng: Any) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel computes of random numbers, and what numpy computes."""
    function, expected = case
    kernel = row_kernel(read_rows(function)).with_attr("global_symbol", "main")
    built = tvm.compile(tvm.IRModule({"main": kernel}), _TARGET, tir_pipeline="warploom")
    *inputs, result = function.params
    arrays = [
        (8 * rng.standard_normal([int(n) for n in one.shape])).astype(str(one.dtype))
        for one in inputs
    ]
    shape = [int(n) for n in result.shape]
    out = np.full(shape, -1 if "int" in str(result.dtype) else np.nan).astype(str(result.dtype))
    given = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in (*arrays, out)]
    built["main"](*given)
    return given[-1].numpy(), expected(*arrays)


_SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 24, 7, 7), (0, 2, 3, 1)), ((1, 48, 14, 14), (0, 2, 3, 1)), ((2, 7, 7, 24), (0, 3, 1, 2)),
    ((3, 5, 8), (0, 2, 1)), ((1, 40, 56), (0, 2, 1)), ((9, 11), (1, 0)), ((64, 16), (1, 0)),
    ((2, 3, 5, 7, 16), (0, 4, 1, 3, 2)), ((2, 16, 12, 4), (0, 3, 2, 1)),
]  # fmt: skip


@pytest.mark.gpu
@pytest.mark.some(12)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
@pytest.mark.parametrize("make", [_transposed, _residual, _cast, _joined, _sliced])
@pytest.mark.parametrize(("shape", "order"), _SHAPES)
def test_results_are_those_of_numpy(make, shape, order, dtype, rng):
    if dtype == "int8" and make is not _transposed:
        pytest.skip("elements of 8 bits are only moved")
    case = make(shape, order, dtype)
    assert arranged(read_rows(case[0]))[1].across
    found, wanted = run(case, rng)
    assert not np.isnan(found.astype(np.float64)).any()
    if make is _residual:
        bound = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6}[dtype]
        wide = (one.astype(np.float64) for one in (found, wanted))
        np.testing.assert_allclose(*wide, bound, bound)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(2, 4, 5, 24), (1, 3, 3, 16), (1, 8, 8, 64)])
def test_axes_are_cut_where_an_operand_divides_them(shape, dtype, rng):
    case = _shuffled(shape, (), dtype)
    assert arranged(read_rows(case[0]))[1].across
    np.testing.assert_array_equal(*run(case, rng))


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_a_batch_that_the_launch_knows(batch, rng):
    n = te.var("n", "int32")
    x = te.placeholder((n, 16, 5, 5), "float16", "x")
    function = te.create_prim_func([x, tvm.topi.transpose(x, (0, 2, 3, 1))])
    kernel = row_kernel(read_rows(function)).with_attr("global_symbol", "main")
    built = tvm.compile(tvm.IRModule({"main": kernel}), _TARGET, tir_pipeline="warploom")
    given = rng.standard_normal((batch, 16, 5, 5)).astype("float16")
    out = np.full((batch, 5, 5, 16), np.nan, "float16")
    tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in (given, out)]
    built["main"](*tensors)
    np.testing.assert_array_equal(tensors[1].numpy(), given.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    ("shape", "order", "square", "lanes"),
    [
        # Neighbours in memory of both sides, whole vectors: 64 bytes a warp in each direction.
        ((32, 64, 56, 56), (0, 2, 3, 1), (8, 8), (8, 4)),
        ((64, 768, 7, 7), (0, 2, 3, 1), (8, 1), (2, 16)),
        ((64, 14, 14, 384), (0, 3, 1, 2), (4, 8), (8, 4)),
        # Too few threads: squares become rectangles.
        ((1, 64, 28, 28), (0, 2, 3, 1), (8, 2), (4, 8)),
    ],
)
def test_a_warp_transfers_whole_sectors(shape, order, square, lanes):
    function, plan = arranged(read_rows(_transposed(shape, order, "float16")[0]))
    assert (plan.vector, plan.points) == square
    assert lanes_of(function.crossing, plan) == lanes


@pytest.mark.skipif(shutil.which("g++") is None, reason="export_library links with g++")
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_loads_and_stores_have_16_bytes(dtype, tmp_path, machine_code):
    function, _ = _residual((32, 64, 56, 56), (0, 2, 3, 1), dtype)
    kernel = row_kernel(read_rows(function)).with_attr("global_symbol", "main")
    built = tvm.compile(tvm.IRModule({"main": kernel}), _TARGET, tir_pipeline="warploom")
    file = tmp_path / "kernel.so"
    built.export_library(str(file))
    (cubin,) = find_cubins(file.read_bytes())
    names = re.findall(r"\b(LDG\S*|STG\S*|LDL\S*|STL\S*)", sass.listing(cubin))
    assert all(one[:3] in ("LDG", "STG") and "128" in one for one in names), names
    # The square of x, that of r and the result, and the bias of its columns.
    assert len(names) == {"float16": 8 + 2 * 8 + 1, "float32": 4 + 2 * 4 + 1}[dtype]


def test_axes_that_are_neighbours_everywhere_become_one():
    function, _ = arranged(read_rows(_transposed((2, 24, 7, 9), (0, 2, 3, 1), "float16")[0]))
    crossing = function.crossing
    assert [int(one.extent) for one in (*crossing.outer, crossing.across)] == [2, 63]
    assert int(crossing.columns.extent) == 24


def test_what_lies_along_neither_axis_is_declined():
    x = te.placeholder((8, 8, 8, 2), "float16", "x")
    y = te.compute((8, 8, 8), lambda i, j, k: x[k, j, i, 0] + x[j, k, i, 1], "y")
    with pytest.raises(Decline, match="neighbours of a row, or of a column, are no vector"):
        arranged(read_rows(te.create_prim_func([x, y])))
