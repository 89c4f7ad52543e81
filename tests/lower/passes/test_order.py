"""Scans, positions of extremes and sorts: interpreted, lowered, on the emulator, against numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import run
from tests.shared.tile_programs.case import poisoned, precision, random_values, wide
from warploom import language as wl
from warploom.errors import Decline, TileProgramError
from warploom.lower.lowerings import lower

ACCUMULATE = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate,
}


def one_tile(shape, dtype, scope, call, out=None, out_dtype=None):
    """A CTA's tile, and what ``call(result, tile)`` makes of it."""
    out, out_dtype = out or shape, out_dtype or dtype

    @T.prim_func
    def func(A: T.Buffer(shape, dtype), C: T.Buffer(out, out_dtype)):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer(shape, dtype, scope=scope)
        result = T.alloc_buffer(out, out_dtype, scope=scope)
        for i, j in T.grid(*shape):
            tile[i, j] = A[i, j]
        call(result, tile)
        Tx.cta.copy(C, result)

    return func


def results(func, arguments, outputs=1):
    """What the interpreter and the kernel compute, one after the other."""
    interpreted = [np.copy(a) for a in arguments]
    wl.interpret(func, interpreted)
    got = run(lower(func, "sm_90a"), [np.copy(a) for a in arguments])
    return [interpreted[-outputs:], got[-outputs:]]


SCANS = list(itertools.product(
    ACCUMULATE, [(64, 40), (128, 16)], ["float32", "float16", "int32"], [0, 1, -1],
    [False, True], ["fragment", "shared"],
))  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "dtype", "axis", "reverse", "scope"), SCANS)
@pytest.mark.some(6)
def test_scans(name, shape, dtype, axis, reverse, scope, rng):
    func = one_tile(
        shape, dtype, scope, lambda r, t: getattr(Tx.cta, name)(r, t, axis, reverse=reverse)
    )
    a = random_values(rng, shape, dtype)
    if name == "cumprod":
        a = rng.choice([-1, 1, 1, -2], shape) if dtype == "int32" else rng.uniform(0.8, 1.2, shape)
        a = a.astype(dtype) if dtype != "int32" else np.sign(a).astype(dtype)
    flip = (lambda x: np.flip(x, axis)) if reverse else (lambda x: x)
    expected = flip(ACCUMULATE[name](flip(wide(a)), axis=axis))
    allowed = (precision(dtype) + (0 if dtype == "int32" else 4e-6)) * np.abs(expected).max()
    for (got,) in results(func, [a, poisoned(shape, dtype)]):
        assert np.abs(wide(got) - expected).max() <= allowed


@pytest.mark.parametrize(
    ("name", "dtype", "axis", "scope"),
    list(itertools.product(
        ["argmax", "argmin"], ["float32", "float16", "int32"], [0, 1], ["fragment", "shared"]
    )),
)  # fmt: skip
@pytest.mark.some(5)
def test_positions_are_the_first_of_equal_ones(name, dtype, axis, scope, rng):
    shape = (64, 24)
    func = one_tile(
        shape, dtype, scope, lambda r, t: getattr(Tx.cta, name)(r, t, axis=axis),
        (shape[1 - axis],), "int32",
    )  # fmt: skip
    a = rng.integers(-9, 9, shape).astype(dtype)
    for (got,) in results(func, [a, poisoned((shape[1 - axis],), "int32")]):
        np.testing.assert_array_equal(got, getattr(np, name)(a, axis=axis))


def sorting(shape, dtype, axis, descending):
    @T.prim_func
    def func(
        A: T.Buffer(shape, dtype), V: T.Buffer(shape, dtype), P: T.Buffer(shape, "int32")
    ):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer(shape, dtype, scope="fragment")
        places = T.alloc_buffer(shape, "int32", scope="fragment")
        for i, j in T.grid(*shape):
            tile[i, j] = A[i, j]
        Tx.cta.sort(tile, tile, axis, descending=descending, indices=places)
        Tx.cta.copy(V, tile)
        Tx.cta.copy(P, places)

    return func


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("dtype", "axis"), [("float32", 1), ("float16", 1), ("int32", 0)])
@pytest.mark.some(2)
def test_sorts_are_stable(dtype, axis, descending, rng):
    shape = (64, 24)
    a = rng.integers(-20, 20, shape).astype(dtype)
    order = np.argsort(-a.astype(np.int64) if descending else a, axis=axis, kind="stable")
    func = sorting(shape, dtype, axis, descending)
    outputs = [poisoned(shape, dtype), poisoned(shape, "int32")]
    for values, places in results(func, [a, *outputs], 2):
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, np.take_along_axis(a, order, axis))


def test_scans_and_positions_in_an_epilogue(rng):
    """A router: scores of experts, their order, and where the largest is."""

    @T.prim_func
    def func(
        A: T.Buffer((64, 64), "float16"), B: T.Buffer((32, 64), "float16"),
        S: T.Buffer((64, 32), "float32"), P: T.Buffer((64,), "int32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
        B_s = T.alloc_buffer((32, 32), "float16", scope="shared")
        acc = T.alloc_buffer((64, 32), "float32", scope="accumulator")
        sums = T.alloc_buffer((64, 32), "float32", scope="fragment")
        best = T.alloc_buffer((64,), "int32", scope="fragment")
        for k in wl.pipelined(2):
            Tx.cta.copy_async(A_s, A[0:64, k * 32 : k * 32 + 32])
            Tx.cta.copy_async(B_s, B[0:32, k * 32 : k * 32 + 32])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.argmax(best, acc)
        Tx.cta.cumsum(sums, acc)
        Tx.cta.copy(S, sums)
        Tx.cta.copy(P, best)

    a, b = random_values(rng, (64, 64), "float16"), random_values(rng, (32, 64), "float16")
    scores = wide(a) @ wide(b).T
    arguments = [a, b, poisoned((64, 32), "float32"), poisoned((64,), "int32")]
    for arch in ("sm_90a", "sm_100a"):
        *_, sums, best = run(lower(func, arch), [np.copy(x) for x in arguments], arch)
        expected = np.cumsum(scores, 1)
        assert np.abs(sums - expected).max() <= 1e-5 * np.abs(expected).max()
        np.testing.assert_array_equal(best, np.argmax(scores, 1))


def test_what_is_refused():
    def refused(call, out=None, out_dtype=None):
        func = one_tile((64, 16), "float32", "fragment", call, out, out_dtype)
        with pytest.raises(TileProgramError) as error:
            lower(func)
        return str(error.value)

    assert "axis 2 of cumsum is no dimension" in refused(lambda r, t: Tx.cta.cumsum(r, t, 2))
    assert "must have one dtype" in refused(lambda r, t: Tx.cta.cummax(r, t), None, "float16")
    assert "places are int32" in refused(lambda r, t: Tx.cta.argmax(r, t), (64,), "float32")
    assert "gives (64,)" in refused(lambda r, t: Tx.cta.argmax(r, t), (16,), "int32")


def test_too_long_a_sort_is_declined():
    func = one_tile((64, 2048), "float16", "shared", lambda r, t: Tx.cta.sort(r, t))
    with pytest.raises(Decline, match="takes 2048 elements of tile along axis 1; it takes at most"):
        lower(func)
