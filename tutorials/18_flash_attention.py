# %% [markdown]
# # FlashAttention as a tile program
#
#     python tutorials/18_flash_attention.py
#
# **Time:** 25 minutes.
#
# `O = softmax(Q K^T / sqrt(d)) V`, for each head. The logits of all queries and keys would be far
# larger than Q, K, V and O. FlashAttention never stores them: a thread block has a tile of
# queries, goes through the keys block by block, and keeps for each query the largest logit so far,
# the sum of the weights relative to it, and the weighted sum of V. When a larger logit comes, what
# was summed before is scaled down.

# %%
import math

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from warploom import emulator
from warploom import language as wl

emulator.enable_without_gpu()
HEADS, TOKENS, DIM = 2, 200, 64
BM, BN = 64, 64
# Powers of two are cheaper than those of e: logits are scaled by log2(e) as well.
SCALE = math.log2(math.e) / math.sqrt(DIM)

# %% [markdown]
# ## The program
#
# Two MMAs, and work on tiles between them, in the order of the formulas:
#
# * `S` and `acc` are accumulators, and worked on like any tile. `P`, the weights in 16 bits, is a
#   *fragment*: the second MMA takes it from registers, and nothing goes through shared memory.
# * `Tx.cta.max(largest, S, axes=(1,), accum=True)` is the largest of each row, and of what
#   `largest` has been.
# * `transB=True`: V is `[keys, DIM]`, which as operand B is the other order of dimensions.
# * Loads beyond the last key give zeros, whose logit would be 0: they are masked with minus
#   infinity.


# %%
@T.prim_func
def forward(
    Q: T.Buffer((HEADS, TOKENS, DIM), "float16"), K: T.Buffer((HEADS, TOKENS, DIM), "float16"),
    V: T.Buffer((HEADS, TOKENS, DIM), "float16"), Out: T.Buffer((HEADS, TOKENS, DIM), "float16"),
):  # fmt: skip
    T.device_entry()
    block, h = T.cta_id([-(-TOKENS // BM), HEADS])
    Q_s = T.alloc_buffer((BM, DIM), "float16", scope="shared")
    K_s = T.alloc_buffer((BN, DIM), "float16", scope="shared")
    V_s = T.alloc_buffer((BN, DIM), "float16", scope="shared")
    S = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
    P = T.alloc_buffer((BM, BN), "float16", scope="fragment")
    acc = T.alloc_buffer((BM, DIM), "float32", scope="accumulator")
    largest = T.alloc_buffer((BM,), "float32", scope="fragment")
    shrink = T.alloc_buffer((BM,), "float32", scope="fragment")
    total = T.alloc_buffer((BM,), "float32", scope="fragment")
    out = T.alloc_buffer((BM, DIM), "float16", scope="fragment")
    Tx.cta.copy_async(Q_s, Q[h, block * BM : block * BM + BM, 0:DIM])
    Tx.cta.fill(largest, T.float32("-inf"))
    Tx.cta.zero(total)
    Tx.cta.zero(acc)
    for s in wl.pipelined(-(-TOKENS // BN), stages=2):
        Tx.cta.copy_async(K_s, K[h, s * BN : s * BN + BN, 0:DIM])
        Tx.cta.copy_async(V_s, V[h, s * BN : s * BN + BN, 0:DIM])
        Tx.cta.gemm_async(S, Q_s, K_s)
        for i, j in T.grid(BM, BN):
            S[i, j] = T.if_then_else(
                s * BN + j < TOKENS, S[i, j] * T.float32(SCALE), T.float32("-inf")
            )
        Tx.cta.copy(shrink, largest)
        Tx.cta.max(largest, S, axes=(1,), accum=True)
        for i in T.serial(BM):
            shrink[i] = T.exp2(shrink[i] - largest[i])
            total[i] = total[i] * shrink[i]
        for i, j in T.grid(BM, BN):
            S[i, j] = T.exp2(S[i, j] - largest[i])
            P[i, j] = T.cast(S[i, j], "float16")
        Tx.cta.sum(total, S, axes=(1,), accum=True)
        for i, j in T.grid(BM, DIM):
            acc[i, j] = acc[i, j] * shrink[i]
        Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
    for i, j in T.grid(BM, DIM):
        out[i, j] = T.cast(acc[i, j] / total[i], "float16")
    Tx.cta.copy(Out[h, block * BM : block * BM + BM, 0:DIM], out)


# %% [markdown]
# ## What it means, and what it becomes
#
# `interpret` executes it in numpy, and is compared with the textbook's formula; the kernels for
# both GPUs run on the emulator. On Hopper, `S` and `acc` are registers of the warpgroups that
# multiply, on Blackwell they are columns of tensor memory.

# %%
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((HEADS, TOKENS, DIM)).astype(np.float16) for _ in range(3))
arrays = [q, k, v, np.full_like(q, np.nan)]
logits = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) / math.sqrt(DIM)
weights = np.exp(logits - logits.max(axis=2, keepdims=True))
expected = weights / weights.sum(axis=2, keepdims=True) @ v.astype(np.float64)

meant = [one.copy() for one in arrays]
wl.interpret(forward, meant)
print("interpreter: largest error", np.abs(meant[-1] - expected).max())
assert np.abs(meant[-1] - expected).max() < 2e-3

for arch in ("sm_90a", "sm_100a"):
    steps = warploom.lower_trace(forward, arch)
    for step in steps:
        if step.name in ("SpecializeWarps", "InferLayouts"):
            for decision in step.decisions:
                print(f"{arch}, {step.name}: {decision}")
    result = emulator.run(steps[-1].func, arrays, arch=arch).outputs[-1]
    print(f"{arch}: largest error", np.abs(result - expected).max())
    assert np.abs(result - expected).max() < 2e-3

# %% [markdown]
# ## What makes it fast
#
# In this order of statements the tensor core waits for each softmax. The program of the package,
# `warploom.programs.attention`, multiplies the weights of the block *before* by V while the softmax
# of this block is computed: a rotation of the loop, of ten lines. It also takes causal masks,
# heads of K and V that several of Q share, and any number of tokens; `warploom bench attention`
# measures it, and `relax.build` puts it where a model has `R.nn.attention`.

# %% [markdown]
# ## Exercises
#
# `warploom tutorials start my_exercises` writes them with TODOs, and
# `warploom tutorials check my_exercises/exercises/18_flash_attention.py` checks yours.
#
# 1. Write the online softmax, and check it with a causal mask.
# 2. Write the mask of a sliding window.
