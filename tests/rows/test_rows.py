"""Functions of rows: their kernels compute what they say, for lengths and types of all kinds."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16 and float8)
import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.tirx import PrimFunc

import warploom
from warploom import emulator
from warploom.compiler import sass
from warploom.compiler.cubin import find_cubins
from warploom.errors import Decline, IllegalCombination
from warploom.rows import RowPlan, read_rows, row_kernel
from warploom.rows.choose import plan_of
from warploom.target import SM90A

_TARGET = warploom.cuda_target("h200")
_BOUNDS = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2, "float8_e4m3fn": 0.07}


def _wide(value: Any) -> Any:
    return value.astype("float32")


def _rms_norm(m: Any, n: int, dtype: str) -> tuple[PrimFunc, Callable]:
    x, w = te.placeholder((m, n), dtype, "x"), te.placeholder((n,), dtype, "w")
    r = te.reduce_axis((0, n), "r")
    squares = te.compute((m,), lambda i: te.sum(_wide(x[i, r]) * _wide(x[i, r]), r), "squares")
    y = te.compute(
        (m, n),
        lambda i, j: (_wide(x[i, j]) * te.rsqrt(squares[i] / n + 1e-5) * _wide(w[j])).astype(dtype),
        "y",
    )
    return te.create_prim_func([x, w, y]), lambda x, w: (
        x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w
    )


def _softmax(m: Any, n: int, dtype: str) -> tuple[PrimFunc, Callable]:
    x = te.placeholder((m, 2, n), dtype, "x")
    y = tvm.topi.nn.softmax(x)

    def expected(x: np.ndarray) -> np.ndarray:
        made = np.exp(x - x.max(2, keepdims=True))
        return made / made.sum(2, keepdims=True)

    return te.create_prim_func([x, y]), expected


def _rotate(m: Any, n: int, dtype: str) -> tuple[PrimFunc, Callable]:
    """Heads of n elements from rows of three, turned by tables of angles."""
    half, heads = n // 2, 3
    x = te.placeholder((m, heads * n), dtype, "x")
    table = te.placeholder((2, 64, half), "float32", "table")

    def element(_: Any, i: Any, h: Any, d: Any) -> Any:
        other = _wide(x[i, h * n + (d + half) % n])
        turned = _wide(x[i, h * n + d]) * table[0, i, d % half]
        return (turned + tirx.Select(d < half, -other, other) * table[1, i, d % half]).astype(dtype)

    y = te.compute((1, m, heads, n), element, "y")

    def expected(x: np.ndarray, table: np.ndarray) -> np.ndarray:
        x = x.reshape(len(x), heads, n)
        cos, sin = (np.tile(one[: len(x), None], 2) for one in table)
        low, high = np.split(x, 2, 2)
        return (x * cos + np.concatenate((-high, low), 2) * sin)[None]

    return te.create_prim_func([x, table, y]), expected


def _gated(m: Any, n: int, dtype: str) -> tuple[PrimFunc, Callable]:
    """Halves of wider rows, one through a SiLU, and the row's number for what lies outside."""
    x = te.placeholder((m, 2 * n), dtype, "x")
    gate = te.compute((m, n), lambda i, j: x[i, j] * te.sigmoid(x[i, j]), "gate")
    y = te.compute((m, n), lambda i, j: gate[i, j] * x[i, j + n], "y")

    def expected(x: np.ndarray) -> np.ndarray:
        gate, up = np.split(x, 2, 1)
        return gate / (1 + np.exp(-gate)) * up

    return te.create_prim_func([x, y]), expected


def _converted(m: Any, n: int, dtype: str) -> tuple[PrimFunc, Callable]:
    x, s = te.placeholder((m, n), dtype, "x"), te.placeholder((m,), "float32", "s")
    y = te.compute(
        (m, n), lambda i, j: (_wide(x[i, j]) * s[i]).astype("float8_e4m3fn"), "y"
    )
    return te.create_prim_func([x, s, y]), lambda x, s: x * s[:, None]


def _padded(m: Any, n: int, dtype: str) -> tuple[PrimFunc, Callable]:
    """Two rows more than there are: loads under a condition stay under it."""
    x = te.placeholder((m, n), dtype, "x")
    y = te.compute(
        (m + 2, n),
        lambda i, j: tirx.if_then_else(i < m, x[i, j] + x[i, j], tirx.const(0, dtype)),
        "y",
    )
    return te.create_prim_func([x, y]), lambda x: np.pad(2 * x, ((0, 2), (0, 0)))


