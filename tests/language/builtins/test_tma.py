"""Builtins of bulk copies and of the mbarriers that wait for them, in a CTA and in a cluster."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from tests.language.builtins.vocabulary import ARCHS, compiled, poisoned, report_of
from warploom import language as wl
from warploom.target import Swizzle

ROWS, COLUMNS = 40, 96
BOX = (32, 64)
BYTES = BOX[0] * BOX[1] * 2
THREADS = 128


def boxes(missing: str = "") -> PrimFunc:
    """A box that reaches over two edges, read and written by TMA, with a change in between."""

    @T.prim_func
    def main(a: T.handle, b: T.handle, C: T.Buffer(BOX, "float16")):
        rows = T.int32()
        A = T.match_buffer(a, (rows, COLUMNS), "float16")
        B = T.match_buffer(b, (rows, COLUMNS), "float16")
        source = wl.create_tma_descriptor(A, BOX, oob_fill="nan", l2_promotion="256B")
        target = T.warploom.create_tma_descriptor(B, BOX, l2_promotion="none")
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([THREADS])
        tile = T.alloc_buffer(BOX, "float16", scope="shared")
        full = T.alloc_buffer((2,), "uint64", scope="mbarrier")
        if t == 0:
            wl.mbarrier.init(full, 1)
        if missing != "publish":
            wl.fence_proxy_async()
        wl.sync_threads()
        if t == 0:
            wl.mbarrier_expect_tx(full[1], BYTES)
            wl.tma_load(source, full[1], tile, 16, 48)
            if missing != "arrive":
                wl.mbarrier_arrive(full[1])
        if missing != "wait":
            wl.mbarrier_wait_parity(full[1], 0)
        for i in T.serial(BOX[0] // 2):
            C[2 * i + t // 64, t % 64] = tile[2 * i + t // 64, t % 64]
            tile[2 * i + t // 64, t % 64] = T.cast(i, "float16")
        if missing != "fence":
            wl.fence_proxy_async("shared::cta")
        wl.sync_threads()
        if t == 0:
            T.ptx["cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"](
                T.address_of(target), 48, 16, tile.ptr_to([0, 0])
            )
            if missing != "commit":
                wl.tma_store_arrive()
            if missing != "stored":
                wl.tma_store_wait()
        wl.sync_threads()
        if t < BOX[1]:
            tile[0, t] = T.float16(7)
        if t == 0:
            wl.tma_store_wait(0, read=False)

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_tma(arch, rng):
    kernel = compiled(boxes, arch)
    assert kernel.has(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64", "mbarrier.arrive.shared.b64",
        "mbarrier.try_wait.parity", "fence.proxy.async;", "fence.proxy.async.shared::cta;",
        "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read 0;",
        "cp.async.bulk.wait_group 0;",
    )  # fmt: skip
    a = rng.standard_normal((ROWS, COLUMNS)).astype("float16")
    before = poisoned((ROWS, COLUMNS), "float16")
    _, b, c = kernel.run(a, before, poisoned(BOX, "float16"))
    expected = np.full(BOX, np.nan, "float16")
    expected[: ROWS - 16, : COLUMNS - 48] = a[16:, 48:]
    np.testing.assert_array_equal(c, expected)
    stored = before.copy()
    stored[16:, 48:] = (np.arange(ROWS - 16) // 2)[:, None]
    np.testing.assert_array_equal(b.view(np.uint16), stored.view(np.uint16))


def test_a_wait_for_stores_is_for_their_reads_alone_by_default():
    assert "read" in map(str, _words(wl.tma_store_wait(1)))
    assert "read" not in map(str, _words(wl.tma_store_wait(1, read=False)))


def _words(call) -> list:
    return [getattr(one, "value", one) for one in call.args]


#: What a kernel lacks, and what the checker says then.
MISSING = {
    "publish": "mbarrier",
    "arrive": "deadlock",
    "wait": "uninitialised read",
    "fence": "fence.proxy.async",
    "commit": "data race",
    "stored": "data race",
}


@pytest.mark.parametrize("missing", MISSING)
def test_the_checker_sees_what_is_missing(missing, rng):
    a = rng.standard_normal((ROWS, COLUMNS)).astype("float16")
    arrays = a, poisoned((ROWS, COLUMNS), "float16"), poisoned(BOX, "float16")
    assert MISSING[missing] in report_of(boxes(missing), *arrays)


def boxes_of(mode: int) -> tuple[tuple[int, ...], ...]:
    """Tensor, box, first element and element strides for a swizzle: each of another rank."""
    rank = mode + 1
    shape, box = (3, 4, 6, 64)[-rank:], (2, 3, 4, 8 << mode if mode else 64)[-rank:]
    strides = [(1,), (2, 1), (1, 3, 1), (1, 1, 1, 1)][mode]
    return shape, box, (1,) * mode + (56,), strides


def swizzled(mode: int) -> PrimFunc:
    """A box as it lies in shared memory."""
    shape, box, first, strides = boxes_of(mode)
    size = math.prod(-(-extent // step) for extent, step in zip(box, strides, strict=True))

    @T.prim_func
    def main(A: T.Buffer(shape, "bfloat16"), B: T.Buffer((size,), "bfloat16")):
        source = wl.create_tma_descriptor(A, box, swizzle=mode, element_strides=strides)
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([32])
        tile = T.alloc_buffer((size,), "bfloat16", scope="shared")
        here = wl.mbarrier.alloc()
        if t == 0:
            wl.mbarrier.init(here, 1)
        wl.fence_proxy_async()
        wl.sync_threads()
        if t == 0:
            wl.mbarrier_expect_tx(here, size * 2)
            wl.tma_load(source, here, tile[0], *first)
            wl.barrier_arrive(here)
        wl.barrier_wait(here, 0)
        for i in T.serial(size // 32):
            B[i * 32 + t] = tile[i * 32 + t]

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_descriptors_of_each_rank_and_swizzle(mode, rng):
    shape, box, first, strides = boxes_of(mode)
    kernel = compiled(swizzled, "sm_90a", mode)
    assert kernel.has(f"cp.async.bulk.tensor.{mode + 1}d.shared::cluster.global")
    values = rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    padded = np.pad(values, [(0, extent) for extent in box])
    ends = zip(first, box, strides, strict=True)
    linear = padded[tuple(slice(f, f + e, step) for f, e, step in ends)].ravel()
    _, after = kernel.run(values, poisoned(linear.size, "bfloat16"))
    swizzle = Swizzle.from_bits(mode)
    expected = [swizzle.apply(2 * i) // 2 for i in range(linear.size)]
    np.testing.assert_array_equal(after[expected].view(np.uint16), linear.view(np.uint16))


CLUSTER = 4


def clusters(missing: str = "") -> PrimFunc:
    """Each CTA loads a quarter for all of the cluster, and says in each when it is ready for it."""

    @T.prim_func
    def main(
        A: T.Buffer((CLUSTER * 8, 64), "float16"),
        B: T.Buffer((CLUSTER, CLUSTER * 8, 64), "float16"),
    ):
        source = wl.create_tma_descriptor(A, (8, 64))
        T.device_entry()
        rank = T.cta_id_in_cluster([CLUSTER])
        T.cta_id([CLUSTER])
        t = T.thread_id([64])
        tile = T.alloc_buffer((CLUSTER * 8, 64), "float16", scope="shared")
        full, ready = wl.mbarrier.alloc(), wl.mbarrier.alloc()
        if t == 0:
            wl.mbarrier.init(full, 1)
            wl.mbarrier.init(ready, CLUSTER)
        wl.fence_proxy_async()
        T.cuda.cluster_sync()
        if t == 0:
            wl.mbarrier_expect_tx(full, CLUSTER * 8 * 64 * 2)
            wl.mbarrier_arrive(full)
        wl.sync_threads()
        if missing != "remote" and t < CLUSTER:
            if t % 2 == 0:
                wl.ptx_arrive_cluster_barrier(ready, t)
            else:
                wl.mbarrier_arrive(ready, cta_id=t)
        if t == 0:
            wl.mbarrier_wait_parity(ready, 0)
            wl.tma_load(source, full, tile[rank * 8, 0], rank * 8, 0, cta_mask=(1 << CLUSTER) - 1)
        wl.mbarrier_wait_parity(full, 0)
        for i in T.serial(CLUSTER * 8):
            B[rank, i, t] = tile[i, t]
        T.cuda.cluster_sync()

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_arrivals_in_a_cluster(arch, rng):
    kernel = compiled(clusters, arch)
    assert kernel.has(
        "mapa.shared::cluster.u32", "mbarrier.arrive.release.cluster.shared::cluster.b64",
        "mbarrier::complete_tx::bytes.multicast::cluster",
    )  # fmt: skip
    a = rng.standard_normal((CLUSTER * 8, 64)).astype("float16")
    _, b = kernel.run(a, poisoned((CLUSTER, CLUSTER * 8, 64), "float16"))
    np.testing.assert_array_equal(b, np.broadcast_to(a, b.shape))


def test_the_checker_sees_arrivals_that_are_missing(rng):
    a = rng.standard_normal((CLUSTER * 8, 64)).astype("float16")
    report = report_of(clusters("remote"), a, poisoned((CLUSTER, CLUSTER * 8, 64), "float16"))
    assert "deadlock" in report
