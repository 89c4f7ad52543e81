"""Builtins about threads: where they are, values of other lanes, barriers, control flow."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from tests.language.builtins.vocabulary import ARCHS, compiled, poisoned, report_of
from warploom import language as wl

THREADS = 256
CTAS = 6


def places() -> PrimFunc:
    """Every thread writes where it is."""

    @T.prim_func
    def main(B: T.Buffer((9, THREADS), "int32")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([THREADS])
        B[0, t] = wl.get_lane_idx()
        B[1, t] = wl.get_lane_idx(16)
        B[2, t] = wl.get_warp_idx()
        B[3, t] = wl.get_warp_idx(64)
        B[4, t] = wl.get_warp_idx_sync()
        B[5, t] = wl.get_warp_group_idx()
        B[6, t] = wl.get_warp_group_idx(32, 2)
        B[7, t] = wl.get_warp_group_idx(16)
        B[8, t] = T.warploom.get_warp_idx_sync(128)

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_indices(arch):
    kernel = compiled(places, arch)
    assert kernel.has("%tid.x", "shfl.sync.idx.b32")
    t = np.arange(THREADS)
    (after,) = kernel.run(poisoned((9, THREADS), "int32"))
    expected = [t % 32, t % 16, t // 32, t // 64, t // 32, t // 128, t // 64, t // 64, t // 128]
    np.testing.assert_array_equal(after, expected)


def elections() -> PrimFunc:
    """Counts the threads that are elected, and says where they are."""

    @T.prim_func
    def main(B: T.Buffer((7, THREADS), "int32")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([THREADS])
        for row in T.serial(7):
            B[row, t] = 0
        if wl.shuffle_elect(0):
            B[0, t] = 1
        if wl.shuffle_elect(32):
            B[1, t] = 1
        if wl.shuffle_elect(64):
            B[2, t] = 1
        if wl.shuffle_elect(128):
            B[3, t] = 1
        if wl.shuffle_elect(16):
            B[4, t] = 1
        if wl.shuffle_elect(2):
            B[5, t] = 1
        if wl.shuffle_elect(1):
            B[6, t] = 1

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_shuffle_elect(arch):
    kernel = compiled(elections, arch)
    assert kernel.has("elect.sync", "shfl.sync.idx.b32")
    (after,) = kernel.run(poisoned((7, THREADS), "int32"))
    for row, extent in zip(after, (THREADS, 32, 64, 128, 16, 2, 1), strict=True):
        groups = row.reshape(-1, extent)
        # One thread of each group, in its first warp.
        np.testing.assert_array_equal(groups.sum(1), 1)
        np.testing.assert_array_equal(groups[:, :32].sum(1), 1)


def shuffles() -> PrimFunc:
    """Values of other lanes; those of 64 bits are two instructions."""

    @T.prim_func
    def main(
        A: T.Buffer((32,), "float32"), B: T.Buffer((6, 32), "float32"),
        C: T.Buffer((32,), "int64"), D: T.Buffer((2, 32), "int64"),
        E: T.Buffer((32,), "float16"), F: T.Buffer((32,), "float16"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([32])
        B[0, t] = wl.shfl_xor(A[t], 5)
        B[1, t] = wl.shfl_down(A[t], 3)
        B[2, t] = wl.shfl_up(A[t], 7)
        B[3, t] = wl.shfl_sync(0xFFFFFFFF, A[t], 19)
        B[4, t] = wl.shfl_sync(0xFFFFFFFF, A[t], t + 1, 8)
        B[5, t] = wl.shfl_xor(A[t], t % 1 + 16)
        if t < 8:
            D[0, t] = wl.shfl_sync(0xFF, C[t], 7 - t)
        D[1, t] = wl.shfl_xor(C[t], 1)
        F[t] = wl.shfl_up(E[t], 1)

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_shuffles(arch, rng):
    kernel = compiled(shuffles, arch)
    assert kernel.has("shfl.sync.bfly.b32", "shfl.sync.down.b32", "shfl.sync.up.b32")
    assert kernel.has("shfl.sync.idx.b32")
    a = rng.standard_normal(32).astype("float32")
    c = rng.integers(-(2**62), 2**62, 32)
    e = rng.standard_normal(32).astype("float16")
    before = [a, poisoned((6, 32), "float32"), c, poisoned((2, 32), "int64"), e]
    _, b, _, d, _, f = kernel.run(*before, poisoned(32, "float16"))
    t = np.arange(32)
    down, up = np.where(t + 3 < 32, t + 3, t), np.where(t >= 7, t - 7, t)
    sources = [t ^ 5, down, up, t * 0 + 19, t // 8 * 8 + (t + 1) % 8, t ^ 16]
    np.testing.assert_array_equal(b, [a[one % 32] for one in sources])
    np.testing.assert_array_equal(d[0, :8], c[7::-1])
    np.testing.assert_array_equal(d[0, 8:], before[3][0, 8:])
    np.testing.assert_array_equal(d[1], c[t ^ 1])
    np.testing.assert_array_equal(f, e[np.maximum(t - 1, 0)])


def barriers(missing: str = "") -> PrimFunc:
    """Values pass through shared memory: in the CTA, in a half of it, in a warp, in half a warp."""

    @T.prim_func
    def main(A: T.Buffer((128,), "int32"), B: T.Buffer((4, 128), "int32")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([128])
        s = T.alloc_buffer((4, 128), "int32", scope="shared")
        for row in T.serial(4):
            s[row, t] = A[t] + row
        if missing != "threads":
            wl.sync_threads()
        B[0, t] = s[0, 127 - t]
        wl.sync_threads(0)
        if t < 64:
            s[1, t] = s[1, t] * 2
            if missing != "count":
                wl.sync_threads(3, 64)
            B[1, t] = s[1, 63 - t]
        s[2, t] = s[2, t] * 3
        if missing != "warp":
            wl.sync_warp()
        B[2, t] = s[2, t ^ 31]
        if t % 32 < 16:
            s[3, t] = s[3, t] * 5
            if missing != "mask":
                wl.sync_warp(0xFFFF)
            B[3, t] = s[3, t ^ 15]

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_sync_threads_and_sync_warp(arch, rng):
    kernel = compiled(barriers, arch)
    assert kernel.has("bar.sync", "bar.warp.sync")
    assert re.search(r"barrier.sync *%r\d+, %r\d+|bar.sync *(%r\d+|3), (%r\d+|64)", kernel.ptx)
    a = rng.integers(-1000, 1000, 128).astype("int32")
    before = poisoned((4, 128), "int32")
    _, b = kernel.run(a, before)
    t = np.arange(128)
    np.testing.assert_array_equal(b[0], a[127 - t])
    np.testing.assert_array_equal(b[1], np.where(t < 64, 2 * (a[(63 - t) % 128] + 1), before[1]))
    np.testing.assert_array_equal(b[2], 3 * (a[t ^ 31] + 2))
    np.testing.assert_array_equal(b[3], np.where(t % 32 < 16, 5 * (a[t ^ 15] + 3), before[3]))


@pytest.mark.parametrize("missing", ["threads", "count", "warp", "mask"])
def test_the_checker_sees_a_missing_barrier(missing, rng):
    a = rng.integers(-1000, 1000, 128).astype("int32")
    report = report_of(barriers(missing), a, poisoned((4, 128), "int32"))
    assert "data race" in report or "uninitialised" in report


def halves(missing: str = "") -> PrimFunc:
    """Each warpgroup meets at a barrier of its own, whose number and count it computes."""

    @T.prim_func
    def main(A: T.Buffer((THREADS,), "int32"), B: T.Buffer((THREADS,), "int32")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([THREADS])
        s = T.alloc_buffer((THREADS,), "int32", scope="shared")
        group: T.let = wl.get_warp_group_idx()
        s[t] = A[t]
        if missing != "barrier":
            wl.sync_threads(group + 1, 96 + 32 * (A[0] * 0 + 1))
        B[t] = s[t ^ 127]
        wl.sync_threads(T.Cast("int64", group + 3), 128)

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_barriers_that_are_computed(arch, rng):
    a = rng.integers(-1000, 1000, THREADS).astype("int32")
    _, b = compiled(halves, arch).run(a, poisoned(THREADS, "int32"))
    np.testing.assert_array_equal(b, a[np.arange(THREADS) ^ 127])


def test_the_checker_sees_a_missing_computed_barrier(rng):
    a = rng.integers(-1000, 1000, THREADS).astype("int32")
    report = report_of(halves("barrier"), a, poisoned(THREADS, "int32"))
    assert "data race" in report or "uninitialised" in report


def grids(sync: str) -> PrimFunc:
    """Sums of what all CTAs have written, twice."""
    meet = getattr(wl, sync) if sync else (lambda: None)

    @T.prim_func
    def main(A: T.Buffer((CTAS,), "int32"), B: T.Buffer((2, CTAS), "int32")):
        T.device_entry()
        b = T.cta_id([CTAS])
        t = T.thread_id([64])
        total: T.int32
        for turn in T.serial(2):
            if t == 0:
                A[b] = A[b] * (b + 2)
            meet()
            total = 0
            for i in T.serial(CTAS):
                total = total + A[i]
            meet()
            if t == 0:
                B[turn, b] = total

    return main


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("sync", "arch"),
    [
        ("sync_global", "sm_90a"),
        ("sync_global", "sm_100a"),
        ("sync_grid", "sm_90a"),
        # NVRTC takes ten seconds for the headers of cooperative groups.
        pytest.param("sync_grid", "sm_100a", marks=pytest.mark.slow),
    ],
)
def test_barriers_of_the_grid(arch, sync, rng):
    kernel = compiled(grids, arch, sync)
    assert kernel.has("atom.add", "ld.acquire.gpu")
    a = rng.integers(1, 100, CTAS).astype("int32")
    factors = np.arange(CTAS) + 2
    for _ in range(2):  # the counter of the barrier is as good as new
        after, sums = kernel.run(a, poisoned((2, CTAS), "int32"))
        np.testing.assert_array_equal(after, a * factors**2)
        np.testing.assert_array_equal(sums[0], (a * factors).sum())
        np.testing.assert_array_equal(sums[1], (a * factors**2).sum())


def test_the_checker_sees_a_grid_without_a_barrier(rng):
    a = rng.integers(1, 100, CTAS).astype("int32")
    assert "data race" in report_of(grids(""), a, poisoned((2, CTAS), "int32"))


@functools.cache
def launches(sync: str) -> list[str]:
    passes, _, _ = tvm.tirx.get_tir_pipeline("warploom")
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}).with_host("c")
    with target:
        bound = tvm.tirx.transform.BindTarget(target)(tvm.IRModule({"main": grids(sync)}))
        functions = passes(bound).functions.values()
    key = "tirx.kernel_launch_params"
    (tags,) = (one.attrs[key] for one in functions if key in (one.attrs or {}))
    return list(map(str, tags))


def test_only_grids_that_meet_are_launched_together():
    assert "tirx.use_cooperative_launch" in launches("sync_grid")
    assert "tirx.use_cooperative_launch" not in launches("sync_global")


def searches() -> PrimFunc:
    """The first index of a row whose element is negative, or the length of the row."""

    @T.prim_func
    def main(A: T.Buffer((32, 50), "float32"), B: T.Buffer((32,), "int32")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([32])
        steps: T.int32 = 0
        for i in T.serial(50):
            if A[t, i] < T.float32(0):
                wl.loop_break()
            steps = steps + 1
        B[t] = steps

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_loop_break(arch, rng):
    kernel = compiled(searches, arch)
    assert kernel.has("bra")
    a = rng.standard_normal((32, 50)).astype("float32") + 1.5
    a[3] = 1.0
    a[4, 0] = -1.0
    _, after = kernel.run(a, poisoned(32, "int32"))
    first = np.where((a < 0).any(1), (a < 0).argmax(1), 50)
    np.testing.assert_array_equal(after, first)
