# %% [markdown]
# # Hopper GEMM, step 1: one tile, everything waits
#
# The ladder multiplies float16 matrices, `C = A B^T`, with A `[M, K]` and B `[N, K]`, and sums in
# float32. Eleven steps lead from the smallest kernel that uses Hopper's tensor cores to one that
# keeps up with cuBLAS. Each step adds one idea, and says what it buys.
#
# This one computes a single tile: M = N = 128, K = 64. One *warpgroup* (four warps, 128 threads)
# does everything, one step after the other:
#
# 1. all threads copy A and B to shared memory with ordinary loads and stores;
# 2. a fence and a barrier make the tiles visible to the tensor core;
# 3. the warpgroup multiplies with `wgmma`, which reads both operands from shared memory;
# 4. every thread stores the part of C that it holds.
#
# Two layouts matter. Shared tiles are *swizzled*: 64 float16 are a row of 128 bytes, whose 16-byte
# chunks are permuted from row to row, so that the tensor core reads eight rows without a bank
# conflict (mode 3 of `mma_shared_layout`). And the accumulator is spread over the registers of
# the warpgroup in the way that wgmma defines (`wgmma_accumulator`); here 128 x 128 float32 over
# 128 threads, 128 registers each.

# %%
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.layout.fragment import wgmma_accumulator
from warploom.tutorials import check_matmul

BM, BN, BK = 128, 128, 64
SWIZZLE_128B = 3


def gemm(m, n, k):
    assert (m, n, k) == (BM, BN, BK)
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

        Tx.cta.copy(A_s[:, :], A[:, :])
        Tx.cta.copy(B_s[:, :], B[:, :])
        # Threads write through the generic proxy, wgmma reads through the async proxy: the fence
        # orders the two for each thread, the barrier makes all threads' fences happen first.
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        # solution: multiply A_s by B_s into the accumulator
        # Two tiles of 64 rows, four steps of 16 in K: eight wgmma. `wait=True` puts the fence of
        # the registers before them, and their commit and the wait for it behind.
        Tx.wg.gemm_async(acc[:, :], A_s[:, :], B_s[:, :], accum=False, wait=True)
        # end
        Tx.wg.cast(out[:, :], acc[:, :])
        Tx.wg.copy(C[:, :], out[:, :])

    return kernel


# %% [markdown]
# The check runs on the GPU, or on the emulator where there is none. The emulator also looks for
# races: take out the fence, and it names the two accesses that nothing orders.

# %%
CASES = [(BM, BN, BK)]
if __name__ == "__main__":
    check_matmul(gemm, CASES)

# %% [markdown]
# ## Result
#
# **Measured** on an H200 (2026-11-22, `warploom bench ladder`): 0.49 TFLOP/s,
# 0.600 of cuBLAS, for C[128, 128] and K = 64.
#
# A tile of 128 x 128 x 64 is 2 million operations, and takes as long as the launch, a trip to
# global memory and one back: the tensor core is idle nearly all the time, with cuBLAS as well. The
# number is the bottom of the ladder. `warploom bench ladder` measures all steps.
