# %% [markdown]
# # Blackwell GEMM, step 2: a loop over K
#
# The accumulator stays in tensor memory while tiles of A and B pass through shared memory. The
# first MMA overwrites it (`accum=False`), the others add to it.
#
# `done` completes once in a round, so that its phase flips each time: round `kt` waits for parity
# `kt % 2`. All threads wait, because all of them overwrite the tiles in the next round. (On
# Hopper the wait of one warp for its MMAs was enough. Here one thread issues them, and the
# others only learn from the barrier.)

# %%
from tvm.backend.cuda.lang.pipeline import TCGen05Bar
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import tcgen05_atom_layout

from warploom.kernels.tensor_memory import TensorMemory
from warploom.layout.tensor_memory import plan_columns
from warploom.tutorials import check_assembled, check_matmul

BM, BN, BK = 128, 128, 64
SWIZZLE_128B = 3


def gemm(m, n, k):
    assert (m, n) == (BM, BN) and k % BK == 0
    a_layout = mma_shared_layout("float16", SWIZZLE_128B, (BM, BK))
    b_layout = mma_shared_layout("float16", SWIZZLE_128B, (BN, BK))
    rows = tcgen05_atom_layout("32x32b", (BM, BN), "float32")
    plan = plan_columns(acc=BN)

    @T.prim_func
    def kernel(
        A: T.Buffer((m, k), "float16"), B: T.Buffer((n, k), "float16"),
        C: T.Buffer((m, n), "float16"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        warp = T.warp_id_in_wg([4])
        T.lane_id([32])
        pool = T.SMEMPool()
        A_s = pool.alloc((BM, BK), "float16", align=1024, layout=a_layout)
        B_s = pool.alloc((BN, BK), "float16", align=1024, layout=b_layout)
        done = TCGen05Bar(pool, 1)
        memory = TensorMemory(pool, plan)
        pool.commit()
        done.init(1)
        T.ptx.fence.proxy.async_.shared__cta()
        if warp == 0:
            memory.allocate()
        T.cuda.cta_sync()
        memory.open()
        acc = memory.columns("acc")

        for kt in T.serial(k // BK):
            # solution: for each tile of K: copy A and B, meet, fence, multiply; the first MMA does
            #   not accumulate
            Tx.cta.copy(A_s[:, :], A[:, kt * BK : kt * BK + BK])
            Tx.cta.copy(B_s[:, :], B[:, kt * BK : kt * BK + BK])
            T.ptx.fence.proxy.async_.shared__cta()
            T.cuda.cta_sync()
            if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                Tx.gemm_async(
                    acc[:, :], A_s[:, :], B_s[:, :], dispatch="tcgen05", accum=(kt != 0)
                )
                done.arrive(0)
            # The MMAs have read the tiles, which the next round overwrites.
            done.wait(0, kt % 2)
            # end
        T.ptx.tcgen05.fence__after_thread_sync()
        sums = T.alloc_buffer((BM, BN), "float32", scope="local", layout=rows)
        out = T.alloc_buffer((BM, BN), "float16", scope="local", layout=rows)
        Tx.wg.copy_async(sums[:, :], acc[:, :])
        T.ptx.tcgen05.wait__ld.sync.aligned()
        Tx.wg.cast(out[:, :], sums[:, :])
        Tx.wg.copy(C[:, :], out[:, :])
        # Nobody gives the columns back before every warp has loaded its lanes.
        T.ptx.tcgen05.fence__before_thread_sync()
        T.cuda.cta_sync()
        if warp == 0:
            memory.free()

    return kernel


# %%
CASES = [(BM, BN, 64), (BM, BN, 320)]
if __name__ == "__main__":
    check_matmul(gemm, CASES, "sm_100a")
    check_assembled(gemm(*CASES[-1]))

# %% [markdown]
# ## Result
#
# **Assembled** for sm_100a (ptxas of CUDA 13.5): 136 registers a thread, 32780 bytes of shared
# memory, no spills. No GPU of this kind has run it, the emulator has.
#
# Launch, allocation and epilogue are now shared by many MMAs. One SM works, and it waits for
# memory in each round.
