# %% [markdown]
# # Hopper GEMM, step 2: a loop over K
#
# The kernel of step 1 for any K that is a multiple of 64: the accumulator stays in registers while
# tiles of A and B pass through shared memory. Two things are new.
#
# * `accum=(k != 0)`: the first MMA overwrites the accumulator, which so needs no clearing;
#   the others add to it.
# * The tiles are overwritten in the next round, and no barrier is needed before that: wgmma is an
#   operation of the whole warpgroup. When the wait for it returns in one warp, the tiles have been
#   read for all four.

# %%
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.layout.fragment import wgmma_accumulator
from warploom.tutorials import check_matmul

BM, BN, BK = 128, 128, 64
SWIZZLE_128B = 3


def gemm(m, n, k):
    assert (m, n) == (BM, BN) and k % BK == 0
    a_layout = mma_shared_layout("float16", SWIZZLE_128B, (BM, BK))
    b_layout = mma_shared_layout("float16", SWIZZLE_128B, (BN, BK))

    @T.prim_func
    def kernel(
        A: T.Buffer((m, k), "float16"), B: T.Buffer((n, k), "float16"),
        C: T.Buffer((m, n), "float16"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        T.thread_id_in_wg([128])
        pool = T.SMEMPool()
        A_s = pool.alloc((BM, BK), "float16", align=1024, layout=a_layout)
        B_s = pool.alloc((BN, BK), "float16", align=1024, layout=b_layout)
        pool.commit()
        acc = T.alloc_buffer((BM, BN), "float32", scope="local", layout=wgmma_accumulator(BM, BN))
        out = T.alloc_buffer((BM, BN), "float16", scope="local", layout=wgmma_accumulator(BM, BN))

        for kt in T.serial(k // BK):
            # solution: for each tile of K: copy A and B, meet, fence, multiply; the first MMA does
            #   not accumulate
            Tx.cta.copy(A_s[:, :], A[:, kt * BK : kt * BK + BK])
            Tx.cta.copy(B_s[:, :], B[:, kt * BK : kt * BK + BK])
            T.ptx.fence.proxy.async_.shared__cta()
            T.cuda.cta_sync()
            Tx.wg.gemm_async(acc[:, :], A_s[:, :], B_s[:, :], accum=(kt != 0), wait=True)
            # end
        Tx.wg.cast(out[:, :], acc[:, :])
        Tx.wg.copy(C[:, :], out[:, :])

    return kernel


# %%
CASES = [(BM, BN, 64), (BM, BN, 320)]
if __name__ == "__main__":
    check_matmul(gemm, CASES)

# %% [markdown]
# ## Result
#
# **Measured** on an H200 (2026-11-22, `warploom bench ladder`): 1.71 TFLOP/s,
# 0.074 of cuBLAS, for C[128, 128] and K = 4096.
#
# The launch and the stores are now shared by many MMAs, so that the rate of one SM shows: a
# round waits for global memory, then multiplies, then waits again. One SM of 132 works; cuBLAS
# splits K among many.
