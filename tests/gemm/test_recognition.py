"""What is recognised as a product, and what is left alone, with the reason."""

from __future__ import annotations

import pytest
import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.tirx import PrimFunc

from tests.shared import gemm_functions
from tests.shared.gemm_functions import FUNCTIONS
from warploom.errors import Decline
from warploom.gemm import recognise
from warploom.gemm.tf32 import allow_tf32

PROBLEMS = {
    "layout NT": "72 x 136 x 96 NT, float16 x float16 -> float32, out float16",
    "layout NN": "72 x 136 x 96 NN, float16 x float16 -> float32, out float16",
    "layout TN": "72 x 136 x 96 TN, float16 x float16 -> float32, out float16",
    "layout TT": "72 x 136 x 96 TT, float16 x float16 -> float32, out float16",
    "float32 result": "70 x 136 x 96 NT, float16 x float16 -> float32, out float32",
    "bfloat16": "70 x 136 x 96 NT, bfloat16 x bfloat16 -> float32, out bfloat16",
    "float8": "70 x 136 x 128 NT, float8_e4m3fn x float8_e4m3fn -> float32, out float16",
    "int8": "70 x 136 x 128 NT, int8 x int8 -> int32, out int32",
    "one row": "1 x 136 x 96 NT, float16 x float16 -> float32, out float16",
    "half accumulation": "40 x 72 x 64 NT, float16 x float16 -> float32, out float16",
    "heads": "40 x 72 x 64 NT, float16 x float16 -> float32, batch 12, out float32",
    "batched": "40 x 72 x 64 NN, float16 x float16 -> float32, batch 3, out float16",
    "two summed axes": "40 x 72 x 192 NT, float16 x float16 -> float32, out float16",
    "epilogue": "70 x 136 x 96 NT, float16 x float16 -> float32, epilogue reads float16 row, "
    "float32 column, float16 tile, out float16",
    "swiglu": "70 x 72 x 96 NT, float16 x float16 -> float32, 2 products, out float16",
    "split": "40 x 64 x 64 NT, float16 x float16 -> float32, 2 products, out float16, float32",
    "into heads": "40 x 64 x 64 NT, float16 x float16 -> float32, batch 3, out float16",
    "4-bit words": "20 x 136 x 256 NT, float16 x float16 from 4.5 bits -> float32, out float16",
    "8-bit words": "20 x 136 x 256 NT, float16 x float16 from 8.5 bits -> float32, out float16",
    "4-bit bytes": "20 x 136 x 256 NT, float16 x float16 from 4.5 bits -> float32, out float16",
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_problems(name: str) -> None:
    assert str(recognise(FUNCTIONS[name]().func).problem) == PROBLEMS[name]


def test_unknown_number_of_rows() -> None:
    gemm = recognise(gemm_functions.matmul(None).func)
    assert gemm.problem.m is None
    assert str(gemm.problem).startswith("? x 136 x 96 NT")


def test_equal_problems_are_one_key() -> None:
    first, second = (recognise(gemm_functions.epilogue().func).problem for _ in range(2))
    assert first == second
    assert len({first, second, recognise(gemm_functions.swiglu().func).problem}) == 2


def _elementwise() -> PrimFunc:
    a = te.placeholder((8, 8), "float16", "A")
    return te.create_prim_func([a, te.compute((8, 8), lambda i, j: a[i, j] * a[i, j], "C")])


def _row_sums() -> PrimFunc:
    a = te.placeholder((8, 8), "float32", "A")
    r = te.reduce_axis((0, 8), "r")
    return te.create_prim_func([a, te.compute((8,), lambda i: te.sum(a[i, r], r), "C")])


def _batch_last() -> PrimFunc:
    a, b = te.placeholder((8, 8, 8), "float16", "A"), te.placeholder((8, 8, 8), "float16", "B")
    r = te.reduce_axis((0, 8), "r")
    c = te.compute((8, 8, 8), lambda i, j, s: te.sum(a[i, r, s] * b[j, r, s], r), "C")
    return te.create_prim_func([a, b, c])


def _vector() -> PrimFunc:
    a, b = te.placeholder((8, 8), "float16", "A"), te.placeholder((8,), "float16", "B")
    r = te.reduce_axis((0, 8), "r")
    return te.create_prim_func([a, b, te.compute((8,), lambda i: te.sum(a[i, r] * b[r], r), "C")])


def _one_column() -> PrimFunc:
    return gemm_functions.matmul(n=1).func


def _largest() -> PrimFunc:
    a, b = te.placeholder((8, 8), "float16", "A"), te.placeholder((8, 8), "float16", "B")
    r = te.reduce_axis((0, 8), "r")
    c = te.compute((8, 8), lambda i, j: te.max(a[i, r] * b[j, r], r), "C")
    return te.create_prim_func([a, b, c])


def _broadcast() -> PrimFunc:
    a, b = te.placeholder((8, 8), "float16", "A"), te.placeholder((8, 8), "float16", "B")
    r = te.reduce_axis((0, 8), "r")
    c = te.compute((4, 8, 8), lambda s, i, j: te.sum(a[i, r] * b[j, r], r), "C")
    return te.create_prim_func([a, b, c])


def _scheduled() -> PrimFunc:
    sch = Schedule(gemm_functions.matmul().func)
    sch.split(sch.get_loops("matmul")[0], [None, 2])
    return sch.mod["main"]


def _mixed() -> PrimFunc:
    a, b = te.placeholder((8, 8), "float16", "A"), te.placeholder((8, 8), "bfloat16", "B")
    r = te.reduce_axis((0, 8), "r")
    c = te.compute(
        (8, 8), lambda i, j: te.sum(a[i, r].astype("float32") * b[j, r].astype("float32"), r), "C"
    )
    return te.create_prim_func([a, b, c])


def _two_sums(first: tuple[int, ...], second: tuple[int, ...]) -> PrimFunc:
    """The sum of two products, over axes of these extents."""
    totals = []
    for name, extents in zip("BD", (first, second), strict=True):
        a = te.placeholder((8, *extents), "float16", "A")
        b = te.placeholder((8, *extents), "float16", name)
        axes = [te.reduce_axis((0, one), f"r{i}") for i, one in enumerate(extents)]
        totals.append((a, b, te.compute(
            (8, 8), lambda i, j: te.sum(a[i, *axes] * b[j, *axes], axes), f"sum_{name}"  # noqa: B023
        )))  # fmt: skip
    (a, b, x), (c, d, y) = totals
    total = te.compute((8, 8), lambda i, j: x[i, j] + y[i, j], "C")
    return te.create_prim_func([a, b, c, d, total])


def _two_results(first: tuple[int, ...], second: tuple[int, ...]) -> PrimFunc:
    """A product, and results of these shapes that read its elements."""
    a, b = te.placeholder((8, 8), "float16", "A"), te.placeholder((8, 8), "float16", "B")
    r = te.reduce_axis((0, 8), "r")
    total = te.compute((8, 8), lambda i, j: te.sum(a[i, r] * b[j, r], r), "sum")
    results = [
        te.compute(shape, lambda *at: total[at[-2], at[-1]] * tirx.const(2, "float16"), name)
        for name, shape in zip("CD", (first, second), strict=True)
    ]
    return te.create_prim_func([a, b, *results])


@pytest.mark.parametrize("make", [_two_sums, _two_results])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        *[((8, 8), (8, 4)), ((8, 8), (4, 8)), ((4, 8), (8, 8))],
        *[((8, 8), (2, 8, 8)), ((2, 8, 8), (8, 8))],
    ],
)
def test_sums_and_results_have_the_same_extents(make, first, second) -> None:
    with pytest.raises(Decline, match=r"extents .* and another .* must have the same"):
        recognise(make(first, second))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_elementwise, "nothing is summed"),
        (_row_sums, "no product of two factors"),
        (_batch_last, "the last dimension of C tells products apart"),
        (_vector, "C has no rows that one factor alone has"),
        (_one_column, "C has one column"),
        (_largest, "starts its sum with"),
        (_broadcast, "axis v_s of the result is in neither factor"),
        (_scheduled, "has been scheduled already"),
        (lambda: gemm_functions.matmul(dtype="float32").func, "the attribute warploom.tf32"),
        (_mixed, "bfloat16"),
        (lambda: gemm_functions.matmul(k=1).func, "the sum has one term"),
    ],
)
def test_what_is_left_alone(make: object, reason: str) -> None:
    with pytest.raises(Decline, match=reason):
        recognise(make())


def test_tf32_on_request() -> None:
    func = gemm_functions.matmul(dtype="float32", out="float32").func
    problem = recognise(allow_tf32(func)).problem
    assert (problem.a_dtype, problem.a_bits) == ("float32", 32)
    assert "float32 as tf32" in str(problem)


def test_names_of_the_function_do_not_matter() -> None:
    func = gemm_functions.epilogue().func
    renamed = func.with_attr("global_symbol", "other")
    assert recognise(func).problem == recognise(renamed).problem
    assert isinstance(tvm.IRModule({"main": renamed})["main"], tirx.PrimFunc)
