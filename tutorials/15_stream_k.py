# %% [markdown]
# # Schedulers: a stream-K GEMM by hand
#
#     python tutorials/15_stream_k.py
#
# **Time:** 20 minutes.
#
# A persistent grid has as many CTAs as the GPU has SMs, and seldom a multiple of that many tiles:
# in the last wave some CTAs have nothing to do. With 9 tiles of 128 x 128 and 132 SMs, 123 of them
# never work. *Stream-K* cuts the tiles that are left over along K, and deals their steps out
# evenly. `warploom.schedulers` has the bookkeeping; this kernel is that of
# `ladder_hopper/v08_four_stages.py` with another scheduler, and an epilogue that adds.

# %%
import numpy as np
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import emulator
from warploom.layout.fragment import wgmma_accumulator
from warploom.schedulers import MBarrier, PipelineState, StreamKScheduler, TMABar

emulator.enable_without_gpu()
BM, BN, BK = 128, 128, 64
STAGES = 3
TILE_BYTES = (BM + BN) * BK * 2
SWIZZLE_128B = 3

# %% [markdown]
# ## The kernel
#
# The scheduler hands out *segments*: a tile `(m_idx, n_idx)` and its steps from `k_begin` to
# `k_end`. Both roles have a scheduler of their own, and walk through the same segments.
#
# Who has all steps of a tile stores it. Who has some of them adds what he has to C, in memory: TMA
# can do that (`use_tma_reduce="add"`), element by element and without a lock. C is float32 then,
# and zero before the launch. The order of the additions varies, and with it the last bits.


# %%
def gemm(m, n, k, ctas=132):
    a_layout = mma_shared_layout("float16", SWIZZLE_128B, (STAGES, BM, BK))
    b_layout = mma_shared_layout("float16", SWIZZLE_128B, (STAGES, BN, BK))
    c_layout = mma_shared_layout("float32", SWIZZLE_128B, (BM, BN))

    @T.prim_func
    def kernel(
        A: T.Buffer((m, k), "float16"), B: T.Buffer((n, k), "float16"),
        C: T.Buffer((m, n), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        cta = T.cta_id([ctas])
        wg = T.warpgroup_id([2])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        pool = T.SMEMPool()
        A_s = pool.alloc((STAGES, BM, BK), "float16", align=1024, layout=a_layout)
        B_s = pool.alloc((STAGES, BN, BK), "float16", align=1024, layout=b_layout)
        C_s = pool.alloc((BM, BN), "float32", align=1024, layout=c_layout)
        full = TMABar(pool, STAGES)
        empty = MBarrier(pool, STAGES)
        pool.commit()
        full.init(1)
        empty.init(1)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        tiles = StreamKScheduler(m // BM, n // BN, k // BK, ctas)
        row = T.meta_var(tiles.m_idx * BM)
        col = T.meta_var(tiles.n_idx * BN)
        tiles.init(cta)

        if wg == 0:
            if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                ring = PipelineState(STAGES, 1)
                while tiles.valid():
                    for step in T.serial(tiles.k_end - tiles.k_begin):
                        at = T.meta_var((tiles.k_begin + step) * BK)
                        empty.wait(ring.stage, ring.phase)
                        full.arrive(ring.stage, TILE_BYTES)
                        Tx.copy_async(
                            A_s[ring.stage, :, :], A[row : row + BM, at : at + BK],
                            dispatch="tma_auto", mbar=full.ptr_to([ring.stage]),
                        )  # fmt: skip
                        Tx.copy_async(
                            B_s[ring.stage, :, :], B[col : col + BN, at : at + BK],
                            dispatch="tma_auto", mbar=full.ptr_to([ring.stage]),
                        )  # fmt: skip
                        ring.advance()
                    tiles.next_tile()
        else:
            leader: T.bool = T.And(warp == 0, lane == 0)
            acc = T.alloc_buffer(
                (BM, BN), "float32", scope="local", layout=wgmma_accumulator(BM, BN)
            )
            ring = PipelineState(STAGES, 0)
            last: T.int32 = 0
            while tiles.valid():
                for step in T.serial(tiles.k_end - tiles.k_begin):
                    full.wait(ring.stage, ring.phase)
                    T.ptx.wgmma.fence.sync.aligned()
                    Tx.wg.gemm_async(
                        acc[:, :], A_s[ring.stage, :, :], B_s[ring.stage, :, :], accum=(step != 0)
                    )
                    T.ptx.wgmma.commit_group.sync.aligned()
                    T.ptx.wgmma.wait_group.sync.aligned(1)
                    if T.And(leader, step > 0):
                        empty.arrive(last)
                    last = ring.stage
                    ring.advance()
                T.ptx.wgmma.wait_group.sync.aligned(0)
                if leader:
                    empty.arrive(last)
                    T.ptx.cp.async_.bulk.wait_group.read(0)
                T.cuda.warpgroup_sync(1)
                Tx.wg.copy(C_s[:, :], acc[:, :])
                T.ptx.fence.proxy.async_.shared__cta()
                T.cuda.warpgroup_sync(1)
                if leader:
                    if T.And(tiles.begins, tiles.ends):
                        Tx.copy_async(
                            C[row : row + BM, col : col + BN], C_s[:, :], dispatch="tma_auto"
                        )
                    else:
                        Tx.copy_async(
                            C[row : row + BM, col : col + BN], C_s[:, :], dispatch="tma_auto",
                            use_tma_reduce="add",
                        )  # fmt: skip
                    T.ptx.cp.async_.bulk.commit_group()
                tiles.next_tile()
            if leader:
                T.ptx.cp.async_.bulk.wait_group(0)

    return kernel


# %% [markdown]
# ## Run it
#
# Three tiles of five steps for two CTAs: one whole tile each, and two or three of the five steps
# that are left. With four CTAs none is whole.

# %%
M, N, K = 384, 128, 320
rng = np.random.default_rng(0)
a, b = (rng.standard_normal((rows, K)).astype(np.float16) for rows in (M, N))
expected = a.astype(np.float64) @ b.astype(np.float64).T
for ctas in (2, 4):
    arrays = [a, b, np.zeros((M, N), np.float32)]
    c = emulator.run(gemm(M, N, K, ctas), arrays).outputs[-1]
    print(f"{ctas} CTAs: largest error {np.abs(c - expected).max():.1e}")
    assert np.abs(c - expected).max() < 1e-3

# %% [markdown]
# ## When is it worth it?
#
# Where few tiles are left over for many SMs, and K is long. Adding costs a trip to memory for each
# part of a tile. In tile programs `wl.hints(stream_k=True)` does the same, through a workspace.
#
# The other schedulers are used alike: `GroupedScheduler` for GEMMs of different M, such as the
# experts of a model, and `TileCounterScheduler` where tiles differ in cost.
