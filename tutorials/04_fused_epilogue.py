# %% [markdown]
# # A fused epilogue
#
#     python tutorials/04_fused_epilogue.py
#
# **Time:** 15 minutes.
#
# After a GEMM of a model come a bias, an activation, a residual. As kernels of their own each
# of them reads and writes all of C once more; in the epilogue of the GEMM they are computed on
# sums that are in registers anyway. In a tile program an epilogue is a nest of loops behind the
# loop over K.

# %%
import math

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from warploom import emulator
from warploom import language as wl

emulator.enable_without_gpu()
M, N, K = 256, 256, 192
BM, BN, BK = 128, 128, 64

# %% [markdown]
# ## C = gelu(A B^T + bias) + R
#
# The nest reads the accumulator, and whatever else it likes:
#
# * `bias`, an element for each column, straight from global memory;
# * the residual `R`, a whole tile, which a copy brings to shared memory. The statement stands
#   before the loop over K, so that the bytes come while the MMAs run.
#
# `gelu` is Python: it builds the expression when the program is made. The result is rounded once,
# where the program says so. `T.erf` and its like are computed element by element, in parallel.


# %%
def gelu(x):
    return T.float32(0.5) * x * (T.float32(1) + T.erf(x * T.float32(math.sqrt(0.5))))


@T.prim_func
def block(
    A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"),
    bias: T.Buffer((N,), "float32"), R: T.Buffer((M, N), "float16"),
    C: T.Buffer((M, N), "float16"),
):  # fmt: skip
    T.device_entry()
    i, j = T.cta_id([M // BM, N // BN])
    A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
    B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
    R_s = T.alloc_buffer((BM, BN), "float16", scope="shared")
    acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
    out = T.alloc_buffer((BM, BN), "float16", scope="fragment")
    Tx.cta.copy_async(R_s, R[i * BM : i * BM + BM, j * BN : j * BN + BN])
    for k in wl.pipelined(K // BK, stages=3):
        Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
        Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, k * BK : k * BK + BK])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    for y, x in T.grid(BM, BN):
        out[y, x] = T.cast(
            gelu(acc[y, x] + bias[j * BN + x]) + T.cast(R_s[y, x], "float32"), "float16"
        )
    Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], out)


# %% [markdown]
# The meaning, in numpy: `wl.interpret` executes the statements one after the other.

# %%
rng = np.random.default_rng(0)
a, b, r = (rng.standard_normal(s).astype(np.float16) for s in ((M, K), (N, K), (M, N)))
offset = rng.standard_normal(N).astype(np.float32)
arrays = [a, b, offset, r, np.full((M, N), np.nan, np.float16)]

sums = a.astype(np.float64) @ b.astype(np.float64).T + offset
erf = np.vectorize(math.erf)(sums * math.sqrt(0.5))
expected = 0.5 * sums * (1 + erf) + r
meant = [one.copy() for one in arrays]
wl.interpret(block, meant)
print("interpreter: largest error", np.abs(meant[-1] - expected).max())
assert np.abs(meant[-1] - expected).max() < 0.05

# %% [markdown]
# The kernel, on the emulator (`tvm.compile(..., tir_pipeline="warploom")` is for a GPU). Its
# epilogue works on chunks of C: what a thread needs beside the accumulator is a few registers.

# %%
steps = warploom.lower_trace(block)
for step in steps:
    for decision in step.decisions:
        print(f"{step.name}: {decision}")
result = emulator.run(steps[-1].func, arrays).outputs[-1]
print("kernel: largest error", np.abs(result - expected).max())
assert np.abs(result - expected).max() < 0.05

# %% [markdown]
# ## In a model
#
# Relax models need none of this: `relax.build` for `sm_90a` finds GEMMs, and takes the
# operations that follow into their kernels (`tutorials/10_tune_relax.py`; `warploom inspect relax`
# shows which). `schedule.gemm_async` does it for one function of `tvm.s_tir`. Write the program
# yourself where the epilogue is not element by element: a sum of rows, a second result, values that
# are packed differently.

# %% [markdown]
# ## Exercises
#
# `warploom tutorials start my_exercises` writes them with TODOs, and
# `warploom tutorials check my_exercises/exercises/04_fused_epilogue.py` checks yours.
#
# 1. A scale for each row, a bias, and silu.
# 2. The same with the square of relu.
