"""Tiles in registers of three and four dimensions: lowered, on the emulator, against numpy."""

from __future__ import annotations

import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.lower.passes.test_reductions import JOIN, NUMPY, compare
from tests.shared.tile_programs.case import poisoned, precision, random_values, wide
from warploom import language as wl
from warploom import lower_trace
from warploom.errors import Decline, TileProgramError
from warploom.lower.lowerings import lower

ARCHS = ("sm_90a", "sm_100a")
SHAPES = [(2, 3, 16), (4, 8, 64), (3, 5, 7), (1, 6, 32), (2, 2, 3, 8), (5, 1, 1, 9), (2, 1, 1)]


def stencil(shape, dtype):
    """Each element and its neighbours in the first two dimensions, from an image with a border."""
    b, h, c = shape

    @T.prim_func
    def func(X: T.Buffer((b, h + 2, c), dtype), Y: T.Buffer(shape, dtype)):
        T.device_entry()
        T.cta_id([1])
        y = wl.alloc_fragment(shape)
        Tx.cta.zero(y)
        for s in T.serial(3):
            for i, j, k in T.grid(b, h, c):
                y[i, j, k] = y[i, j, k] + T.cast(X[i, j + s, k], "float32")
        wl.store(Y, (0, 0, 0), y)

    return func


def turned(shape, dtype):
    """The first two dimensions in the other order, by a nest in the third order."""
    b, h, c = shape

    @T.prim_func
    def func(X: T.Buffer(shape, dtype), Y: T.Buffer((h, b, c), dtype)):
        T.device_entry()
        T.cta_id([1])
        x = wl.load(X, (0, 0, 0), shape, scope="fragment")
        y = wl.alloc_fragment((h, b, c), dtype)
        for k, i, j in T.grid(c, b, h):
            y[j, i, k] = x[i, j, k]
        wl.store(Y, (0, 0, 0), y)

    return func


def reduced(shape, dtype, axes, name, scope, accum):
    out = tuple(e for d, e in enumerate(shape) if d not in axes) or (1, 1)
    start = (0,) * len(shape)

    @T.prim_func
    def func(A: T.Buffer(shape, dtype), B: T.Buffer(out, dtype), C: T.Buffer(out, dtype)):
        T.device_entry()
        T.cta_id([1])
        tile = wl.load(A, start, shape, scope="fragment")
        result = T.alloc_buffer(out, dtype, scope=scope)
        if accum:
            Tx.cta.copy(result, B)
        getattr(Tx.cta, name)(result, tile, axes=axes, accum=accum)
        Tx.cta.copy(C, result)

    return func, out


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("shape", [(2, 3, 16), (3, 4, 64), (3, 5, 7)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_neighbours_in_three_dimensions(shape, dtype, arch, rng):
    b, h, c = shape
    x = random_values(rng, (b, h + 2, c), dtype)
    expected = sum(wide(x)[:, s : s + h] for s in range(3))
    compare(stencil(shape, dtype), [x, poisoned(shape, dtype)], expected,
            precision(dtype) + 1e-6, arch)  # fmt: skip


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("shape", [(2, 3, 16), (4, 2, 64), (3, 5, 7)])
def test_dimensions_in_another_order(shape, arch, rng):
    x = random_values(rng, shape, "float16")
    b, h, c = shape
    compare(turned(shape, "float16"), [x, poisoned((h, b, c), "float16")],
            wide(x).swapaxes(0, 1), 0, arch)  # fmt: skip


@pytest.mark.parametrize("accum", [False, True])
@pytest.mark.parametrize("scope", ["fragment", "shared"])
@pytest.mark.parametrize("name", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("which", ["last", "but the last", "all"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.some(24)
def test_reductions(shape, which, dtype, name, scope, accum, rng):
    every = tuple(range(len(shape)))
    axes = {"last": every[-1:], "but the last": every[:-1], "all": every}[which]
    func, out = reduced(shape, dtype, axes, name, scope, accum)
    a, b = random_values(rng, shape, dtype), random_values(rng, out, dtype)
    result = NUMPY[name](wide(a), axis=axes).reshape(out)
    result = JOIN[name](result, wide(b)) if accum else result
    tolerance = precision(dtype) + (0 if dtype == "int32" else 2e-6)
    arch = ARCHS[int(rng.integers(2))]
    compare(func, [a, b, poisoned(out, dtype)], result, tolerance, arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_rows_of_an_accumulator_in_blocks(arch, rng):
    """Rows of an accumulator are two dimensions of a tile."""
    m, n, k = 128, 64, 64

    @T.prim_func
    def func(A: T.Buffer((m, k), "float16"), B: T.Buffer((n, k), "float16"),
             C: T.Buffer((m // 16, 16, n), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        acc = wl.gemm(wl.load(A, (0, 0), (m, k)), wl.load(B, (0, 0), (n, k)))
        out = wl.alloc_fragment((m // 16, 16, n))
        for i, j, c in T.grid(m // 16, 16, n):
            out[i, j, c] = acc[i * 16 + j, c] * 2.0
        wl.store(C, (0, 0, 0), out)

    a, b = random_values(rng, (m, k), "float16"), random_values(rng, (n, k), "float16")
    exact = (2 * wide(a) @ wide(b).T).reshape(m // 16, 16, n)
    compare(func, [a, b, poisoned(exact.shape, "float32")], exact, 1e-5, arch)


def test_what_is_decided_is_said():
    steps = lower_trace(stencil((2, 3, 16), "float16"))
    lines = [line for step in steps for line in step.decisions]
    assert "y: 3 dimensions, the last of which are columns" in lines


def test_a_dimension_in_the_middle_is_declined():
    func, _ = reduced((2, 3, 16), "float32", (1,), "sum", "shared", False)
    with pytest.raises(Decline, match=r"over axes \[1\] of a part or of the middle of it: reduce"):
        lower(func)


def test_other_primitives_are_declined():
    @T.prim_func
    def func(X: T.Buffer((2, 3, 16), "float32"), Y: T.Buffer((2, 3, 16), "float32")):
        T.device_entry()
        T.cta_id([1])
        x = wl.load(X, (0, 0, 0), (2, 3, 16), scope="fragment")
        Tx.cta.atomic_add(Y[0:2, 0:3, 0:16], x)

    with pytest.raises(Decline, match="takes the tile x of 3 dimensions; copy it to a tile of one"):
        lower(func)


def test_a_tile_without_dimensions_is_refused():
    @T.prim_func
    def func(X: T.Buffer((16,), "float32")):
        T.device_entry()
        T.cta_id([1])
        x = T.alloc_buffer((), "float32", scope="fragment")
        for i in T.serial(16):
            X[i] = x[()]

    with pytest.raises(TileProgramError, match="has no dimension"):
        lower(func)
