"""Tiles in registers of three and four dimensions: lowered, on the emulator, against numpy."""

from __future__ import annotations

import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.lower.passes.test_reductions import JOIN, NUMPY, compare
from tests.shared.tile_programs.case import poisoned, precision, random_values, wide
from warploom import language as wl
from warploom import lower_trace
from warploom.errors import TileProgramError
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


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("source", ["fragment", "shared"])
@pytest.mark.parametrize("to", ["fragment", "shared"])
@pytest.mark.parametrize("shape", [(2, 3, 16), (3, 5, 7), (2, 2, 3, 8), (2, 2, 3, 2, 4)])
@pytest.mark.parametrize("accum", [False, True])
@pytest.mark.some(8)
def test_any_dimensions_of_any_part(shape, source, to, accum, arch, rng):
    """In the place of a dimension that is reduced there is one element, or there is none."""
    axes = sorted(rng.permutation(len(shape))[: int(rng.integers(1, len(shape)))].tolist())
    first = [int(rng.integers(extent)) for extent in shape]
    last = [int(rng.integers(a, e)) + 1 for a, e in zip(first, shape, strict=True)]
    part = tuple(slice(a, b) for a, b in zip(first, last, strict=True))
    part = tuple(map(slice, shape)) if rng.integers(2) else part
    name, dtype = str(rng.choice(list(NUMPY))), str(rng.choice(["float16", "int32"]))
    keep = bool(rng.integers(2))
    x = rng.integers(-9, 9, shape).astype(dtype)
    exact = NUMPY[name](wide(x[part]), axis=tuple(axes), keepdims=keep)
    print(shape, axes, part, name, dtype, keep)
    start = (0,) * len(shape)

    @T.prim_func
    def func(A: T.Buffer(shape, dtype), B: T.Buffer(exact.shape, dtype)):
        T.device_entry()
        T.cta_id([1])
        tile = wl.load(A, start, shape, scope=source)
        result = T.alloc_buffer(exact.shape, dtype, scope=to)
        Tx.cta.fill(result, T.cast(3, dtype))
        getattr(Tx.cta, name)(result, tile[part], axes=axes, accum=accum)
        Tx.cta.copy(B, result)

    exact = JOIN[name](exact, 3) if accum else exact
    compare(func, [x, poisoned(exact.shape, dtype)], exact, 0, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("shape", [(2, 3, 16), (2, 1, 3, 8), (4, 8, 16)])
def test_updates_by_a_tile(shape, arch, rng):
    start = (0,) * len(shape)

    @T.prim_func
    def func(X: T.Buffer(shape, "float32"), Y: T.Buffer(shape, "float32")):
        T.device_entry()
        T.cta_id([1])
        Tx.cta.atomic_add(Y, wl.load(X, start, shape, scope="fragment"))

    x, y = (rng.integers(-9, 9, shape).astype("float32") for _ in range(2))
    compare(func, [x, y], wide(x) + y, 0, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("source", ["fragment", "shared"])
@pytest.mark.parametrize("to", ["fragment", "shared"])
@pytest.mark.some(6)
def test_positions_along_any_dimension(axis, source, to, arch, rng):
    shape = (3, 4, 8)
    kept = tuple(e for d, e in enumerate(shape) if d != axis)

    @T.prim_func
    def func(X: T.Buffer(shape, "float32"), Y: T.Buffer(kept, "int32")):
        T.device_entry()
        T.cta_id([1])
        result = T.alloc_buffer(kept, "int32", scope=to)
        Tx.cta.argmax(result, wl.load(X, (0, 0, 0), shape, scope=source), axis=axis)
        Tx.cta.copy(Y, result)

    x = rng.permutation(96).reshape(shape).astype("float32")
    compare(func, [x, poisoned(kept, "int32")], x.argmax(axis), 0, arch)


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