def _check(
    made: tuple[PrimFunc, Callable], rng: np.random.Generator, rows: int
) -> None:
    function, expected = made
    arrays = []
    for param in function.params:
        shape = [int(s) if isinstance(s, tirx.IntImm) else rows for s in param.shape]
        arrays.append(rng.standard_normal(shape).astype(str(param.dtype)))
    wanted = expected(*(one.astype(np.float64) for one in arrays[:-1]))
    dtype = str(function.params[-1].dtype)
    arrays[-1] = np.full(wanted.shape, np.nan).astype(dtype)
    kernel = row_kernel(read_rows(function)).with_attr("global_symbol", "main")
    found = emulator.run(kernel, arrays).outputs[-1].astype(np.float64)
    error = np.abs(found - wanted) / np.maximum(np.abs(wanted), np.abs(wanted).max() * 0.02)
    assert error.max() <= _BOUNDS[dtype], (error.max(), plan_of(read_rows(function)))


#: Kind, dtype, rows, columns: vectors of all widths, several of a thread, warps and CTAs a row.
CASES = [
    (_rms_norm, "float16", None, 256),
    (_rms_norm, "bfloat16", 3, 4096 + 64),
    (_rms_norm, "float32", 5, 36),
    (_rms_norm, "float16", 2, 8 * 512 * 2 + 16),
    (_softmax, "float16", None, 72),
    (_softmax, "float32", 3, 1040),
    (_softmax, "bfloat16", 2, 2),
    (_rotate, "float16", None, 64),
    (_rotate, "bfloat16", 7, 16),
    (_gated, "float16", None, 40),
    (_gated, "bfloat16", 9, 6),
    (_converted, "float16", None, 48),
    (_converted, "float32", 4, 20),
    (_padded, "float16", 3, 24),
]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "dtype", "rows", "columns"), CASES, ids=lambda one: getattr(one, "__name__", str(one))
)
@pytest.mark.some(4)
def test_rows(kind: Any, dtype: str, rows: int | None, columns: int, rng: Any) -> None:
    _check(kind(te.var("m") if rows is None else rows, columns, dtype), rng, rows or 11)


def test_reductions_are_read_in_their_order() -> None:
    function = read_rows(_softmax(te.var("m"), 64, "float16")[0])
    assert [one.combine for one in function.reductions] == ["max", "sum"]
    assert {str(one.result.ty.dtype) for one in function.reductions} == {"float32"}
    assert [str(axis.extent) for axis in function.rows] == ["m", "2"]


def _compute(shape: tuple[Any, ...], element: Callable, dtype: str = "float16") -> PrimFunc:
    x = te.placeholder((64, 64), dtype, "x")
    return te.create_prim_func([x, te.compute(shape, lambda *at: element(x, *at), "y")])


def _product() -> PrimFunc:
    r = te.reduce_axis((0, 64), "r")
    x, w = (te.placeholder((64, 64), "float32", name) for name in "xw")
    y = te.compute((64, 64), lambda i, j: te.sum(x[i, r] * w[r, j], r), "y")
    return te.create_prim_func([x, w, y])


def _pooled(window: int, stride: int) -> PrimFunc:
    x = te.placeholder((4, 64), "float32", "x")
    r = te.reduce_axis((0, window), "r")
    y = te.compute((4, 30), lambda i, j: te.max(x[i, j * stride + r], r), "y")
    return te.create_prim_func([x, y])


def _channels_of_groups(channels: int) -> PrimFunc:
    shape, affine = (2, 3, 3, 8 * channels), (8 * channels,)
    x, w, b = (te.placeholder(one, "float16", name)
               for one, name in ((shape, "x"), (affine, "w"), (affine, "b")))  # fmt: skip
    return te.create_prim_func([x, w, b, tvm.topi.nn.group_norm(x, w, b, 8, 3, [1, 2])])


