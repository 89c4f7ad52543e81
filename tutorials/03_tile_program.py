# %% [markdown]
# # Write the plain loop, get the pipelined kernel: a fused GEMM as a tile program
#
#     python tutorials/03_tile_program.py
#
# **Time:** 25 minutes.
#
# A tile program says what one thread block computes, one statement after the other, as if nothing
# ran at the same time. It names no thread, no barrier and no phase. The passes of warploom make the
# kernel: they choose layouts and swizzles, run loads ahead of the MMAs in a ring of stages,
# give loading to one warp and computing to others, share loads between the blocks of a cluster,
# keep the blocks for tile after tile, and store through shared memory while the next tile begins.

# %%
import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from warploom import emulator
from warploom import language as wl
from warploom.target import default_target

N, K = 512, 320
BM, BN, BK = 128, 128, 64

# %% [markdown]
# ## C = relu(A B^T + bias) for any number of rows
#
# `accumulator` and `fragment` are tiles that the passes find a place for; a nest of loops with
# element-wise stores is worked on in parallel. Copies may reach over the edges of matrices: outside
# there are zeros, and nothing is stored.


# %%
@T.prim_func
def linear(a: T.handle, b: T.handle, bias: T.Buffer((N,), "float32"), c: T.handle):
    m = T.int32()
    B = T.match_buffer(b, (N, K), "float16")
    A = T.match_buffer(a, (m, K), "float16")
    C = T.match_buffer(c, (m, N), "float16")
    T.device_entry()
    wl.hints(cluster=(2, 1))
    i, j = T.cta_id([T.ceildiv(m, BM), N // BN])
    A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
    B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
    acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
    out = T.alloc_buffer((BM, BN), "float16", scope="fragment")
    for k in wl.pipelined(K // BK, stages=4):
        Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
        Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, k * BK : k * BK + BK])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    for y, x in T.grid(BM, BN):
        out[y, x] = T.cast(T.max(acc[y, x] + bias[j * BN + x], T.float32(0)), "float16")
    Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], out)


# %% [markdown]
# ## Part of the orchestration may be the author's
#
# Here a residual tile R comes while the passes' pipeline runs; `come` counts its bytes. `with
# wl.loading():` would give more to the thread that loads, such as a ring of one's own. A kernel
# that defines ids of threads is orchestrated by hand altogether: passes only give its mbarriers,
# accumulators, matrix descriptors and tiles a place.


