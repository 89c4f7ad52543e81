# %% [markdown]
# # Hopper GEMM, step 7: warps with roles
#
# A *producer* warpgroup, of which one thread works, requests tiles; a *consumer* warpgroup
# multiplies and stores. Neither waits for the other but through the ring of stages:
#
# * `full` (as before): the producer's arrival and the bytes that TMA brings;
# * `empty`: one arrival, of the consumer, once its MMAs have read the stage. The producer
#   waits for it before it asks for the next tiles in that stage.
#
# The ring starts empty: the producer's `PipelineState` begins with parity 1, for which a fresh
# barrier does not wait. Both roles walk through the same tiles, and need no barrier for that.
#
# The producer runs ahead as far as there are stages, also into the next tile: loads of the next
# tile are under way while the consumer stores this one. In the epilogue only the consumer's 128
# threads meet (a named barrier).
#
# `warploom profile tutorials/ladder_hopper/v07_warp_specialised.py:gemm 4096 4096 4096` draws both
# roles over time (`tutorials/08_timeline.py` reads such pictures).

# %%
from tvm.backend.cuda.lang.pipeline import MBarrier, PipelineState, TMABar
from tvm.backend.cuda.lang.tile_scheduler import ClusterPersistentScheduler2D
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.layout.fragment import wgmma_accumulator
from warploom.tutorials import check_matmul

BM, BN, BK = 128, 128, 64
STAGES = 2
GROUP = 8
TILE_BYTES = (BM + BN) * BK * 2
SWIZZLE_128B = 3
CONSUMER_BARRIER = 1


def gemm(m, n, k, ctas=132):
    assert m % BM == 0 and n % BN == 0 and k % BK == 0
    a_layout = mma_shared_layout("float16", SWIZZLE_128B, (STAGES, BM, BK))
    b_layout = mma_shared_layout("float16", SWIZZLE_128B, (STAGES, BN, BK))
    c_layout = mma_shared_layout("float16", SWIZZLE_128B, (BM, BN))

    @T.prim_func
    def kernel(
        A: T.Buffer((m, k), "float16"), B: T.Buffer((n, k), "float16"),
        C: T.Buffer((m, n), "float16"),
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
        C_s = pool.alloc((BM, BN), "float16", align=1024, layout=c_layout)
        full = TMABar(pool, STAGES)
        empty = MBarrier(pool, STAGES)
        pool.commit()
        full.init(1)
        empty.init(1)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        tiles = ClusterPersistentScheduler2D("tiles", m // BM, n // BN, ctas, GROUP)
        row = T.meta_var(tiles.m_idx * BM)
        col = T.meta_var(tiles.n_idx * BN)
        tiles.init(cta)

        if wg == 0:
            if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                ring = PipelineState(STAGES, 1)
                while tiles.valid():
                    for kt in T.serial(k // BK):
                        # solution: the producer: wait until the stage is empty, announce its
                        #   bytes, start both copies, advance
                        empty.wait(ring.stage, ring.phase)
                        full.arrive(ring.stage, TILE_BYTES)
                        Tx.copy_async(
                            A_s[ring.stage, :, :], A[row : row + BM, kt * BK : kt * BK + BK],
                            dispatch="tma_auto", mbar=full.ptr_to([ring.stage]),
                        )  # fmt: skip
                        Tx.copy_async(
                            B_s[ring.stage, :, :], B[col : col + BN, kt * BK : kt * BK + BK],
                            dispatch="tma_auto", mbar=full.ptr_to([ring.stage]),
                        )  # fmt: skip
                        ring.advance()
                        # end
                    tiles.next_tile()
        else:
            leader: T.bool = T.And(warp == 0, lane == 0)
            acc = T.alloc_buffer(
                (BM, BN), "float32", scope="local", layout=wgmma_accumulator(BM, BN)
            )
            out = T.alloc_buffer(
                (BM, BN), "float16", scope="local", layout=wgmma_accumulator(BM, BN)
            )
            ring = PipelineState(STAGES, 0)
            while tiles.valid():
                for kt in T.serial(k // BK):
                    # solution: the consumer: wait until the stage is full, multiply, release the
                    #   stage, advance
                    full.wait(ring.stage, ring.phase)
                    Tx.wg.gemm_async(
                        acc[:, :], A_s[ring.stage, :, :], B_s[ring.stage, :, :],
                        accum=(kt != 0), wait=True,
                    )  # fmt: skip
                    # One arrival is enough, since the MMAs were those of the warpgroup.
                    if leader:
                        empty.arrive(ring.stage)
                    ring.advance()
                    # end

                Tx.wg.cast(out[:, :], acc[:, :])
                if leader:
                    T.ptx.cp.async_.bulk.wait_group.read(0)
                T.cuda.warpgroup_sync(CONSUMER_BARRIER)
                Tx.wg.copy(C_s[:, :], out[:, :], dispatch="ldstmatrix")
                T.ptx.fence.proxy.async_.shared__cta()
                T.cuda.warpgroup_sync(CONSUMER_BARRIER)
                if leader:
                    Tx.copy_async(
                        C[row : row + BM, col : col + BN], C_s[:, :], dispatch="tma_auto"
                    )
                    T.ptx.cp.async_.bulk.commit_group()
                tiles.next_tile()
            if leader:
                T.ptx.cp.async_.bulk.wait_group(0)

    return kernel


# %%
CASES = [(BM, BN, 64, 2), (256, 384, 192, 2)]
if __name__ == "__main__":
    check_matmul(gemm, CASES)

# %% [markdown]
# ## Result
#
# **Measured** on an H200 (2026-11-22, `warploom bench ladder`): 453.0 TFLOP/s,
# 0.621 of cuBLAS, for C[4096, 4096] and K = 4096.
#
# ### Why the figure is still below that of step 5
#
# Roles by themselves bring little. Loads never wait for MMAs of their own round any more, and run
# on while a tile is stored. Two things are left:
#
# * with two stages at most one tile is on its way while the other is multiplied, and a trip to
#   memory takes longer than the MMAs of a tile: the consumer waits for `full` in every round;
# * the consumer waits for its MMAs to finish before it releases the stage, so that the tensor core
#   is idle from one round to the next.
#
# A timeline shows both: the consumer's waits, and the producer that waits all the time. The next
# step changes two numbers, and gains half as much again.
