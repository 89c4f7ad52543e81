"""Mbarriers that are allocated with their counts, one for each: by hand, and in tile programs."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.language.builtins.vocabulary import ARCHS, compiled, poisoned, report_of
from tests.shared.lowered_programs import run
from warploom import language as wl
from warploom.errors import Decline, IllegalCombination
from warploom.lower.lowerings import lower

THREADS, CLUSTER = 128, 2


def counted(missing: str = "") -> PrimFunc:
    """Values pass between threads in parts of 128, 64 and 32: each part has its mbarrier."""

    def allocate():
        if not missing:
            return wl.alloc_barrier([THREADS] * 2 + [64, 32])
        barriers = wl.mbarrier.alloc(4)
        with T.If(T.cuda.thread_rank() == 0), T.Then():
            wl.mbarrier.init(barriers, [THREADS, THREADS, 64, 32])
        return barriers

    @T.prim_func
    def main(A: T.Buffer((THREADS,), "int32"), B: T.Buffer((4, THREADS), "int32")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([THREADS])
        s = T.alloc_buffer((4, THREADS), "int32", scope="shared")
        full = allocate()
        for i in T.unroll(4):
            if (i < 2) or (i == 2 and t < 64) or (i == 3 and t < 32):
                s[i, t] = A[t] + i
                wl.mbarrier_arrive(full[i])
                wl.mbarrier_wait_parity(full[i], 0)
                B[i, t] = s[i, t ^ 31]

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_each_mbarrier_has_a_count_of_its_own(arch, rng):
    kernel = compiled(counted, arch)
    assert kernel.has("mbarrier.init.shared.b64", "fence.mbarrier_init.release.cluster")
    a = rng.integers(-1000, 1000, THREADS).astype("int32")
    before = poisoned((4, THREADS), "int32")
    _, b = kernel.run(a, before)
    t = np.arange(THREADS)
    for i, count in enumerate((128, 128, 64, 32)):
        np.testing.assert_array_equal(b[i], np.where(t < count, a[t ^ 31] + i, before[i]))


def test_the_checker_sees_mbarriers_that_nobody_waited_for(rng):
    a = rng.integers(-1000, 1000, THREADS).astype("int32")
    report = report_of(counted("sync"), a, poisoned((4, THREADS), "int32"))
    assert "init race" in report or "never initialised" in report


def turns(missing: str = "") -> PrimFunc:
    """Values pass in phase after phase; parities are conditions, and waits may have a hint."""

    @T.prim_func
    def main(A: T.Buffer((4, THREADS), "int32"), B: T.Buffer((4, THREADS), "int32")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([THREADS])
        s = T.alloc_buffer((2, THREADS), "int32", scope="shared")
        full = wl.alloc_barrier(THREADS)
        odd: T.bool = False
        for i in T.serial(4):
            s[i % 2, t] = A[i, t]
            wl.mbarrier_arrive(full)
            if missing == "parity":
                wl.mbarrier_wait_parity(full, True, ticks=1000 + i)
            elif i % 2 == 0:
                wl.mbarrier_wait_parity(full, odd, ticks=1000 + i)
            else:
                wl.barrier_wait(full, i % 2 == 1)
            B[i, t] = s[i % 2, THREADS - 1 - t]
            odd = not odd

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_parities_are_conditions(arch, rng):
    kernel = compiled(turns, arch)
    assert kernel.has("mbarrier.try_wait.parity.acquire.cta.shared::cta.b64")
    a = rng.integers(-1000, 1000, (4, THREADS)).astype("int32")
    _, b = kernel.run(a, poisoned((4, THREADS), "int32"))
    np.testing.assert_array_equal(b, a[:, ::-1])


def test_the_checker_sees_a_wait_for_the_other_parity(rng):
    a = rng.integers(-1000, 1000, (4, THREADS)).astype("int32")
    report = report_of(turns("parity"), a, poisoned((4, THREADS), "int32"))
    assert any(one in report for one in ("data race", "uninitialised", "deadlock"))


def peers() -> PrimFunc:
    """CTAs of a cluster arrive at each other's mbarriers as soon as these are there."""

    @T.prim_func
    def main(B: T.Buffer((CLUSTER, 32), "int32")):
        T.device_entry()
        rank = T.cta_id_in_cluster([CLUSTER])
        T.cta_id([CLUSTER])
        t = T.thread_id([32])
        ready = wl.alloc_barrier(32)
        wl.mbarrier_arrive(ready, cta_id=1 - rank)
        wl.mbarrier_wait_parity(ready, 0)
        B[rank, t] = rank
        T.cuda.cluster_sync()

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_the_cluster_waits_for_its_mbarriers(arch):
    (b,) = compiled(peers, arch).run(poisoned((CLUSTER, 32), "int32"))
    np.testing.assert_array_equal(b, np.arange(CLUSTER)[:, None].repeat(32, 1))


