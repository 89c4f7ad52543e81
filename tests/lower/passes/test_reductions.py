"""Reductions over any axes of tiles of any scope: lowered, on the emulator, against numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import exact, run
from tests.shared.tile_programs.case import poisoned, precision, random_values, wide
from warploom import language as wl
from warploom.lower.lowerings import lower

NUMPY = {"sum": np.sum, "max": np.max, "min": np.min}
JOIN = {"sum": np.add, "max": np.maximum, "min": np.minimum}
SHAPES = {(1,): ["row", "column"], (0,): ["row", "column"], (0, 1): ["flat", "matrix"]}


def reducing(m, n, dtype, axes, name, scope="fragment", keepdims=False, accum=False, out=None):
    """A CTA's tile, reduced over axes, without an MMA."""
    kept = [1 if d in axes else e for d, e in enumerate((m, n))]
    shape = tuple(kept) if keepdims else tuple(e for d, e in enumerate((m, n)) if d not in axes)
    shape = shape or (1, 1)

    @T.prim_func
    def func(A: T.Buffer((m, n), dtype), B: T.Buffer(shape, dtype), C: T.Buffer(shape, dtype)):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((m, n), dtype, scope=scope)
        result = T.alloc_buffer(shape, dtype, scope=out or "fragment")
        for i, j in T.grid(m, n):
            tile[i, j] = A[i, j]
        if accum:
            Tx.cta.copy(result, B)
        getattr(Tx.cta, name)(result, tile, axes=axes, accum=accum)
        Tx.cta.copy(C, result)

    return func, shape


def compare(func, arguments, exact_result, tolerance, arch="sm_90a"):
    interpreted = [np.copy(a) for a in arguments]
    wl.interpret(func, interpreted)
    got = run(lower(func, arch), [np.copy(a) for a in arguments], arch)
    scale = np.abs(exact_result).max()
    for result in (interpreted[-1], got[-1]):
        error = np.abs(wide(result) - exact_result.reshape(result.shape)).max()
        assert error <= tolerance * scale, f"{error} of {scale}"


CASES = list(itertools.product(
    [(64, 8), (64, 72), (128, 40), (192, 16)], ["float32", "float16", "int32"],
    [(1,), (0,), (0, 1), (-2,)], ["sum", "max", "min"], ["fragment", "shared"], [False, True],
    [False, True],
))  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "dtype", "axes", "name", "scope", "keepdims", "accum"), CASES
)
@pytest.mark.some(6)
def test_any_axes_of_a_tile(shape, dtype, axes, name, scope, keepdims, accum, rng):
    axes = tuple(axis % 2 for axis in axes)
    func, out = reducing(*shape, dtype, axes, name, scope, keepdims, accum)
    a, c = random_values(rng, shape, dtype), random_values(rng, out, dtype)
    result = NUMPY[name](wide(a), axis=axes).reshape(out)
    result = JOIN[name](result, wide(c)) if accum else result
    tolerance = precision(dtype) + (0 if dtype == "int32" else 2e-6)
    compare(func, [a, c, poisoned(out, dtype)], result, tolerance)


GRID_CASES = list(itertools.product(
    [(60, 24), (7, 1000), (1, 640), (3, 5), (300, 1), (1, 1), (2, 3), (520, 9)],
    ["float32", "float16", "int32"], [(1,), (0,), (0, 1)], ["sum", "max", "min"],
    ["fragment", "shared"], [False, True], [False, True], ["fragment", "shared"],
    ["sm_90a", "sm_100a"],
))  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "dtype", "axes", "name", "scope", "keepdims", "accum", "out", "arch"), GRID_CASES
)
@pytest.mark.some(20)
def test_any_axes_on_a_grid(shape, dtype, axes, name, scope, keepdims, accum, out, arch, rng):
    """Tiles of any height, which only a grid of threads holds."""
    func, kept = reducing(*shape, dtype, axes, name, scope, keepdims, accum, out)
    a, c = random_values(rng, shape, dtype), random_values(rng, kept, dtype)
    result = NUMPY[name](wide(a), axis=axes).reshape(kept)
    result = JOIN[name](result, wide(c)) if accum else result
    tolerance = precision(dtype) + (0 if dtype == "int32" else 2e-6)
    # Sums of numbers that cancel are as exact as the numbers.
    tolerance *= max(1, np.abs(wide(a)).sum(axes).max() / max(np.abs(result).max(), 1e-9))
    compare(func, [a, c, poisoned(kept, dtype)], result, tolerance, arch)


