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
@pytest.mark.parametrize("n", [1000, 64])
def test_histograms(n, scope, rng):
    func = histogram(n, 24, scope)
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)
    x = rng.integers(-3, 30, 2 * n).astype(np.int32)  # some are outside
    before = rng.integers(0, 9, 24).astype(np.int32)
    expected = before + np.bincount(x[(x >= 0) & (x < 24)], minlength=24)
    interpreted = before.copy()
    wl.interpret(func, [x, interpreted])
    np.testing.assert_array_equal(interpreted, expected)
    np.testing.assert_array_equal(run(lower(func), [x, before])[1], expected)


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
    def max_of_floats(X, H, tile):
        with T.serial(64) as i:
            wl.atomic_max(H[i], T.float16(1))

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

    assert "atomic_max updates H of dtype float16; GPUs update int32, uint32" in refused(
        max_of_floats
    )
    assert "must be in global or shared memory" in refused(of_registers)
    assert "with atomic_add and calls atomic_max for it too" in refused(mixed)
    assert "reads it too; iterations have no order" in refused(also_read)
    assert "it must be in global memory, since a tile belongs to one CTA" in refused(
        lambda X, H, tile: Tx.cta.atomic_add(tile, tile)
    )
    assert "cast the tile first" in refused(lambda X, H, tile: Tx.cta.atomic_add(H, tile))