# %%
@T.prim_func
def residual(
    A: T.Buffer((BM, K), "float16"), B: T.Buffer((BN, K), "float16"),
    R: T.Buffer((BM, BN), "float16"), C: T.Buffer((BM, BN), "float16"),
):  # fmt: skip
    T.device_entry()
    T.cta_id([1])
    A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
    B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
    R_s = T.alloc_buffer((BM, BN), "float16", scope="shared")
    acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
    out = T.alloc_buffer((BM, BN), "float16", scope="fragment")
    come = wl.mbarrier.alloc()
    wl.mbarrier.init(come, arrivals=1)
    wl.mbarrier.expect(come, 0, BM * BN * 2)
    Tx.cta.copy_async(R_s, R[:, :], mbar=wl.mbarrier.address(come))
    for k in wl.pipelined(K // BK, stages=2):
        Tx.cta.copy_async(A_s, A[:, k * BK : k * BK + BK])
        Tx.cta.copy_async(B_s, B[:, k * BK : k * BK + BK])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    wl.mbarrier.wait(come, 0, 0)
    for y, x in T.grid(BM, BN):
        out[y, x] = T.cast(acc[y, x] + T.cast(R_s[y, x], "float32"), "float16")
    Tx.cta.copy(C[:, :], out)


# %%
rng = np.random.default_rng(0)
rows = 300
a = rng.standard_normal((rows, K)).astype(np.float16)
b = rng.standard_normal((N, K)).astype(np.float16)
offset = rng.standard_normal(N).astype(np.float32)
expected = np.maximum(a.astype(np.float32) @ b.T.astype(np.float32) + offset, 0)

# %% [markdown]
# ## What it means
#
# `interpret` executes the statements one by one in numpy. It is the definition that every lowering
# is tested against.

# %%
c = np.full((rows, N), np.nan, np.float16)
wl.interpret(linear, [a, b, offset, c])
print("interpreter: largest error", np.abs(c - expected).max())
assert np.abs(c - expected).max() < 0.05

# %% [markdown]
# ## What it becomes
#
# Every pass returns a program that prints (`print(step)`), and says what it has decided; the first
# ones are still sequential.

# %%
for step in warploom.lower_trace(linear):
    print(f"after {step.name}: {len(step.func.script().splitlines())} lines")
    for decision in step.decisions:
        print(f"    {decision}")

# %% [markdown]
# ## Compiled and run
#
# On the GPU of this machine or on its emulator.

# %%
emulated = emulator.enable_without_gpu()
target, _ = default_target()
kernel = tvm.compile(tvm.IRModule({"main": linear}), target, tir_pipeline="warploom")
tensors = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in (a, b, offset, np.full_like(c, np.nan))]
kernel["main"](*tensors)
error = np.abs(tensors[-1].numpy() - expected).max()
print(f"kernel on {tvm.cuda(0).device_name}: largest error", error)
assert error < 0.05
r = rng.standard_normal((BM, BN)).astype(np.float16)
arrays = [a[:BM], b[:BN], r, np.full_like(r, np.nan)]
tensors = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in arrays]
kernel = tvm.compile(tvm.IRModule({"main": residual}), target, tir_pipeline="warploom")
kernel["main"](*tensors)
wl.interpret(residual, arrays)
assert np.abs(tensors[-1].numpy().astype(float) - arrays[3]).max() < 0.1

# %% [markdown]
# ## Called with tensors
#
# `warploom.jit` compiles and launches in one: tensors of PyTorch, of TVM or of anything with
# DLPack, on the emulator numpy arrays. It checks them first, compiles once, and keeps `m` dynamic;
# `out_idx` says that the last parameter is the result. A decorated factory makes a program for the
# shapes and dtypes of its tensors and for static values such as tile sizes: see the guide.

# %%
call = warploom.jit(linear, out_idx=-1)
for count in (1, 77, rows):
    tensors = [a[:count], b, offset]
    if not emulated:
        tensors = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in tensors]
    result = call(*tensors)
    found = result if emulated else result.numpy()
    assert np.abs(found - expected[:count]).max() < 0.05
print(call.cache_info())
if not emulated:
    print(f"{warploom.do_bench(call, *tensors):.4f} ms")
try:
    call(*tensors[:2], tensors[0])
except warploom.ArgumentError as error:
    print(error)

# %% [markdown]
# ## The same source for Blackwell
#
# Accumulators in tensor memory, a warp that multiplies, and the cluster becomes a pair of CTAs that
# do it together. `wl.hints(..., scheduler="clc")` would let CTAs take over tiles of those that have
# not started.

# %%
steps = warploom.lower_trace(linear, "sm_100a")
for step in steps:
    if step.name in ("PairCTAs", "SpecializeWarps"):
        print(f"after {step.name}, on Blackwell:", *step.decisions, sep="\n    ")
if emulated:
    blackwell = steps[-1].func.with_attr("global_symbol", "main")
    arrays = [a, b, offset, np.full_like(c, np.nan)]
    result = emulator.run(blackwell, arrays, arch="sm_100a").outputs[-1]
    print("on an emulated Blackwell GPU: largest error", np.abs(result - expected).max())
    assert np.abs(result - expected).max() < 0.05

# %% [markdown]
# ## Exercises
#
# `warploom tutorials start my_exercises` writes them with TODOs, and
# `warploom tutorials check my_exercises/exercises/03_tile_program.py` checks yours.
#
# 1. A GEMM with a pipelined loop, from an empty body.
# 2. A GEMM of operands that are stored with K first.
