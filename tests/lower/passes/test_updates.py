"""Atomic updates of elements and of tiles: interpreted, lowered, on the emulator, against numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from tests.shared.lowered_programs import run
from tests.shared.tile_programs.case import numpy_dtype, precision, random_values, wide
from warploom import language as wl
from warploom.errors import TileProgramError
from warploom.lower.lowerings import lower


def histogram(n, bins, scope):
    """Two CTAs count values, in shared memory first, or at once where all see it."""

    @T.prim_func
    def func(X: T.Buffer((2 * n,), "int32"), H: T.Buffer((bins,), "int32")):
        T.device_entry()
        i = T.cta_id([2])
        if scope == "shared":
            own = T.alloc_buffer((bins,), "int32", scope="shared")
            Tx.cta.zero(own)
            for at in T.serial(n):
                wl.atomic_add(own[X[i * n + at]], 1)
            Tx.cta.atomic_add(H, own)
        else:
            for at in T.serial(n):
                wl.atomic_add(H[X[i * n + at]], 1)

    return func


@pytest.mark.parametrize("scope", ["shared", "global"])
@pytest.mark.parametrize(("n", "bins"), [(1000, 24), (64, 24), (64, 512)])
def test_histograms(n, bins, scope, rng):
    func = histogram(n, bins, scope)
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)
    x = rng.integers(-3, bins + 6, 2 * n).astype(np.int32)  # some are outside
    before = rng.integers(0, 9, bins).astype(np.int32)
    expected = before + np.bincount(x[(x >= 0) & (x < bins)], minlength=bins)
    interpreted = before.copy()
    wl.interpret(func, [x, interpreted])
    np.testing.assert_array_equal(interpreted, expected)
    kernel = lower(func)
    assert ('use_tma_reduce="add"' in kernel.script()) == (scope == "shared" and bins == 512)
    np.testing.assert_array_equal(run(kernel, [x, before])[1], expected)


def split_k(m, n, splits, dtype, name, hints, left_out):
    """CTAs share the steps of K, and update the result; edges of C are left out."""

    @T.prim_func
    def func(
        A: T.Buffer((m, 64 * splits), "float16"), B: T.Buffer((n, 64 * splits), "float16"),
        C: T.Buffer((m - 3, n - left_out), dtype), R: T.Buffer((n,), "float32"),
        S: T.Buffer((1, 1), "float32"),
    ):  # fmt: skip
        T.device_entry()
        wl.hints(**hints)
        z = T.cta_id([splits])
        A_s = T.alloc_buffer((m, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((n, 64), "float16", scope="shared")
        acc = T.alloc_buffer((m, n), "float32", scope="accumulator")
        out = T.alloc_buffer((m, n), dtype, scope="fragment")
        columns = T.alloc_buffer((n,), "float32", scope="fragment")
        total = T.alloc_buffer((1, 1), "float32", scope="fragment")
        for k in wl.pipelined(1):
            Tx.cta.copy_async(A_s, A[0:m, (z + k) * 64 : (z + k) * 64 + 64])
            Tx.cta.copy_async(B_s, B[0:n, (z + k) * 64 : (z + k) * 64 + 64])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.cast(out, acc)
        getattr(Tx.cta, name)(C[0:m, 0:n], out)
        Tx.cta.sum(columns, acc, axes=0)
        Tx.cta.atomic_add(R, columns)
        Tx.cta.sum(total, acc, axes=(0, 1))
        Tx.cta.atomic_add(S, total)

    return func


def extremes(shape, dtype, name, scope, space):
    """Two CTAs update extremes of rows, in shared memory, and all elements of a tile at once."""
    m, n = shape

    @T.prim_func
    def func(X: T.Buffer((2, m, n), dtype), R: T.Buffer((m,), dtype), C: T.Buffer((m, n), dtype)):
        T.device_entry()
        b = T.cta_id([2])
        x = T.alloc_buffer((m, n), dtype, scope=scope)
        Tx.cta.copy(x, X[b, 0:m, 0:n])
        if space == "shared":
            rows = T.alloc_buffer((m,), dtype, scope="shared")
            Tx.cta.copy(rows, X[b, 0:m, 0])
            for i, j in T.grid(m, n):
                getattr(wl, name)(rows[i], X[b, i, j])
            getattr(Tx.cta, name)(R, rows)
        else:
            for i, j in T.grid(m, n):
                getattr(wl, name)(R[i], X[b, i, j])
        getattr(Tx.cta, name)(C, x)

    return func


EXTREMES = list(itertools.product(
    [(64, 24), (20, 16), (128, 64)],
    ["float32", "float64", "float16", "bfloat16", "int32", "uint32", "int64", "uint64"],
    ["atomic_max", "atomic_min", "atomic_add"], ["fragment", "shared"], ["shared", "global"],
    ["sm_90a", "sm_100a"],
))  # fmt: skip


@pytest.mark.parametrize(("shape", "dtype", "name", "scope", "space", "arch"), EXTREMES)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.some(8)
def test_extremes_of_every_dtype(shape, dtype, name, scope, space, arch, rng):
    """Of both signs, zeros of both signs among them, for floats are updated by their bits."""
    func = extremes(shape, dtype, name, scope, space)

    def values(*extents):
        if dtype.startswith("uint"):
            return rng.integers(0, 2**32 - 1, extents).astype(dtype)
        if dtype.startswith("int"):
            return rng.integers(-(2**30), 2**30, extents).astype(dtype)
        signed = rng.standard_normal(extents) * rng.choice([0.0, -0.0, 1, 9], extents)
        return signed.astype(numpy_dtype(dtype))

    x, rows, c = values(2, *shape), values(shape[0]), values(*shape)
    join = {"atomic_max": np.maximum, "atomic_min": np.minimum, "atomic_add": np.add}[name]
    exact = wide if "float" in dtype else (lambda array: array)
    columns = [exact(rows), *np.moveaxis(exact(x), 2, 0).reshape(-1, shape[0])]
    if space == "shared":  # which begins with the first column
        columns += list(exact(x)[:, :, 0])
    expected = [join.reduce(columns), join.reduce([exact(c), *exact(x)])]
    expected = [wanted if "float" in dtype else wanted.astype(dtype) for wanted in expected]
    for got in (interpreted(func, x, rows, c), run(lower(func, arch), [x, rows, c], arch)):
        for result, wanted in zip(got[1:], expected, strict=True):
            if name == "atomic_add" and "float" in dtype:
                allowed = shape[1] * precision(dtype) * np.abs(wanted).max() * 4
                assert np.abs(wide(result) - wanted).max() <= allowed
            else:
                np.testing.assert_array_equal(exact(result), wanted)


def interpreted(func, *arguments):
    """The arguments after the program is interpreted."""
    copies = [np.copy(x) for x in arguments]
    wl.interpret(func, copies)
    return copies


def decisions(func, arch):
    """What passes say that they have chosen."""
    return [said for step in warploom.lower_trace(func, arch) for said in step.decisions]


CASES = list(itertools.product(
    [64, 128], ["float32", "float16", "bfloat16", "int32"],
    [{"persistent": True}, {"ctas": 1}, {"specialise": False}, {"consumers": 1}],
    ["sm_90a", "sm_100a"], [5, 8],
))  # fmt: skip


@pytest.mark.parametrize(("m", "dtype", "hints", "arch", "left_out"), CASES)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.some(6)
def test_split_k_by_updates(m, dtype, hints, arch, left_out, rng):
    name, n, splits = "atomic_max" if dtype == "int32" else "atomic_add", 32, 3
    func = split_k(m, n, splits, dtype, name, hints, left_out)
    a, b = (random_values(rng, (rows, 64 * splits), "float16") for rows in (m, n))
    c = (random_values(rng, (m - 3, n - left_out), "float16") * 4).astype(numpy_dtype(dtype))
    column, total = np.ones(n, np.float32), np.ones((1, 1), np.float32)
    parts = [wide(a)[:, s : s + 64] @ wide(b)[:, s : s + 64].T for s in range(0, 64 * splits, 64)]
    if dtype == "int32":
        expected = np.max([np.trunc(part)[:-3, :-left_out] for part in parts] + [wide(c)], axis=0)
    else:
        expected = sum(parts)[:-3, :-left_out] + wide(c)
    arguments = [a, b, c, column, total]
    by_tma = any("update of C: by TMA" in said for said in decisions(func, arch))
    assert by_tma == (left_out == 8)  # rows of whole 16 bytes
    interpreted = [np.copy(x) for x in arguments]
    wl.interpret(func, interpreted)
    got = run(lower(func, arch), [np.copy(x) for x in arguments], arch)
    scale = np.abs(expected).max()
    for _, _, product, columns, sums in (interpreted, got):
        # int32: a sum that is nearly an integer may be truncated to either side of it.
        allowed = 1 if dtype == "int32" else (4 * precision(dtype) + 1e-5) * scale
        assert np.abs(wide(product) - expected).max() <= allowed
        np.testing.assert_allclose(columns, 1 + sum(parts).sum(0), rtol=0, atol=1e-4 * scale)
        np.testing.assert_allclose(sums[0, 0], 1 + sum(parts).sum(), rtol=0, atol=1e-3 * scale)


def refused(body):
    """What is said of a program with the statements of ``body``."""

    @T.prim_func
    def func(X: T.Buffer((64,), "int32"), H: T.Buffer((64,), "float16")):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((64,), "int32", scope="fragment")
        Tx.cta.copy(tile, X)
        body(X, H, tile)
        Tx.cta.copy(X, tile)

    with pytest.raises(TileProgramError) as error:
        lower(func)
    return str(error.value)


def test_what_is_refused():
    def of_bytes(X, H, tile):
        small = T.alloc_buffer((64,), "int8", scope="shared")
        Tx.cta.zero(small)
        with T.serial(64) as i:
            wl.atomic_max(small[i], T.int8(1))

    def of_registers(X, H, tile):
        with T.serial(64) as i:
            wl.atomic_add(tile[i], 1)

    def mixed(X, H, tile):
        with T.serial(64) as i:
            wl.atomic_add(X[i], 1)
            wl.atomic_max(X[i], 1)

    def also_read(X, H, tile):
        with T.serial(64) as i:
            wl.atomic_add(X[0], X[i])

    assert "of dtype int8; GPUs update float32, float64" in refused(of_bytes)
    assert "must be in global or shared memory" in refused(of_registers)
    assert "with atomic_add and calls atomic_max for it too" in refused(mixed)
    assert "reads it too; iterations have no order" in refused(also_read)
    assert "it must be in global memory, since a tile belongs to one CTA" in refused(
        lambda X, H, tile: Tx.cta.atomic_add(tile, tile)
    )
    assert "cast the tile first" in refused(lambda X, H, tile: Tx.cta.atomic_add(H, tile))
