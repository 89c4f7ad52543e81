"""Expressions of elementwise nests: every node against numpy, and which reads are allowed."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.tirx import Var

from warploom import language as wl
from warploom.errors import TileProgramError
from warploom.language.values.expressions import Evaluator

SIZE = 64


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def evaluate(
    expression: Callable, x: np.ndarray, y: np.ndarray, out: str, index: Callable | None = None
) -> np.ndarray:
    """``expression`` of elements of two vectors, for all elements at once."""
    index = index or (lambda i: i)
    kinds = [array.dtype.name for array in (x, y)]

    @T.prim_func
    def func(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (SIZE,), kinds[0])
        B = T.match_buffer(b, (SIZE,), kinds[1])
        C = T.match_buffer(c, (SIZE,), out)
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((SIZE,), out, scope="fragment")
        for i in T.serial(SIZE):
            tile[i] = expression(A[index(i)], B[index(i)])
        T.cta.copy(C[0:SIZE], tile)

    result = np.zeros(SIZE, numpy_dtype(out))
    wl.interpret(func, [x, y, result])
    return result


def integers(rng, dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, SIZE, dtype, endpoint=True)
    values[:4] = [limits.min, limits.max, 0, 1]
    return values


def nonzero(values: np.ndarray) -> np.ndarray:
    return np.where((values == 0) | (values == -1), values.dtype.type(3), values)


INTEGER_OPERATIONS = {
    "add": (lambda x, y: x + y, lambda x, y: x + y),
    "sub": (lambda x, y: x - y, lambda x, y: x - y),
    "mul": (lambda x, y: x * y, lambda x, y: x * y),
    "floordiv": (lambda x, y: x // y, lambda x, y: x // y),
    "floormod": (lambda x, y: x % y, lambda x, y: x % y),
    "truncdiv": (T.truncdiv, lambda x, y: int(abs(x) // abs(y)) * (-1 if x * y < 0 else 1)),
    "truncmod": (T.truncmod, lambda x, y: int(abs(x) % abs(y)) * (-1 if x < 0 else 1)),
    "min": (T.min, min),
    "max": (T.max, max),
    "and": (lambda x, y: x & y, lambda x, y: x & y),
    "or": (lambda x, y: x | y, lambda x, y: x | y),
    "xor": (lambda x, y: x ^ y, lambda x, y: x ^ y),
    "not": (lambda x, y: ~x, lambda x, y: ~x),
    "shift right": (lambda x, y: x >> 3, lambda x, y: x >> 3),
    "shift left": (lambda x, y: x << 3, lambda x, y: x << 3),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
@pytest.mark.parametrize("name", INTEGER_OPERATIONS)
def test_integer_operations_wrap_around(name, dtype, rng):
    tir, python = INTEGER_OPERATIONS[name]
    x, y = integers(rng, dtype), nonzero(integers(rng, dtype))
    if name.startswith("shift"):
        y = np.full_like(x, 3)
        tir, python = (
            (T.shift_right, lambda x, y: x >> y)
            if "right" in name
            else (T.shift_left, lambda x, y: x << y)
        )
    exact = [python(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    bits = np.iinfo(dtype).bits
    expected = [value % 2**bits for value in exact]
    actual = evaluate(tir, x, y, dtype)
    assert [int(value) % 2**bits for value in actual] == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
@pytest.mark.parametrize("name", ["<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "select"])
def test_comparisons_and_choices(name, dtype, rng):
    x, y = (rng.integers(-3, 4, SIZE).astype(numpy_dtype(dtype)) for _ in range(2))
    zero, tir_zero = x.dtype.type(0), getattr(T, dtype)(0)
    conditions = {
        "<": (lambda x, y: x < y, x < y),
        "<=": (lambda x, y: x <= y, x <= y),
        ">": (lambda x, y: x > y, x > y),
        ">=": (lambda x, y: x >= y, x >= y),
        "==": (lambda x, y: x == y, x == y),
        "!=": (lambda x, y: x != y, x != y),
        "and": (lambda x, y: T.And(x > tir_zero, y > tir_zero), (x > zero) & (y > zero)),
        "or": (lambda x, y: T.Or(x > tir_zero, y > tir_zero), (x > zero) | (y > zero)),
        "not": (lambda x, y: T.Not(x > y), ~(x > y)),
        "select": (lambda x, y: x > y, x > y),
    }
    tir, chosen = conditions[name]
    choose = T.Select if name == "select" else T.if_then_else
    actual = evaluate(lambda x, y: choose(tir(x, y), x, y), x, y, dtype)
    np.testing.assert_array_equal(actual, np.where(chosen, x, y))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "min", "max"])
def test_arithmetic_of_floats_rounds_to_their_dtype(name, dtype, rng):
    x, y = (rng.standard_normal(SIZE).astype(np.float32).astype(numpy_dtype(dtype)) for _ in "xy")
    tir, exact = {
        "add": (lambda x, y: x + y, np.add),
        "sub": (lambda x, y: x - y, np.subtract),
        "mul": (lambda x, y: x * y, np.multiply),
        "div": (lambda x, y: x / y, np.divide),
        "min": (T.min, np.minimum),
        "max": (T.max, np.maximum),
    }[name]
    # float64 and then float32 hold the result well enough for it to be rounded as if exact.
    wide = exact(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(tir, x, y, dtype), wide.astype(x.dtype))


FUNCTIONS = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "exp10": lambda x: 10.0**x,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "log1p": math.log1p,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "erf": math.erf,
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "sin": math.sin,
    "cos": math.cos,
    "fabs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
    "nearbyint": round,
}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_rounded_once(name, dtype, rng):
    x = rng.uniform(0.1, 4, SIZE).astype(dtype)
    if name in ("erf", "tanh", "fabs", "floor", "ceil", "trunc", "round", "sin"):
        x = x * rng.choice([-1, 1], SIZE).astype(dtype)
    expected = np.array([FUNCTIONS[name](float(value)) for value in x])
    actual = evaluate(lambda x, y: getattr(T, name)(x), x, x, dtype)
    spacing = np.spacing(np.abs(expected).astype(dtype)).astype(np.float64)
    assert (np.abs(actual.astype(np.float64) - expected) <= 0.501 * spacing).all()


def test_functions_of_several_arguments(rng):
    x, y = (rng.uniform(0.5, 2, SIZE).astype(np.float32) for _ in "xy")
    wide = x.astype(np.float64), y.astype(np.float64)
    power = evaluate(T.pow, x, y, "float32")
    np.testing.assert_array_equal(power, (wide[0] ** wide[1]).astype(np.float32))
    fused = evaluate(lambda x, y: T.fma(x, y, y), x, y, "float32")
    np.testing.assert_array_equal(fused, (wide[0] * wide[1] + wide[1]).astype(np.float32))
    chosen = evaluate(lambda x, y: T.if_then_else(T.isnan(x - x), x, y), x, y, "float32")
    np.testing.assert_array_equal(chosen, y)


CASTS = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int32")


@pytest.mark.parametrize("out", CASTS)
@pytest.mark.parametrize("dtype", CASTS)
def test_casts(dtype, out, rng):
    if "int" in dtype:
        x = integers(rng, dtype)
    else:
        x = rng.uniform(-440, 440, SIZE).astype(np.float32).astype(numpy_dtype(dtype))
    actual = evaluate(lambda x, y: T.cast(x, out), x, x, out)
    wide = x.astype(np.float64)
    if "int" in out and "int" in dtype:
        bits = np.iinfo(out).bits
        np.testing.assert_array_equal(actual.astype(np.int64) % 2**bits, wide % 2**bits)
    elif "int" in out:
        limits = np.iinfo(out)
        np.testing.assert_array_equal(actual, np.clip(np.trunc(wide), limits.min, limits.max))
    else:
        limit = float(ml_dtypes.finfo(numpy_dtype(out)).max)
        nearest = np.clip(wide, -limit, limit) if "8" in out else wide
        with np.errstate(over="ignore"):  # of int32 to float16, to infinity
            nearest = nearest.astype(np.float32).astype(numpy_dtype(out))
        np.testing.assert_array_equal(actual, nearest)


def test_casts_of_what_is_no_number():
    x = np.resize(np.array([np.nan, np.inf, -np.inf, 1e30], np.float32), SIZE)
    cast = {out: evaluate(lambda x, y, o=out: T.cast(x, o), x, x, out)[:4] for out in CASTS}
    np.testing.assert_array_equal(cast["int8"], [0, 127, -128, 127])
    np.testing.assert_array_equal(cast["uint8"], [0, 255, 0, 255])
    np.testing.assert_array_equal(cast["int32"], [0, 2**31 - 1, -(2**31), 2**31 - 1])
    for out, limit in (("float8_e4m3fn", 448), ("float8_e5m2", 57344)):
        np.testing.assert_array_equal(cast[out].astype(np.float32), [np.nan, limit, -limit, limit])


def test_reinterpret_keeps_bits(rng):
    x = rng.standard_normal(SIZE).astype(np.float32)
    bits = evaluate(lambda x, y: T.reinterpret("int32", x), x, x, "int32")
    np.testing.assert_array_equal(bits, x.view(np.int32))
    halves = evaluate(
        lambda x, y: T.reinterpret(
            "bfloat16", T.cast(T.reinterpret("uint32", x) >> T.uint32(16), "uint16")
        ),
        x,
        x,
        "bfloat16",
    )
    np.testing.assert_array_equal(halves.view(np.uint16), x.view(np.uint32) >> 16)


def test_let_expressions_and_bindings(rng):
    x = rng.standard_normal(SIZE).astype(np.float32)
    v = T.float32()
    actual = evaluate(lambda x, y: T.Let(v * v + v, where={v: x + y}), x, x, "float32")
    np.testing.assert_array_equal(actual, (x + x) * (x + x) + (x + x))


def test_a_branch_not_taken_is_not_evaluated():
    """Neither its reads outside of a tile nor its divisions by 0 count."""
    x = np.arange(SIZE, dtype=np.int32)

    @T.prim_func
    def func(c: T.handle):
        C = T.match_buffer(c, (SIZE,), "int32")
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((SIZE,), "int32", scope="shared")
        out = T.alloc_buffer((SIZE,), "int32", scope="fragment")
        for i in T.serial(SIZE):
            tile[i] = 100 + i
        for i in T.serial(SIZE):
            out[i] = T.if_then_else(T.And(i > 0, 64 // i < 32), tile[i - 1], 0)
        T.cta.copy(C[0:SIZE], out)

    result = np.zeros(SIZE, np.int32)
    wl.interpret(func, [result])
    np.testing.assert_array_equal(result, np.where(x > 2, 99 + x, 0))


def test_reads_over_the_edge_of_a_global_buffer_are_zero(rng):
    x = rng.standard_normal(SIZE).astype(np.float32)
    actual = evaluate(lambda x, y: x, x, x, "float32", index=lambda i: i * 2 - 8)
    places = np.arange(SIZE) * 2 - 8
    inside = (places >= 0) & (places < SIZE)
    np.testing.assert_array_equal(actual, np.where(inside, x[np.clip(places, 0, SIZE - 1)], 0))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda x, y: x // y, "divides by 0"),
        (lambda x, y: T.truncmod(x, y), "divides by 0"),
        (lambda x, y: T.popcount(x), r"function tirx\.popcount is not defined .* allowed are"),
        (lambda x, y: T.cast(T.cast(x, "float4_e2m1fn"), "int32"), "'float4_e2m1fn' cannot be"),
    ],
)
def test_illegal_expressions(expression, message):
    zeros = np.zeros(SIZE, np.int32)
    with pytest.raises(TileProgramError, match=message):
        evaluate(expression, zeros, zeros, "int32")


@pytest.mark.parametrize("value", [np.float32(2), np.arange(2), np.ones(1, bool), True])
def test_what_is_not_one_integer_for_the_cta(value):
    variable = Var("v", "int32")
    assert Evaluator({variable: np.asarray(3)}).integer(variable) == 3
    with pytest.raises(TileProgramError, match="must be one integer for the whole CTA"):
        Evaluator({variable: np.asarray(value)}).integer(variable)
