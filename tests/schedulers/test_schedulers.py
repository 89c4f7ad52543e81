"""Schedulers and pipeline objects for kernels by hand, executed on Hopper and on Blackwell."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import emulator
from warploom import schedulers as ws
from warploom.emulator import EmulatorError
from warploom.errors import IllegalCombination
from warploom.schedulers import limits

ARCHS = ("sm_90a", "sm_100a")
slow = pytest.mark.slow
both = pytest.mark.parametrize("arch", ARCHS)
pytestmark = pytest.mark.gpu


def run(kernel, arrays, arch, **options):
    return emulator.run(kernel, arrays, arch=arch, **options).outputs


def raster(m_tiles: int, n_tiles: int, group: int) -> list[tuple[int, int]]:
    """The order of tiles in groups of rows, written down independently."""
    order = []
    for first in range(0, m_tiles, group):
        rows = range(first, min(first + group, m_tiles))
        order += [(m, n) for n in range(n_tiles) for m in rows]
    return order


# --- A fixed grid that takes turns (TVM's) ---


def persistent(m_tiles, n_tiles, ctas, group):
    """Writes which CTA has computed a tile, and as which of its tiles."""

    @T.prim_func
    def kernel(out: T.Buffer((m_tiles, n_tiles, 2), "int32")):
        T.device_entry()
        cta = T.cta_id([ctas])
        thread = T.thread_id([32])
        turn: T.int32 = 0
        tiles = ws.ClusterPersistentScheduler2D("tiles", m_tiles, n_tiles, ctas, group)
        tiles.init(cta)
        while tiles.valid():
            if thread == 0:
                out[tiles.m_idx, tiles.n_idx, 0] = out[tiles.m_idx, tiles.n_idx, 0] + cta + 1
                out[tiles.m_idx, tiles.n_idx, 1] = turn
            turn = turn + 1
            tiles.next_tile()

    return kernel


@both
@pytest.mark.parametrize("sizes", [(7, 3, 4, 2), pytest.param((3, 5, 2, 8), marks=slow)])
def test_a_persistent_grid_takes_turns(arch, sizes):
    m_tiles, n_tiles, ctas, group = sizes
    (found,) = run(persistent(*sizes), [np.zeros((m_tiles, n_tiles, 2), np.int32)], arch)
    for number, (m, n) in enumerate(raster(m_tiles, n_tiles, group)):
        assert found[m, n].tolist() == [number % ctas + 1, number // ctas]


# --- Several GEMMs of different sizes ---


def grouped(groups, total, n_tiles, ctas, tile_m):
    @T.prim_func
    def kernel(
        offsets: T.Buffer((groups + 1,), "int32"), out: T.Buffer((total, n_tiles, 3), "int32")
    ):
        T.device_entry()
        cta = T.cta_id([ctas])
        thread = T.thread_id([32])
        tiles = ws.GroupedScheduler(offsets, groups, tile_m, n_tiles, ctas)
        tiles.init(cta)
        while tiles.valid():
            if T.And(thread < tile_m, tiles.row + thread < tiles.row_end):
                row = T.meta_var(tiles.row + thread)
                out[row, tiles.n_idx, 0] = out[row, tiles.n_idx, 0] + 1
                out[row, tiles.n_idx, 1] = tiles.group_idx
                out[row, tiles.n_idx, 2] = tiles.m_idx
            tiles.next_tile()

    return kernel


@both
def test_groups_of_any_size_are_covered_once(arch, rng):
    tile_m, n_tiles, groups, total = 16, 3, 5, 90
    kernel = grouped(groups, total, n_tiles, 4, tile_m)
    # Where one group ends and the next begins; equal numbers make empty groups.
    random = [rng.integers(0, total + 1, groups - 1) for _ in range(4)]
    for cuts in ([0, 0, 32, 33], [total] * 4, *random):
        offsets = np.array([0, *np.sort(cuts), total], np.int32)
        print("offsets", offsets)
        out = run(kernel, [offsets, np.zeros((total, n_tiles, 3), np.int32)], arch)[1]
        assert (out[..., 0] == 1).all()
        expected = [
            (group, row // tile_m)
            for group, rows in enumerate(np.diff(offsets))
            for row in range(rows)
        ]
        for n in range(n_tiles):
            assert list(map(tuple, out[:, n, 1:].tolist())) == expected


# --- Stream-K ---


def stream_k(m_tiles, n_tiles, k_tiles, ctas, group):
    """Counts the visits of each step; and what CTAs say of the first and last steps."""

    @T.prim_func
    def kernel(
        steps: T.Buffer((m_tiles, n_tiles, k_tiles, 2), "int32"),
        ends: T.Buffer((m_tiles, n_tiles, 2), "int32"),
        counts: T.Buffer((ctas,), "int32"),
    ):
        T.device_entry()
        cta = T.cta_id([ctas])
        thread = T.thread_id([32])
        tiles = ws.StreamKScheduler(m_tiles, n_tiles, k_tiles, ctas, group)
        tiles.init(cta)
        if thread == 0:
            while tiles.valid():
                m, n = T.meta_var((tiles.m_idx, tiles.n_idx))
                for k in T.serial(tiles.k_end - tiles.k_begin):
                    at = T.meta_var(tiles.k_begin + k)
                    steps[m, n, at, 0] = steps[m, n, at, 0] + 1
                    steps[m, n, at, 1] = cta
                if tiles.begins:
                    ends[m, n, 0] = ends[m, n, 0] + 1
                if tiles.ends:
                    ends[m, n, 1] = ends[m, n, 1] + 1
                counts[cta] = counts[cta] + tiles.k_end - tiles.k_begin
                tiles.next_tile()

    return kernel


@both
@pytest.mark.parametrize(
    "sizes",
    [
        (3, 3, 5, 4, 2),
        (1, 1, 7, 3, 8),
        pytest.param((2, 1, 1, 4, 8), marks=slow),
        pytest.param((2, 2, 3, 2, 1), marks=slow),
    ],
)
def test_stream_k_covers_all_steps_evenly(arch, sizes):
    m_tiles, n_tiles, k_tiles, ctas, group = sizes
    arrays = [
        np.zeros((m_tiles, n_tiles, k_tiles, 2), np.int32),
        np.zeros((m_tiles, n_tiles, 2), np.int32),
        np.zeros(ctas, np.int32),
    ]
    steps, ends, counts = run(stream_k(*sizes), arrays, arch)
    assert (steps[..., 0] == 1).all() and (ends == 1).all()
    whole = m_tiles * n_tiles // ctas * ctas
    assert counts.max() - counts.min() <= 1, "the work is even"
    for number, (m, n) in enumerate(raster(m_tiles, n_tiles, group)):
        owners = steps[m, n, :, 1]
        assert (np.diff(owners) >= 0).all(), "ranges of steps are contiguous"
        if number < whole:
            assert (owners == number % ctas).all()


# --- Tiles from a counter ---


def counted(m_tiles, n_tiles, ctas, readers=3):
    """Two warps and a thread read the tiles that another thread draws; one of them is slow."""

    @T.prim_func
    def kernel(
        counter: T.Buffer((1,), "int32"), out: T.Buffer((3, m_tiles, n_tiles), "int32")
    ):
        T.device_entry()
        cta = T.cta_id([ctas])
        warp = T.warp_id([4])
        lane = T.lane_id([32])
        pool = T.SMEMPool()
        tiles = ws.TileCounterScheduler(
            pool, counter, m_tiles, n_tiles, ctas, readers, l2_group_size=2
        )
        pool.commit()
        tiles.init()
        T.cuda.cta_sync()
        mine = tiles.worker()
        mine.init(cta)
        if warp == 3:
            if lane == 0:
                tiles.run()
        elif warp == 2:
            if lane == 0:
                while mine.valid():
                    out[2, mine.m_idx, mine.n_idx] = out[2, mine.m_idx, mine.n_idx] + cta + 1
                    mine.next_tile()
        else:
            while mine.valid():
                if lane == 31:
                    out[warp, mine.m_idx, mine.n_idx] = out[warp, mine.m_idx, mine.n_idx] + cta + 1
                mine.next_tile(lane == 0)

    return kernel


@both
@pytest.mark.parametrize("sizes", [(5, 3, 4), pytest.param((1, 2, 4), marks=slow)])
def test_a_counter_hands_every_tile_to_one_cta(arch, sizes):
    m_tiles, n_tiles, ctas = sizes
    arrays = [np.zeros(1, np.int32), np.zeros((3, m_tiles, n_tiles), np.int32)]
    for seed in (1, 2):
        counter, out = run(counted(*sizes), arrays, arch, seed=seed)
        assert counter[0] == 0, "ready for the next launch"
        # All roles agree, and a tile that two CTAs have computed would show a sum.
        assert (out == out[0]).all() and out.min() >= 1 and out.max() <= ctas
        for number, (m, n) in enumerate(raster(m_tiles, n_tiles, 2)[:ctas]):
            assert out[0, m, n] == number + 1, "the first tile is that of the CTA's number"


def test_a_slot_that_is_freed_too_early_is_reported():
    """The rule of ``readers``: one arrival of each role that reads."""
    arrays = [np.zeros(1, np.int32), np.zeros((3, 5, 3), np.int32)]
    with pytest.raises(EmulatorError, match=r"data race|lapped|arrivals are pending|deadlock"):
        emulator.explore(counted(5, 3, 2, readers=1), arrays, 8, arch="sm_90a")


# --- Cluster launch control (TVM's; Blackwell only) ---


def cancelled(m_tiles, n_tiles, group):
    """A scheduling warp, and a warp that reads what it got."""

    @T.prim_func
    def kernel(out: T.Buffer((m_tiles, n_tiles), "int32")):
        T.device_entry()
        cta = T.cta_id([m_tiles * n_tiles])
        warp = T.warp_id([4])
        T.lane_id([32])
        pool = T.SMEMPool()
        tiles = ws.ClusterLaunchControlScheduler(pool, m_tiles, n_tiles, group, 1, 2)
        pool.commit()
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        mine = tiles.worker("mine")
        if warp == 0:
            tiles.run_scheduler(0)
        elif warp == 1 and T.cuda.elect_sync() != T.uint32(0):
            mine.init(cta)
            while mine.valid():
                out[mine.m_idx, mine.n_idx] = out[mine.m_idx, mine.n_idx] + 1
                mine.consume()
                mine.advance_coords()
                mine.mark_done_if_drained()
        T.cuda.cta_sync()

    return kernel


def test_cancelled_ctas_leave_their_tiles_to_others():
    (out,) = run(cancelled(20, 9, 4), [np.zeros((20, 9), np.int32)], "sm_100a")
    assert (out == 1).all()


# --- Rings of barriers, and barriers of another CTA ---


def ring(tiles, stages, full, pair=False):
    """One thread loads tiles by TMA, a warpgroup adds them up; with ``pair``, for two CTAs."""
    layout = mma_shared_layout("float16", 3, (stages, 64, 64))
    ctas = 2 if pair else 1

    @T.prim_func
    def kernel(
        A: T.Buffer((tiles * 64, 64), "float16"), B: T.Buffer((ctas, 64, 64), "float32")
    ):
        T.device_entry()
        rank = T.cta_id_in_cluster([ctas])
        T.cta_id([ctas])
        wg = T.warpgroup_id([2])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        pool = T.SMEMPool()
        A_s = pool.alloc((stages, 64, 64), "float16", align=1024, layout=layout)
        pipe = ws.Pipeline(pool, stages, full=full, empty="mbar", init_empty=ctas)
        pool.commit()
        T.ptx.fence.mbarrier_init.release.cluster()
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cluster_sync()
        if wg == 0:
            if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                at = ws.PipelineState(stages, 1)
                for tile in T.serial(tiles):
                    pipe.empty.wait(at.stage, at.phase)
                    pipe.full.arrive(at.stage, 64 * 64 * 2)
                    if pair:
                        half = T.meta_var(rank * 32)
                        Tx.copy_async(
                            A_s[at.stage, half : half + 32, :],
                            A[tile * 64 + half : tile * 64 + half + 32, :],
                            dispatch="tma_auto", mbar=pipe.full.ptr_to([at.stage]), cta_mask=3,
                        )  # fmt: skip
                    else:
                        Tx.copy_async(
                            A_s[at.stage, :, :], A[tile * 64 : tile * 64 + 64, :],
                            dispatch="tma_auto", mbar=pipe.full.ptr_to([at.stage]),
                        )  # fmt: skip
                    at.advance()
        else:
            thread = T.meta_var(warp * 32 + lane)
            freed = T.meta_var(pipe.empty.remote_view(lane % ctas))
            at = ws.PipelineState(stages, 0)
            total = T.alloc_buffer((32,), "float32", scope="local")
            for i in T.unroll(32):
                total[i] = T.float32(0)
            for _ in T.serial(tiles):
                pipe.full.wait(at.stage, at.phase)
                for i in T.unroll(32):
                    total[i] = total[i] + T.cast(
                        A_s[at.stage, thread // 2, thread % 2 * 32 + i], "float32"
                    )
                T.cuda.warpgroup_sync(1)
                if T.And(warp == 0, lane < ctas):
                    freed.arrive(at.stage)
                at.advance()
            for i in T.unroll(32):
                B[rank, thread // 2, thread % 2 * 32 + i] = total[i]
        T.cuda.cluster_sync()

    return kernel


@both
@pytest.mark.parametrize("pair", [False, True], ids=["own barriers", "barriers of both CTAs"])
def test_a_ring_of_stages(arch, pair, rng):
    a = rng.integers(-4, 5, (5 * 64, 64)).astype(np.float16)
    b = np.full((1 + pair, 64, 64), np.nan, np.float32)
    out = run(ring(5, 2, "tma", pair), [a, b], arch)[1]
    expected = a.reshape(5, 64, 64).astype(np.float32).sum(axis=0)
    np.testing.assert_array_equal(out, np.broadcast_to(expected, out.shape))


@pytest.mark.parametrize(
    "make",
    [
        lambda: limits.require_positive("StreamKScheduler", num_ctas=0),
        lambda: ws.StreamKScheduler(3, 3, 0, 4),
        lambda: ws.GroupedScheduler(None, 2, 16, -1, 4),
        lambda: ws.TileCounterScheduler(None, None, 1, 1, 1, readers=0),
    ],
)
def test_sizes_below_one_are_refused(make):
    with pytest.raises(IllegalCombination, match=r"Scheduler: \w+ = -?\d; it must be at least 1"):
        make()
