# %% [markdown]
# # A first tensor-core kernel for Hopper in TVMScript
#
#     python tutorials/14_first_kernel.py
#
# **Time:** 25 minutes.
#
# What you need to know: how a TIRx `prim_func` looks. What you will see: the four parts that every
# Hopper GEMM has (TMA loads, an mbarrier, `gemm_async`, a store), with no overlap at all, so that
# each can be read on its own. It prints what the compiler made of the kernel and checks the result;
# without a GPU the emulator runs it.
#
# The tile of C that one thread block computes is 64 x 128. It lives in the registers of a
# *warpgroup* (four warps, 128 threads), spread in the way that the tensor core wants:
# `wgmma_accumulator` is that layout. A and B pass through shared memory in tiles that are 64 wide
# in K; 64 float16 are 128 bytes, one row of the widest swizzle, mode 3 of `mma_shared_layout`.

# %%
import numpy as np
import tvm
from tvm.backend.cuda.lang.pipeline import TMABar
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from warploom import emulator
from warploom.layout.fragment import wgmma_accumulator
from warploom.target import cuda_target

M, N, K = 512, 768, 1024
BM, BN, BK = 64, 128, 64


def smem(rows):
    """Layout of a (rows, BK) operand tile."""
    return mma_shared_layout("float16", 3, (rows, BK))


# %% [markdown]
# ## The kernel


# %%
@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (M, K), "float16", align=16)
    B = T.match_buffer(b, (N, K), "float16", align=16)
    C = T.match_buffer(c, (M, N), "float32", align=16)
    T.device_entry()
    bm, bn = T.cta_id([M // BM, N // BN])
    T.warpgroup_id([1])
    thread = T.thread_id_in_wg([128])

    # 1. Shared memory: two tiles, on addresses that the swizzle pattern starts at, and a barrier.
    pool = T.SMEMPool()
    As = pool.alloc((BM, BK), "float16", align=1024, layout=smem(BM))
    Bs = pool.alloc((BN, BK), "float16", align=1024, layout=smem(BN))
    full = TMABar(pool, 1)
    pool.commit()
    full.init(1)
    # The TMA engine must see the initialised barrier before it counts bytes on it.
    T.ptx.fence.proxy.async_.shared__cta()
    T.cuda.cta_sync()

    acc = T.alloc_buffer((BM, BN), "float32", scope="local", layout=wgmma_accumulator(BM, BN))
    for k in T.serial(K // BK):
        # 2. One thread announces how many bytes will arrive and starts both copies.
        if thread == 0:
            full.arrive(0, (BM + BN) * BK * 2)
            Tx.copy_async(
                As[:, :],
                A[bm * BM : bm * BM + BM, k * BK : k * BK + BK],
                dispatch="tma_auto",
                mbar=full.ptr_to([0]),
            )
            Tx.copy_async(
                Bs[:, :],
                B[bn * BN : bn * BN + BN, k * BK : k * BK + BK],
                dispatch="tma_auto",
                mbar=full.ptr_to([0]),
            )
        # All threads wait for the bytes; the barrier's phase flips with every round.
        full.wait(0, k % 2)
        # 3. A 64 x 128 x 64 matmul: four wgmma instructions. wait=True adds the fence before and
        #    the commit and wait after them, which a pipelined kernel would place itself.
        Tx.wg.gemm_async(acc[:, :], As[:, :], Bs[:, :], accum=(k != 0), wait=True)
        # Nobody overwrites the tiles before everybody has read them.
        T.cuda.cta_sync()
    # 4. Each thread stores the elements that it holds.
    Tx.wg.copy(C[bm * BM : bm * BM + BM, bn * BN : bn * BN + BN], acc[:, :])


# %% [markdown]
# ## Compile, report, run


# %%
def main():
    emulator.enable_without_gpu()
    target = cuda_target("h100")
    executable = tvm.compile(tvm.IRModule({"main": matmul}), target, tir_pipeline="tirx")
    print(warploom.compile_report(executable))

    device = tvm.cuda(0)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((M, K)).astype("float16")
    b = rng.standard_normal((N, K)).astype("float16")
    c = tvm.runtime.tensor(np.full((M, N), np.nan, "float32"), device)
    executable["main"](tvm.runtime.tensor(a, device), tvm.runtime.tensor(b, device), c)
    expected = a.astype("float64") @ b.astype("float64").T
    error = np.linalg.norm(c.numpy() - expected) / np.linalg.norm(expected)
    print(f"relative error {error:.1e} on {device.device_name}")
    assert error < 1e-5


# %%
if __name__ == "__main__":
    main()

# %% [markdown]
# The next things to read: `tutorials/06_emulator.py`, or the ladder from this kernel to the speed
# of cuBLAS, `tutorials/ladder_hopper/`.
