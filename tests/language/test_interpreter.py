"""Statements, copies and MMAs of the interpreter, against numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import S, TileLayout

from warploom import language as wl
from warploom.errors import TileProgramError

M, N = 24, 40


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def check_absolute(actual: np.ndarray, expected: np.ndarray, size: float) -> None:
    """Differences of near numbers: the error of a rounding at ``size``, not at the result."""
    eps = float(ml_dtypes.finfo(actual.dtype).eps)
    assert (np.abs(actual.astype(np.float64) - expected) <= eps * np.maximum(size, expected)).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32"])
@pytest.mark.parametrize("scope", ["shared", "fragment"])
def test_tiles_are_poisoned_until_written(dtype, scope):
    @T.prim_func
    def func(c: T.handle):
        C = T.match_buffer(c, (4, 8), dtype)
        T.device_entry()
        i = T.cta_id([2])
        for k in T.serial(2):
            tile = T.alloc_buffer((2, 8), dtype, scope=scope)
            if k == 0:
                Tx.cta.zero(tile)
            Tx.cta.copy(C[i * 2 : i * 2 + 2, 0:8], tile)

    result = np.ones((4, 8), numpy_dtype(dtype))
    wl.interpret(func, [result])
    if dtype == "int32":
        assert (result.view(np.uint8) == 0xA5).all()
    else:
        assert np.isnan(result.astype(np.float32)).all()
    wl.interpret(func, [result], poison=False)
    assert not result.astype(np.float32).any()


@settings(max_examples=30)
@given(
    start=st.tuples(st.integers(-30, 60), st.integers(-30, 60)),
    target=st.tuples(st.integers(-30, 60), st.integers(-30, 60)),
)
def test_regions_over_the_edges_of_global_buffers(start, target):
    """Elements outside are read as 0, and not written."""

    @T.prim_func
    def func(a: T.handle, c: T.handle):
        A = T.match_buffer(a, (M, N), "int32")
        C = T.match_buffer(c, (M, N), "int32")
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((16, 16), "int32", scope="shared")
        Tx.cta.copy_async(tile, A[start[0] : start[0] + 16, start[1] : start[1] + 16])
        Tx.cta.copy(C[target[0] : target[0] + 16, target[1] : target[1] + 16], tile)

    source = np.arange(1, M * N + 1, dtype=np.int32).reshape(M, N)
    result = np.full((M, N), -1, np.int32)
    wl.interpret(func, [source, result])
    border = 100
    padded = np.pad(source, border)
    taken = padded[border + start[0] :, border + start[1] :][:16, :16]
    expected = np.pad(np.full((M, N), -1, np.int32), border)
    expected[border + target[0] :, border + target[1] :][:16, :16] = taken
    np.testing.assert_array_equal(result, expected[border : border + M, border : border + N])


def test_a_copy_drops_extents_of_one(rng):
    @T.prim_func
    def func(a: T.handle, c: T.handle):
        A = T.match_buffer(a, (3, M, 2, N), "float32")
        C = T.match_buffer(c, (N, M, 3), "float32")
        T.device_entry()
        b = T.cta_id([3])
        tile = T.alloc_buffer((2, M), "float32", scope="shared")
        for j in T.serial(N):
            Tx.cta.copy(tile[1, 0:M], A[b, 0:M, 1, j])
            Tx.cta.copy(C[j, 0:M, b], tile[1:2, :])

    a, c = rng.standard_normal((3, M, 2, N), "float32"), np.zeros((N, M, 3), "float32")
    wl.interpret(func, [a, c])
    np.testing.assert_array_equal(c, a[:, :, 1].transpose(2, 1, 0))


def test_overlapping_regions_are_read_before_they_are_written():
    @T.prim_func
    def func(c: T.handle):
        C = T.match_buffer(c, (N,), "int32")
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((N,), "int32", scope="shared")
        Tx.cta.copy(tile, C[0:N])
        Tx.cta.copy(tile[1:N], tile[0 : N - 1])
        Tx.cta.copy(C[0:N], tile)

    values = np.arange(N, dtype=np.int32)
    wl.interpret(func, [values])
    np.testing.assert_array_equal(values, [0, *range(N - 1)])


@pytest.mark.parametrize("dtypes", [("int8", "int8"), ("int8", "uint8"), ("uint8", "uint8")])
def test_integer_products_wrap_around(dtypes, rng):
    @T.prim_func
    def func(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (M, 64), dtypes[0])
        B = T.match_buffer(b, (N, 64), dtypes[1])
        C = T.match_buffer(c, (M, N), "int32")
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((M, 64), dtypes[0], scope="shared")
        B_s = T.alloc_buffer((N, 64), dtypes[1], scope="shared")
        acc = T.alloc_buffer((M, N), "int32", scope="accumulator")
        Tx.cta.copy(A_s, A)
        Tx.cta.copy(B_s, B)
        Tx.cta.copy(acc, C)
        Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        Tx.cta.copy(C, acc)

    a, b = (
        rng.integers(np.iinfo(d).min, np.iinfo(d).max, (s, 64), d, endpoint=True)
        for s, d in zip((M, N), dtypes, strict=True)
    )
    c = rng.integers(2**31 - 2**18, 2**31, (M, N)).astype(np.int32)
    expected = (c.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64).T).astype(np.int32)
    wl.interpret(func, [a, b, c])
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_an_mma_of_a_stage_of_a_buffer_and_of_a_half(stages, rng):
    """Operands may be parts of tiles; extents of 1 in front do not count."""

    @T.prim_func
    def func(a: T.handle, c: T.handle):
        A = T.match_buffer(a, (stages, 32, 32), "float16")
        C = T.match_buffer(c, (16, 32), "float32")
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((stages, 32, 32), "float16", scope="shared")
        acc = T.alloc_buffer((32, 32), "float32", scope="accumulator")
        Tx.cta.copy_async(A_s, A)
        Tx.cta.gemm_async(
            acc[16:32, 0:32], A_s[stages - 1, 0:16, 0:16], A_s[stages - 1, 0:32, 16:32]
        )
        Tx.cta.copy(C, acc[16:32, 0:32])

    a, c = rng.standard_normal((stages, 32, 32)).astype(np.float16), np.zeros((16, 32), np.float32)
    wl.interpret(func, [a, c])
    last = a[-1].astype(np.float64)
    check_absolute(c, last[:16, :16] @ last[:, 16:].T, 16)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("extents", [(5,), (3, 4), (2, 3, 4)])
def test_grids_of_any_rank_and_loops_over_tiles(extents, persistent):
    total = int(np.prod(extents))

    @T.prim_func
    def func(c: T.handle):
        C = T.match_buffer(c, (total, 8), "int32")
        T.device_entry()
        T.attr({"warploom.persistent": persistent, "tirx.launch_bounds_min_blocks_per_sm": 1})
        ids = T.meta_var(cta_ids([2] if persistent else extents))
        tile = T.alloc_buffer((8,), "int32", scope="shared", layout=TileLayout(S[(8,)]))
        if persistent:
            for t in T.serial(ids[0], total, step=2):
                Tx.cta.fill(tile, t)
                Tx.cta.copy(C[t, 0:8], tile)
        else:
            place = T.meta_var(linear(ids, extents))
            Tx.cta.fill(tile, place)
            Tx.cta.copy(C[place, 0:8], tile)

    result = np.full((total, 8), -1, np.int32)
    wl.interpret(func, [result])
    np.testing.assert_array_equal(result, np.arange(total)[:, None].repeat(8, 1))


def cta_ids(extents):
    ids = T.cta_id(list(extents))
    return list(ids) if len(extents) > 1 else [ids]


def linear(ids, extents):
    place = 0
    for each, extent in zip(ids, extents, strict=True):
        place = place * extent + each
    return place


@settings(max_examples=20)
@given(st.lists(st.integers(-3, 6), min_size=8, max_size=8))
def test_scalars_branches_and_loops_with_bounds_from_memory(counts):
    @T.prim_func
    def func(a: T.handle, c: T.handle):
        A = T.match_buffer(a, (8,), "int32")
        C = T.match_buffer(c, (8,), "int32")
        T.device_entry()
        i = T.cta_id([8])
        tile = T.alloc_buffer((1,), "int32", scope="shared")
        total: T.int32 = 0
        limit: T.let = A[i]
        for k in wl.pipelined(limit):
            if k % 2 == 1:
                total = total + 10 * k
            else:
                total += 1
        if limit < 0:
            total = limit
        Tx.cta.fill(tile, total)
        Tx.cta.copy(C[i : i + 1], tile)

    array, result = np.array(counts, np.int32), np.zeros(8, np.int32)
    wl.interpret(func, [array, result])
    sums = [sum(10 * k if k % 2 else 1 for k in range(n)) for n in counts]
    np.testing.assert_array_equal(
        result, [n if n < 0 else s for n, s in zip(counts, sums, strict=True)]
    )


def test_two_kernels_of_one_function_and_a_workspace(rng):
    @T.prim_func
    def func(a: T.handle, c: T.handle):
        A = T.match_buffer(a, (64,), "int32")
        C = T.match_buffer(c, (16,), "int32")
        W = T.alloc_buffer((4, 16), "int32", scope="global")
        with T.attr(0, "tirx.device_entry", True):
            i = T.cta_id([4])
            part = T.alloc_buffer((16,), "int32", scope="shared")
            Tx.cta.copy(part, A[i * 16 : i * 16 + 16])
            Tx.cta.mul(part, part, 2)
            Tx.cta.copy(W[i, 0:16], part)
        with T.attr(0, "tirx.device_entry", True):
            T.cta_id([1])
            parts = T.alloc_buffer((4, 16), "int32", scope="fragment")
            total = T.alloc_buffer((16,), "int32", scope="fragment")
            Tx.cta.copy(parts, W)
            Tx.cta.sum(total, parts, axes=0)
            Tx.cta.copy(C, total)

    a, c = rng.integers(-1000, 1000, 64).astype(np.int32), np.zeros(16, np.int32)
    wl.interpret(func, [a, c])
    np.testing.assert_array_equal(c, 2 * a.reshape(4, 16).sum(0))


@pytest.mark.parametrize("kind", [T.serial, T.parallel, T.vectorized, T.unroll])
def test_nests_of_every_kind_of_loop_and_any_order_of_indices(kind, rng):
    @T.prim_func
    def func(a: T.handle, c: T.handle):
        A = T.match_buffer(a, (M, N), "float32")
        C = T.match_buffer(c, (2, N, M), "float32")
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((2, N, M), "float32", scope="shared")
        row = T.alloc_buffer((M,), "float32", scope="fragment")
        for i in kind(M):
            row[i] = A[i, 3]
        for k in T.serial(2):
            for i in T.serial(M):
                for j in kind(N):
                    doubled: T.let = A[i, j] * T.float32(2)
                    tile[k, j, i] = doubled + row[i] + T.cast(k, "float32")
                    tile[k, j, i] = tile[k, j, i] + T.float32(1)
        Tx.cta.copy(C, tile)

    a, c = rng.integers(-9, 9, (M, N)).astype(np.float32), np.zeros((2, N, M), np.float32)
    wl.interpret(func, [a, c])
    base = (2 * a + a[:, 3:4] + 1).T
    np.testing.assert_array_equal(c, np.stack([base, base + 1]))


def two_ctas(call):
    """Each of two CTAs has a tile of its number, and does ``call(C, tile, number)``."""

    @T.prim_func
    def func(C: T.Buffer((8,), "float32")):
        T.device_entry()
        i = T.cta_id([2])
        tile = T.alloc_buffer((8,), "float32", scope="fragment")
        for x in T.serial(8):
            tile[x] = T.cast(i + 1, "float32")
        call(C, tile, i)

    return func


@pytest.mark.parametrize(
    "call",
    [
        lambda C, tile, i: Tx.cta.copy(C[0:8], tile),
        lambda C, tile, i: Tx.cta.copy(C[2 * i : 2 * i + 8], tile),
    ],
)
def test_two_ctas_that_store_one_element_are_refused(call):
    said = r"CTA i = 1 stores another value to C\[[02]\] than CTA i = 0 has stored; .*atomic_add"
    with pytest.raises(TileProgramError, match=said):
        wl.interpret(two_ctas(call), [np.zeros(8, np.float32)])


def test_two_ctas_may_update_one_element_or_store_one_value():
    c = np.zeros(8, np.float32)
    wl.interpret(two_ctas(lambda C, tile, i: Tx.cta.atomic_add(C[0:8], tile)), [c])
    np.testing.assert_array_equal(c, 3)
    wl.interpret(two_ctas(lambda C, tile, i: Tx.cta.fill(tile, 0.0)), [c])
