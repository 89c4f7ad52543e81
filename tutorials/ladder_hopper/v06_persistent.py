# %% [markdown]
# # Hopper GEMM, step 6: a persistent grid, and an order that suits the L2 cache
#
# The grid has as many CTAs as fit on the GPU (here one for each SM), and each computes tile after
# tile. Barriers are initialised once; the ring of stages turns on from tile to tile, so that what
# counts is the number of rounds in all, and not `kt`. The store of a tile leaves shared memory
# while the next tile begins: only before `C_s` is written again, its reader must have finished.
#
# A scheduler decides which tiles a CTA gets: `ClusterPersistentScheduler2D` of TVM walks through
# groups of eight rows of tiles, column after column. The 132 CTAs that run at one time then work
# on 8 rows and 17 columns of tiles; their part of A and B stays in the L2 cache. In plain
# row-major order it would be 4 rows and 32 columns (of 4096 x 4096), half as much again to load.
# `warploom.schedulers` has more of them, for other needs.

# %%
from tvm.backend.cuda.lang.pipeline import PipelineState, TMABar
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


def gemm(m, n, k, ctas=132):
    assert m % BM == 0 and n % BN == 0 and k % BK == 0
    a_layout = mma_shared_layout("float16", SWIZZLE_128B, (STAGES, BM, BK))
    b_layout = mma_shared_layout("float16", SWIZZLE_128B, (STAGES, BN, BK))
    c_layout = mma_shared_layout("float16", SWIZZLE_128B, (BM, BN))
    k_tiles = k // BK

    @T.prim_func
    def kernel(
        A: T.Buffer((m, k), "float16"), B: T.Buffer((n, k), "float16"),
        C: T.Buffer((m, n), "float16"),
    ):  # fmt: skip
        T.device_entry()
        cta = T.cta_id([ctas])
        T.warpgroup_id([1])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        leader: T.bool = T.And(warp == 0, lane == 0)
        pool = T.SMEMPool()
        A_s = pool.alloc((STAGES, BM, BK), "float16", align=1024, layout=a_layout)
        B_s = pool.alloc((STAGES, BN, BK), "float16", align=1024, layout=b_layout)
        C_s = pool.alloc((BM, BN), "float16", align=1024, layout=c_layout)
        full = TMABar(pool, STAGES)
        pool.commit()
        full.init(1)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        acc = T.alloc_buffer((BM, BN), "float32", scope="local", layout=wgmma_accumulator(BM, BN))
        out = T.alloc_buffer((BM, BN), "float16", scope="local", layout=wgmma_accumulator(BM, BN))
        tiles = ClusterPersistentScheduler2D("tiles", m // BM, n // BN, ctas, GROUP)
        row = T.meta_var(tiles.m_idx * BM)
        col = T.meta_var(tiles.n_idx * BN)
        ring = PipelineState(STAGES, 0)

        @T.inline
        def load(kt, stage):
            full.arrive(stage, TILE_BYTES)
            Tx.copy_async(
                A_s[stage, :, :], A[row : row + BM, kt * BK : kt * BK + BK],
                dispatch="tma_auto", mbar=full.ptr_to([stage]),
            )  # fmt: skip
            Tx.copy_async(
                B_s[stage, :, :], B[col : col + BN, kt * BK : kt * BK + BK],
                dispatch="tma_auto", mbar=full.ptr_to([stage]),
            )  # fmt: skip

        tiles.init(cta)
        while tiles.valid():
            if leader:
                for kt in T.serial(min(STAGES, k_tiles)):
                    load(kt, T.truncmod(ring.stage + kt, STAGES))
            for kt in T.serial(k_tiles):
                # solution: as in step 5, but the stage and the parity go on from tile to tile
                full.wait(ring.stage, ring.phase)
                Tx.wg.gemm_async(
                    acc[:, :], A_s[ring.stage, :, :], B_s[ring.stage, :, :],
                    accum=(kt != 0), wait=True,
                )  # fmt: skip
                if T.And(leader, kt + STAGES < k_tiles):
                    load(kt + STAGES, ring.stage)
                ring.advance()
                # end

            Tx.wg.cast(out[:, :], acc[:, :])
            if leader:
                # The store of the last tile has read C_s.
                T.ptx.cp.async_.bulk.wait_group.read(0)
            T.cuda.cta_sync()
            Tx.wg.copy(C_s[:, :], out[:, :], dispatch="ldstmatrix")
            T.ptx.fence.proxy.async_.shared__cta()
            T.cuda.cta_sync()
            if leader:
                Tx.copy_async(C[row : row + BM, col : col + BN], C_s[:, :], dispatch="tma_auto")
                T.ptx.cp.async_.bulk.commit_group()
            tiles.next_tile()
        if leader:
            T.ptx.cp.async_.bulk.wait_group(0)

    return kernel


# %% [markdown]
# The last number of a case is that of CTAs: two of them share six tiles, the ring begins their
# second and third tile at another stage and with another parity.

# %%
CASES = [(BM, BN, 64, 2), (256, 384, 192, 2)]
if __name__ == "__main__":
    check_matmul(gemm, CASES)

# %% [markdown]
# ## Result
#
# **Measured** on an H200 (2026-11-22, `warploom bench ladder`): 441.2 TFLOP/s,
# 0.605 of cuBLAS, for C[4096, 4096] and K = 4096.
#
# ### Why the figure goes down
#
# Slower, by a third: one CTA an SM instead of two, so that nobody multiplies while this one waits
# or stores. What two CTAs did for each other without a word, one CTA must now do by itself:
#
# * in each round the CTA waits for its own MMAs before it asks for the next tiles, and in step 5
#   the other CTA of the SM filled that gap;
# * the epilogue (cast, store to shared memory, two barriers) takes the tensor core away from the SM
#   once a tile; in step 5 the other CTA was likely in its loop then.
#
# The step is taken all the same, for what it makes possible: a kernel whose CTAs stay can give
# its warps different work, and has all of an SM's shared memory. Steps 7 and 8 use both.
