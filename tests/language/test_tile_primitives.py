"""Element-wise tile primitives and reductions of the interpreter, against numpy."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.language.test_interpreter import M, N, check_absolute, numpy_dtype
from warploom import language as wl


def _silu(x):
    return x / (1 + np.exp(-x))


UNARY = {
    "cast": lambda x: x,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "exp2": np.exp2,
    "log2": np.log2,
    "reciprocal": lambda x: 1 / x,
    "silu": _silu,
}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "fdiv": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
SHAPES = [(M, N), (1, N), (M, 1), (1, 1), (N,)]


def apply(call: Callable, operands: list[np.ndarray], out: str) -> np.ndarray:
    """The tile that ``call(dst, *tiles)`` writes, for tiles with the values of arrays."""

    @T.prim_func(check_well_formed=False)
    def func(x: T.handle, y: T.handle, z: T.handle, c: T.handle):
        X = T.match_buffer(x, operands[0].shape, operands[0].dtype.name)
        Y = T.match_buffer(y, operands[1].shape, operands[1].dtype.name)
        Z = T.match_buffer(z, operands[2].shape, operands[2].dtype.name)
        C = T.match_buffer(c, (M, N), out)
        T.device_entry()
        T.cta_id([1])
        dst = T.alloc_buffer((M, N), out, scope="fragment")
        X_s = T.alloc_buffer(operands[0].shape, operands[0].dtype.name, scope="fragment")
        Y_s = T.alloc_buffer(operands[1].shape, operands[1].dtype.name, scope="shared")
        Z_s = T.alloc_buffer(operands[2].shape, operands[2].dtype.name, scope="fragment")
        Tx.cta.copy(X_s, X)
        Tx.cta.copy(Y_s, Y)
        Tx.cta.copy(Z_s, Z)
        call(dst, X_s, Y_s, Z_s)
        Tx.cta.copy(C[0:M, 0:N], dst)

    result = np.zeros((M, N), numpy_dtype(out))
    wl.interpret(func, [*operands, result])
    return result


def values(rng, shape, dtype="float32"):
    return rng.uniform(0.25, 4, shape).astype(np.float32).astype(numpy_dtype(dtype))


def check(actual: np.ndarray, expected: np.ndarray) -> None:
    error = np.abs(actual.astype(np.float64) - expected)
    assert (error <= float(ml_dtypes.finfo(actual.dtype).eps) * np.abs(expected)).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.some(5)
def test_unary_primitives(name, dtype, rng):
    for shape in SHAPES:
        x = values(rng, shape, dtype)
        actual = apply(lambda d, x, y, z: getattr(Tx.cta, name)(d, x), [x] * 3, dtype)
        check(actual, np.broadcast_to(UNARY[name](x.astype(np.float64)), (M, N)))


@pytest.mark.parametrize("name", ["sqrt", "exp", "exp2", "log2"])
def test_bias_and_scale_come_before_the_function(name, rng):
    x, bias = values(rng, (M, N)), values(rng, (M, 1))
    actual = apply(
        lambda d, x, y, z: getattr(Tx.cta, name)(d, x, y, T.float32(0.5)), [x, bias, x], "float32"
    )
    check(actual, UNARY[name](x.astype(np.float64) * 0.5 + bias.astype(np.float64)))
    actual = apply(
        lambda d, x, y, z: getattr(Tx.cta, name)(d, x, scale=T.float32(2)), [x] * 3, "float32"
    )
    check(actual, UNARY[name](x.astype(np.float64) * 2))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (n, d)
        for n in BINARY
        for d in ("float32", "float16", "int32")
        if (n, d) != ("fdiv", "int32")
    ],
)
@pytest.mark.some(4)
def test_binary_primitives_broadcast(name, dtype, rng):
    integer = dtype == "int32"
    for shapes in [(SHAPES[0], s) for s in SHAPES] + [(s, SHAPES[0]) for s in SHAPES[1:]]:
        x, y = (np.rint(4 * v) if integer else v for v in (values(rng, s) for s in shapes))
        x, y = x.astype(dtype), y.astype(dtype)
        actual = apply(lambda d, x, y, z: getattr(Tx.cta, name)(d, x, y), [x, y, x], dtype)
        expected = BINARY[name](x.astype(np.float64), y.astype(np.float64))
        if integer:
            np.testing.assert_array_equal(actual, expected)
        else:
            check_absolute(actual, expected, 8)


@pytest.mark.parametrize("name", BINARY)
def test_binary_primitives_with_a_number(name, rng):
    x = values(rng, (M, N))
    actual = apply(lambda d, x, y, z: getattr(Tx.cta, name)(d, x, 1.5), [x] * 3, "float32")
    check_absolute(actual, BINARY[name](x.astype(np.float64), 1.5), 8)


def test_fma_fill_memset_and_select(rng):
    x, y, z = values(rng, (M, N)), values(rng, (N,)), values(rng, (M, 1))
    wide = [v.astype(np.float64) for v in (x, y, z)]
    check(apply(Tx.cta.fma, [x, y, z], "float32"), wide[0] * wide[1] + wide[2])
    for fill in (Tx.cta.fill, Tx.cta.memset):
        filled = apply(lambda d, x, y, z, f=fill: f(d, T.float32(3)), [x, y, z], "float16")
        np.testing.assert_array_equal(filled, np.full((M, N), 3, np.float16))
    chosen = apply(
        lambda d, x, y, z: Tx.cta.select(d, x, y, lambda i, j: i + 3 <= j), [x, y, z], "float32"
    )
    i, j = np.indices((M, N))
    np.testing.assert_array_equal(chosen, np.where(i + 3 <= j, x, np.broadcast_to(y, (M, N))))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("accum", [False, True])
@pytest.mark.parametrize("axes", [0, 1, -1, (0, 1)])
@pytest.mark.parametrize("name", ["sum", "max", "min"])
def test_reductions(name, axes, accum, dtype, rng):
    reduced = {a % 2 for a in np.atleast_1d(axes)}
    shape = tuple(e for d, e in enumerate((M, N)) if d not in reduced) or (1, 1)

    @T.prim_func
    def func(a: T.handle, c: T.handle):
        A = T.match_buffer(a, (M, N), dtype)
        C = T.match_buffer(c, shape, dtype)
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((M, N), dtype, scope="fragment")
        result = T.alloc_buffer(shape, dtype, scope="fragment")
        Tx.cta.copy(tile, A)
        Tx.cta.copy(result, C)
        getattr(Tx.cta, name)(result, tile, axes=axes, accum=accum)
        Tx.cta.copy(C, result)

    a, c = ((rng.standard_normal(s) * 8).astype(dtype) for s in ((M, N), shape))
    function = {"sum": np.sum, "max": np.max, "min": np.min}[name]
    exact = function(a.astype(np.float64), axis=tuple(reduced)).reshape(shape)
    if accum:
        join = {"sum": np.add, "max": np.maximum, "min": np.minimum}[name]
        exact = join(exact, c.astype(np.float64))
    wl.interpret(func, [a, c])
    if dtype == "int32":
        np.testing.assert_array_equal(c, exact)
    else:
        check_absolute(c, exact, np.abs(exact).max())
