# %% [markdown]
# # Blackwell GEMM, step 1: one tile, everything waits
#
# The same ladder as for Hopper, `C = A B^T` of float16 matrices with float32 sums, on the fifth
# generation of tensor cores: `tcgen05`. Three things are different there, and all are in this
# smallest kernel (M = N = 128, K = 64).
#
# * Accumulators live in *tensor memory*: 128 lanes of 512 columns of 32 bits an SM, which only the
#   tensor core and a few special instructions touch. It is allocated by a whole warp, in columns,
#   and must be freed. `TensorMemory` does both; `columns` is a buffer of it.
# * An MMA is issued by *one thread*, for the whole tile of 128 rows, and is asynchronous. Its
#   end is announced by a *commit*, which arrives at an mbarrier when everything that the thread
#   has issued before is done.
# * To get at the sums, each of the four warps loads its 32 lanes to registers: thread i of the
#   warpgroup gets row i. `fence__after_thread_sync` orders that behind the barrier.
#
# Shared tiles are swizzled as on Hopper.
#
# No Blackwell GPU is needed: the check runs on the emulator. ptxas assembles the kernel for
# sm_100a as well, and prints what it takes.

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
    assert (m, n, k) == (BM, BN, BK)
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
        if warp == 0:
            memory.allocate()

        Tx.cta.copy(A_s[:, :], A[:, :])
        Tx.cta.copy(B_s[:, :], B[:, :])
        # Threads write through the generic proxy, the tensor core reads through the async proxy.
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        memory.open()
        acc = memory.columns("acc")

        if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
            # solution: multiply A_s by B_s into the accumulator
            Tx.gemm_async(acc[:, :], A_s[:, :], B_s[:, :], dispatch="tcgen05", accum=False)
            # end
            done.arrive(0)
        done.wait(0, 0)
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
CASES = [(BM, BN, BK)]
if __name__ == "__main__":
    check_matmul(gemm, CASES, "sm_100a")
    check_assembled(gemm(*CASES[-1]))

# %% [markdown]
# ## Result
#
# **Assembled** for sm_100a (ptxas of CUDA 13.5): 136 registers a thread, 32780 bytes of shared
# memory, no spills. No GPU of this kind has run it, the emulator has.
#
# A round trip to memory, one MMA of 2 million operations, and a trip back: the bottom of the
# ladder.
