# %% [markdown]
# # Blackwell GEMM, step 11: the same kernel from ten lines
#
# A *tile program* says what one CTA computes, in order, as if nothing ran at the same time. The
# passes of warploom make of it what steps 4 to 9 built by hand: swizzled rings of stages and their
# barriers, warps that load, multiply and store, pairs of CTAs, accumulators in tensor memory in two
# places used alternately, a persistent grid in groups of eight rows.
#
# It is the very program of Hopper's step 11: what differs between the two GPUs is left to the
# passes.

# %%
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from warploom import language as wl
from warploom.tutorials import check_assembled, check_matmul

BM, BN, BK = 128, 256, 64


def tile_program(m, n, k):
    @T.prim_func
    def kernel(
        A: T.Buffer((m, k), "float16"), B: T.Buffer((n, k), "float16"),
        C: T.Buffer((m, n), "float16"),
    ):  # fmt: skip
        T.device_entry()
        wl.hints(cluster=(2, 1), raster="grouped", group=8)
        i, j = T.cta_id([-(-m // BM), n // BN])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        for kt in wl.pipelined(k // BK, stages=4):
            Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, kt * BK : kt * BK + BK])
            Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, kt * BK : kt * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=kt > 0)
        out = T.alloc_buffer((BM, BN), "float16", scope="fragment")
        Tx.cta.cast(out, acc)
        Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], out)

    return kernel


def gemm(m, n, k):
    """The kernel that the passes make; `tvm.compile(..., tir_pipeline="warploom")` does it, too."""
    return warploom.lower_trace(tile_program(m, n, k), "sm_100a")[-1].func


# %% [markdown]
# What the passes decided, in their own words:

# %%
if __name__ == "__main__":
    for step in warploom.lower_trace(tile_program(4096, 4096, 4096), "sm_100a"):
        for decision in step.decisions:
            print(f"{step.name}: {decision}")

# %%
CASES = [(256, BN, 64), (300, 512, 320)]
if __name__ == "__main__":
    check_matmul(gemm, CASES, "sm_100a")
    check_assembled(gemm(*CASES[-1]))

# %% [markdown]
# Rows beyond the tiles come for free: loads fill with zeros, stores are clipped (300 above is no
# multiple of 128).
#
# ## Result
#
# **Assembled** for sm_100a (ptxas of CUDA 13.5): 82 registers a thread, 163940 bytes of shared
# memory, no spills. No GPU of this kind has run it, the emulator has.
#
# `tutorials/03_tile_program.py` goes on with epilogues.