def _together(combine: Callable) -> PrimFunc:
    """Two numbers of a row that are reduced at once."""
    x = te.placeholder((4, 64), "float32", "x")
    r = te.reduce_axis((0, 64), "r")
    both = te.comm_reducer(combine, lambda *types: [te.const(0, one) for one in types], "both")
    y, z = te.compute((4,), lambda i: both((x[i, r], x[i, r] * x[i, r]), axis=r), "both")
    return te.create_prim_func([x, te.compute((4,), lambda i: y[i] + z[i], "y")])


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_compute((64, 64), lambda x, i, j: x[i, 63 - j]), "no vector in memory"),
        (_compute((64, 31), lambda x, i, j: x[(i * j) % 64, i % 31]), "no strides describe"),
        (_product(), "elements of different rows"),
        (_compute((2**20, 2**12), lambda x, i, j: x[0, 0]), "counts with 32 bits"),
        (_pooled(3, 1), "windows overlap"),
        (_channels_of_groups(2), "runs of 2 elements"),
        (_together(lambda x, y: (x[0] + x[1] * y[0], x[1] + y[1])), "neither argmax nor argmin"),
    ],
)
def test_what_is_declined(function: PrimFunc, reason: str) -> None:
    with pytest.raises((Decline, IllegalCombination), match=reason):
        row_kernel(read_rows(function))


def test_all_plans_are_legal_and_reach_over_their_rows() -> None:
    for columns in [*range(1, 300), 896, 1000, 4096, 7168, 16384, 30001, 50257, 128256, 131072]:
        for vector in (1, 2, 4, 8, 16):
            if columns % vector:
                continue
            for most, least in ((1, 1), (4, 2), (8, 1), (32, 8)):
                plan = RowPlan.of(columns, vector, most, least)
                assert plan.looped or plan.reach >= columns
                assert plan.per_thread <= max(most, 4) and plan.block <= SM90A.threads_per_block
                # No vector is without work for all threads, and no two warps too many.
                if not plan.looped:
                    beside = plan.sharing * (plan.per_thread - 1) * vector
                    assert beside < columns
                # What registers of eight CTAs hold is read once.
                held = 8 * 1024 * min(most, 64 // vector) * vector
                assert plan.looped == (columns > held)
    with pytest.raises(IllegalCombination, match="do not reach"):
        RowPlan(8, 4096, 1, 256)
    with pytest.raises(IllegalCombination, match="whole warps"):
        RowPlan(8, 4096, 64, 24)
    with pytest.raises(IllegalCombination, match="no whole number"):
        RowPlan(8, 100, 1, 32)
    with pytest.raises(IllegalCombination, match="have warps"):
        RowPlan(8, 64, 1, 8, 1, 2)


@pytest.mark.skipif(shutil.which("g++") is None, reason="export_library links with g++")
@pytest.mark.parametrize("kind", [_rms_norm, _rotate])
def test_nothing_is_read_before_the_kernel_before_has_ended(
    kind: Any, tmp_path: Path, machine_code: None
) -> None:
    """The compiler may take inputs for constants, and would be free to read them early."""
    kernel = row_kernel(read_rows(kind(te.var("m"), 256, "float16")[0]))
    module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    file = tmp_path / "kernel.so"
    tvm.compile(module, target=_TARGET).export_library(str(file))
    (cubin,) = find_cubins(file.read_bytes())
    listing = sass.listing(cubin)
    names = re.findall(r"\b(PREEXIT|ACQBULK|LDG\S*|STG\S*|LDL\S*|STL\S*)", listing)
    assert names[:2] == ["PREEXIT", "ACQBULK"] and len(names) > 3
    assert all("128" in one for one in names[2:]), names


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [6, 10, 34, 48])
def test_rows_of_bytes(columns: int, rng) -> None:
    """Vectors of two bytes are words, too."""
    x = te.placeholder((5, columns), "int8", "x")
    r = te.reduce_axis((0, columns), "r")
    largest = te.compute((5,), lambda i: te.max(x[i, r], r), "largest")
    y = te.compute((5, columns), lambda i, j: tirx.max(x[i, j], largest[i] - x[i, j]), "y")
    kernel = row_kernel(read_rows(te.create_prim_func([x, y]))).with_attr("global_symbol", "main")
    built = tvm.compile(tvm.IRModule({"main": kernel}), _TARGET, tir_pipeline="warploom")
    given = rng.integers(0, 60, (5, columns)).astype("int8")
    tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in (given, np.full_like(given, -1))]
    built["main"](*tensors)
    wanted = np.maximum(given, given.max(1, keepdims=True) - given)
    np.testing.assert_array_equal(tensors[1].numpy(), wanted)
