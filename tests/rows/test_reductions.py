"""Reductions of rows: of all kinds, lengths and types, as TVM's operators and Relax write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np
import pytest
from tvm import te, tirx, topi
from tvm.tirx import PrimFunc

from warploom import emulator
from warploom.emulator import EmulatorError
from warploom.errors import Decline
from warploom.rows import RowPlan, read_rows, row_kernel
from warploom.rows.choose import plan_of
from warploom.tile import ir

_BOUNDS = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 2e-2, "int32": 0, "int64": 0}
Reference = Callable[..., np.ndarray]
Made = tuple[PrimFunc, Reference]


def _rms_norm(shape: tuple, dtype: str, axes: int = 1) -> Made:
    x = te.placeholder(shape, dtype, "x")
    w = te.placeholder(shape[-axes:], dtype, "w")
    along = list(range(len(shape) - axes, len(shape)))

    def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(tuple(along), keepdims=True) + 1e-5) * w

    return te.create_prim_func([x, w, topi.nn.rms_norm(x, w, along, 1e-5)]), expected


def _layer_norm(shape: tuple, dtype: str, axes: int = 1) -> Made:
    x = te.placeholder(shape, dtype, "x")
    w, b = (te.placeholder(shape[-axes:], dtype, name) for name in "wb")
    along = list(range(len(shape) - axes, len(shape)))

    def expected(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        mean = x.mean(tuple(along), keepdims=True)
        return (x - mean) / np.sqrt(x.var(tuple(along), keepdims=True) + 1e-5) * w + b

    return te.create_prim_func([x, w, b, topi.nn.layer_norm(x, w, b, along, 1e-5)]), expected


def _group_norm(shape: tuple, dtype: str, groups: int = 4, channel: int = 1) -> Made:
    x = te.placeholder(shape, dtype, "x")
    w, b = (te.placeholder((shape[channel],), dtype, name) for name in "wb")
    along = [axis for axis in range(1, len(shape)) if axis != channel]
    y = topi.nn.group_norm(x, w, b, groups, channel, along, 1e-5)

    def expected(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        first = np.moveaxis(x, channel, 1)
        parts = first.reshape(len(x), groups, -1)
        parts = parts - parts.mean(2, keepdims=True)
        parts = parts / np.sqrt((parts * parts).mean(2, keepdims=True) + 1e-5)
        scale = (slice(None), *[None] * (len(shape) - 2))
        return np.moveaxis(parts.reshape(first.shape) * w[scale] + b[scale], 1, channel)

    return te.create_prim_func([x, w, b, y]), expected


def _softmax(shape: tuple, dtype: str, log: bool = False) -> Made:
    x = te.placeholder(shape, dtype, "x")

    def expected(x: np.ndarray) -> np.ndarray:
        made = np.exp(x - x.max(-1, keepdims=True))
        made /= made.sum(-1, keepdims=True)
        return np.log(made) if log else made

    y = topi.nn.log_softmax(x) if log else topi.nn.softmax(x)
    return te.create_prim_func([x, y]), expected


def _reduced(shape: tuple, dtype: str, kind: str = "max", keep: bool = False) -> Made:
    """One number a row, of magnitudes for ``"largest"``."""
    x = te.placeholder(shape, dtype, "x")
    of, numpy = {
        "largest": (topi.max, np.max), "sum": (topi.sum, np.sum), "max": (topi.max, np.max),
        "min": (topi.min, np.min), "prod": (topi.prod, np.prod), "argmax": (topi.argmax, np.argmax),
        "argmin": (topi.argmin, np.argmin),
    }[kind]  # fmt: skip
    y = of(topi.abs(x) if kind == "largest" else x, axis=-1, keepdims=keep)

    def expected(x: np.ndarray) -> np.ndarray:
        return numpy(np.abs(x) if kind == "largest" else x, axis=-1, keepdims=keep)

    return te.create_prim_func([x, y]), expected


def _scaled(shape: tuple, dtype: str) -> Made:
    """Rows as 8-bit numbers, and the scale of each: whole rows and one number of a row."""
    x = te.placeholder(shape, dtype, "x")
    r = te.reduce_axis((0, shape[-1]), "r")
    largest = te.compute(shape[:-1], lambda i: te.max(te.abs(x[i, r]), r), "largest")
    scale = te.compute(shape[:-1], lambda i: largest[i].astype("float32") / 127.0, "scale")
    y = te.compute(shape, lambda i, j: x[i, j].astype("float32") / scale[i], "y")
    return te.create_prim_func([x, scale, y]), lambda x: x / np.abs(x).max(1, keepdims=True) * 127


def _check(made: Made, rng: np.random.Generator, rows: int) -> RowPlan:
    function, expected = made
    results = {param for param in function.params if param.name in ("y", "scale")}
    params = function.params
    arrays = []
    for param in params:
        shape = [int(s) if isinstance(s, tirx.IntImm) else rows for s in param.shape]
        numbers = rng.standard_normal(shape)
        # Small whole numbers make equal extrema.
        arrays.append((np.rint(4 * numbers) if "int" in str(params[-1].dtype) else numbers)
                      .astype(str(param.dtype)))  # fmt: skip
    given = [one for one, p in zip(arrays[:-1], params, strict=False) if p not in results]
    wanted = np.asarray(expected(*(one.astype(np.float64) for one in given)))
    dtype = str(params[-1].dtype)
    poison = np.nan if "float" in dtype else -7
    arrays[-1] = np.full(wanted.shape, poison).astype(dtype)
    read = read_rows(function)
    kernel = row_kernel(read).with_attr("global_symbol", "main")
    found = emulator.run(kernel, arrays).outputs[-1].astype(np.float64)
    error = np.abs(found - wanted) / np.maximum(np.abs(wanted), np.abs(wanted).max() * 0.02 + 1e-9)
    assert error.max() <= _BOUNDS[dtype], (error.max(), str(plan_of(read)))
    return plan_of(read)


def _m() -> Any:
    return te.var("m")


#: What is reduced, its type and shape (None: dynamic), and words of the plan.
CASES = [
    (_rms_norm, "float16", (None, 127), {}, "1 element"),
    (_rms_norm, "bfloat16", (3, 1, 4100), {}, "4 elements"),
    (_rms_norm, "float32", (2, 3, 5, 8), {"axes": 2}, "4 elements"),
    (_rms_norm, "float16", (2, 40000), {}, "2 CTAs"),
    (_layer_norm, "float16", (None, 100), {}, "4 elements"),
    (_layer_norm, "float32", (2, 6, 8), {"axes": 2}, "16 threads a row"),
    (_group_norm, "float16", (None, 16, 6, 6), {}, "8 elements"),
    (_group_norm, "float16", (2, 12, 5, 5), {"groups": 3}, "4 elements"),
    (_group_norm, "float32", (2, 5, 7, 32), {"channel": 3}, "4 elements"),
    (_group_norm, "float16", (3, 7, 16), {"channel": 1, "groups": 7}, "8 elements"),
    (_softmax, "float32", (None, 8), {}, "2 threads a row"),
    (_softmax, "float16", (3, 197), {}, "1 element"),
    (_softmax, "float16", (5, None), {}, "each pass"),
    (_softmax, "bfloat16", (2, 1), {}, "1 threads"),
    (_softmax, "float32", (1, 50257), {"log": True}, "CTAs"),
    (_reduced, "float16", (None, 1000), {}, "8 elements"),
    (_reduced, "float32", (4, 33), {"kind": "sum"}, "1 element"),
    (_reduced, "bfloat16", (4, 72), {"kind": "min", "keep": True}, "8 elements"),
    (_reduced, "float16", (None, 40), {"kind": "largest"}, "8 elements"),
    (_reduced, "float32", (3, 9), {"kind": "prod"}, "1 element"),
    (_reduced, "int32", (3, 40), {"kind": "max"}, "4 elements"),
    (_reduced, "float32", (None, 77), {"kind": "argmax"}, "1 element"),
    (_reduced, "float16", (3, 136), {"kind": "argmin", "keep": True}, "8 elements"),
    (_reduced, "float32", (2, 70000), {"kind": "argmax"}, "CTAs"),
    (_reduced, "float32", (1, 600001), {"kind": "argmax"}, "each pass"),
    (_scaled, "float16", (4, 88), {}, "8 elements"),
]  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "dtype", "shape", "options", "words"), CASES,
    ids=lambda one: getattr(one, "__name__", str(one)),
)  # fmt: skip
@pytest.mark.some(8)
def test_reductions(
    kind: Any, dtype: str, shape: tuple, options: dict, words: str, rng: np.random.Generator
) -> None:
    sizes = tuple(_m() if size is None else size for size in shape)
    plan = _check(kind(sizes, dtype, **options), rng, 11)
    assert words in str(plan)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [_layer_norm, _softmax, _reduced])
def test_reductions_of_any_length(kind: Any, rng: np.random.Generator) -> None:
    """Lengths that are drawn: odd ones and powers of two, of some lanes and of many warps."""
    for _ in range(3):
        columns = int(rng.integers(1, 2 ** rng.integers(1, 12)))
        dtype = str(rng.choice(["float16", "float32"]))
        rows = int(rng.integers(1, 9))
        print(kind.__name__, dtype, rows, columns)
        _check(kind((_m(), columns), dtype), rng, rows)


def test_equal_functions_have_one_load_of_each_element() -> None:
    made, _ = _group_norm((2, 16, 6, 6), "float16")
    assert len([one for one in read_rows(made).loads if one.source.name == "x"]) == 1


def test_numbers_of_64_bits_only_index() -> None:
    x = te.placeholder((4, 64), "int64", "x")
    y = te.compute((4, 64), lambda i, j: x[i, j] + tirx.const(1, "int64"), "y")
    with pytest.raises(Decline, match="64 bits"):
        read_rows(te.create_prim_func([x, y]))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_rows_are_gathered(dtype: str, rng: np.random.Generator) -> None:
    table = te.placeholder((50, 48), "float16", "table")
    index = te.placeholder((_m(),), dtype, "index")
    made = te.create_prim_func([table, index, topi.take(table, index, axis=0, mode="fast")])
    kernel = row_kernel(read_rows(made)).with_attr("global_symbol", "main")
    values = rng.standard_normal((50, 48)).astype("float16")
    places = rng.integers(0, 50, 9).astype(dtype)
    out = np.full((9, 48), np.nan, "float16")
    found = emulator.run(kernel, [values, places, out]).outputs[-1]
    np.testing.assert_array_equal(found, values[places])


_FLAT = [
    ((None, 127), "float16"), ((5, None), "bfloat16"), ((None,), "float16"), ((7, 1), "float32"),
]  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "dtype"), _FLAT)
def test_elements_of_rows_without_vectors(
    shape: tuple, dtype: str, rng: np.random.Generator
) -> None:
    """A bias along the last axis, which begins anew within a vector."""
    sizes = tuple(_m() if size is None else size for size in shape)
    x, b = te.placeholder(sizes, dtype, "x"), te.placeholder(sizes[-1:], dtype, "b")
    y = te.compute(sizes, lambda *at: x[at] * x[at] + b[at[-1]], "y")
    made = te.create_prim_func([x, b, y]), lambda x, b: x * x + b
    plan = _check(made, rng, 13)
    assert plan.vector == (4 if dtype == "float32" else 8)


def _without(kernel: PrimFunc, name: str) -> PrimFunc:
    """The kernel without its calls of one instruction."""
    found = 0

    def change(node: tirx.Evaluate) -> Any:
        nonlocal found
        hit = name in str(getattr(node.value, "op", ""))
        found += hit
        return tirx.Evaluate(0) if hit else node

    body = ir.map_nodes(kernel.body, {tirx.Evaluate: change}, {})
    assert found, name
    return PrimFunc(kernel.params, body, kernel.ret_type, kernel.attrs)


@pytest.mark.gpu
@pytest.mark.parametrize("left_out", ["", "cta_sync", "cluster_sync", "barrier_cluster"])
def test_threads_of_a_row_wait_for_each_other(left_out: str, rng: np.random.Generator) -> None:
    made, expected = _softmax((2, 512), "float32")
    read = read_rows(made)
    kernel = row_kernel(read, RowPlan(4, 512, 1, 64, 1, 2)).with_attr("global_symbol", "main")
    x = rng.standard_normal((2, 512)).astype("float32")
    arrays = [x, np.full_like(x, np.nan)]
    if left_out:
        with pytest.raises(EmulatorError, match=r"race|exited|started|cluster"):
            emulator.run(_without(kernel, left_out), arrays)
        return
    found = emulator.run(kernel, arrays).outputs[-1]
    np.testing.assert_allclose(found, expected(x.astype(np.float64)), rtol=1e-5)