def matmul_and_reductions(m, n, axes, name, dtype, hints, steps=2, out="float32", region=None):
    """An accumulator of an MMA, reduced over axes; each CTA has results of its own."""
    bm, bn = m, n
    byte = dtype in ("int8", "float8_e4m3fn")
    k, acc_dtype = 64 if byte else 32, "int32" if dtype == "int8" else "float32"
    kept = tuple(e for d, e in enumerate((bm, bn)) if d not in axes) or (1,)
    first, last = region or (0, bn)
    if region and 1 not in axes:
        kept = (*kept[:-1], last - first)

    @T.prim_func
    def func(
        A: T.Buffer((2 * bm, steps * k), dtype),
        B: T.Buffer((bn, steps * k), dtype),
        C: T.Buffer((2 * bm, bn), acc_dtype),
        R: T.Buffer((2, *kept), acc_dtype),
    ):
        T.device_entry()
        wl.hints(**hints)
        i = T.cta_id([2])
        A_s = T.alloc_buffer((bm, k), dtype, scope="shared")
        B_s = T.alloc_buffer((bn, k), dtype, scope="shared")
        acc = T.alloc_buffer((bm, bn), acc_dtype, scope="accumulator")
        result = T.alloc_buffer(kept, acc_dtype, scope="fragment")
        for step in wl.pipelined(steps):
            Tx.cta.copy_async(A_s, A[i * bm : i * bm + bm, step * k : step * k + k])
            Tx.cta.copy_async(B_s, B[0:bn, step * k : step * k + k])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
        getattr(Tx.cta, name)(result, acc[:, first:last], axes=axes)
        Tx.cta.copy(C[i * bm : i * bm + bm, :], acc)
        for at in T.serial(kept[0]):
            R[i, at] = result[at]

    return func


HINTS = [
    {"persistent": True}, {"consumers": 1}, {"persistent": False}, {"split_k": 2},
    {"stream_k": True},
    {"slice_k": 2, "consumers": 1}, {"specialise": False}, {"cluster": (2, 1)},
]  # fmt: skip
MATMULS = list(itertools.product(
    [(64, 24), (128, 64), (128, 8)], [(0,), (0, 1), (1,)], ["sum", "max", "min"],
    ["float16", "bfloat16", "int8"], HINTS, ["sm_90a", "sm_100a"],
))  # fmt: skip


@pytest.mark.parametrize(("shape", "axes", "name", "dtype", "hints", "arch"), MATMULS)
@pytest.mark.some(6)
def test_any_axes_of_an_accumulator(shape, axes, name, dtype, hints, arch, rng):
    if arch == "sm_100a" and shape in ((64, 24), (128, 8)):
        shape = (64, 32)
    func = matmul_and_reductions(*shape, axes, name, dtype, hints)
    arguments = [random_values(rng, [int(e) for e in p.shape], str(p.dtype)) for p in func.params]
    arguments[2:] = [poisoned(a.shape, str(a.dtype)) for a in arguments[2:]]
    arguments = exact(arguments)
    product = wide(arguments[0]) @ wide(arguments[1]).T
    blocks = product.reshape(2, shape[0], shape[1])
    expected = NUMPY[name](blocks, axis=tuple(a + 1 for a in axes))
    compare(func, arguments, expected, 0 if dtype == "int8" else 1e-5, arch)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("axes", [(0,), (0, 1)])
def test_part_of_the_columns(axes, arch, rng):
    hints = {"persistent": True}
    func = matmul_and_reductions(64, 64, axes, "max", "float16", hints, region=(13, 29))
    arguments = [random_values(rng, [int(e) for e in p.shape], str(p.dtype)) for p in func.params]
    arguments[2:] = [poisoned(a.shape, str(a.dtype)) for a in arguments[2:]]
    product = (wide(arguments[0]) @ wide(arguments[1]).T).reshape(2, 64, 64)[..., 13:29]
    compare(func, arguments, product.max(axis=tuple(a + 1 for a in axes)), 1e-5, arch)