def three_loads(ready: bool) -> PrimFunc:
    """A tile program: A comes by hand in halves, each announced on its own, and B in one chunk."""

    def allocate():
        if ready:
            return wl.alloc_barrier([2, 1])
        barriers = wl.mbarrier.alloc(2)
        wl.mbarrier.init(barriers, [2, 1])
        return barriers

    @T.prim_func
    def main(
        A: T.Buffer((64, 64), "float16"), B: T.Buffer((64, 64), "float16"),
        C: T.Buffer((64, 64), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        come = allocate()
        wl.mbarrier.expect(come, 0, 32 * 64 * 2)
        Tx.cta.copy_async(A_s[0:32, :], A[0:32, :], mbar=wl.mbarrier.address(come, 0))
        wl.mbarrier.expect(come, 0, 32 * 64 * 2)
        Tx.cta.copy_async(A_s[32:64, :], A[32:64, :], mbar=wl.mbarrier.address(come, 0))
        wl.mbarrier.expect(come, 1, 64 * 64 * 2)
        Tx.cta.copy_async(B_s, B[:, :], mbar=wl.mbarrier.address(come, 1))
        wl.mbarrier.wait(come, 0, False, ticks=2000)
        wl.mbarrier.wait(come, 1, come.shape[0] == 3)
        Tx.cta.gemm_async(acc, A_s, B_s)
        Tx.cta.copy(C[:, :], acc)

    return main


@pytest.mark.parametrize("ready", [True, False])
def test_tile_programs(ready, rng):
    func = three_loads(ready)
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)
    a, b = (rng.standard_normal((64, 64)).astype("float16") for _ in range(2))
    expected = a.astype("float64") @ b.T.astype("float64")
    poison = np.full((64, 64), np.nan, "float32")
    arguments = [a, b, poison.copy()]
    wl.interpret(func, arguments)
    np.testing.assert_allclose(arguments[2], expected, atol=1e-4)
    for arch in ARCHS:
        *_, after = run(lower(func, arch), [a, b, poison.copy()], arch)
        np.testing.assert_allclose(after, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (0, "arrive_count is 0; it must be a constant, from 1 to 1048575"),
        ([128, 1 << 20], r"arrive_count\[1\] is 1048576; .* to 1048575"),
        ([], r"arrive_count is \[\]; .* one for each mbarrier"),
        ("128", "arrive_count is '128'; it must be a number"),
        (True, "arrive_count is True"),
    ],
)
def test_counts_that_no_mbarrier_has(counts, message):
    with pytest.raises(IllegalCombination, match=message):
        wl.alloc_barrier(counts)


def test_as_many_counts_as_mbarriers():
    barriers = tvm.tirx.decl_buffer((3,), "uint64", "barriers", scope="mbarrier")
    with pytest.raises(IllegalCombination, match="2 numbers, and barriers has 3 mbarriers"):
        wl.mbarrier.init(barriers, [1, 2])
    with pytest.raises(IllegalCombination, match="arrivals is 0; it must be a constant, from 1"):
        wl.mbarrier.init(barriers, 0)


@pytest.mark.parametrize("where", ["loop", "branch"])
def test_all_threads_come_once(where):
    if where == "loop":

        @T.prim_func
        def main(B: T.Buffer((THREADS,), "int32")):
            T.device_entry()
            T.cta_id([1])
            t = T.thread_id([THREADS])
            for _ in T.serial(2):
                full = wl.alloc_barrier(1)
                wl.mbarrier_wait_parity(full, 1)
            B[t] = 0

    else:

        @T.prim_func
        def main(B: T.Buffer((THREADS,), "int32")):
            T.device_entry()
            T.cta_id([1])
            t = T.thread_id([THREADS])
            if t < 64:
                full = wl.alloc_barrier(1)
                wl.mbarrier_wait_parity(full, 1)
            B[t] = 0

    with pytest.raises(Decline, match=r"wl\.alloc_barrier of full .* outside of them"):
        lower(main)
