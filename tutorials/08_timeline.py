# %% [markdown]
# # Reading a timeline
#
#     python tutorials/08_timeline.py
#
# **Time:** 20 minutes.
#
# A kernel with roles is fast when the tensor cores never wait. A timeline says whether they do:
# each role of some CTAs records when it waits, loads, multiplies and works on registers.
# `profile.instrument` lowers a program to a kernel that does so; its records are one more
# parameter. On the command line the same is
#
#     warploom profile gemm 4096 4096 4096
#     warploom profile tutorials/ladder_hopper/v07_warp_specialised.py:gemm 4096 4096 4096
#
# On a GPU times are nanoseconds. The emulator's clock counts the instructions that a cluster
# executes: a timeline from there shows who waits for whom, and says nothing about speed.

# %%
import tempfile
from pathlib import Path

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom import profile

M, N, K = 256, 128, 512
BM, BN, BK = 128, 128, 64


def gemm(stages, specialise=True):
    """C = A B^T; `stages` tiles of A and B are loaded ahead."""

    @T.prim_func
    def kernel(
        A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"),
        C: T.Buffer((M, N), "float16"),
    ):  # fmt: skip
        T.device_entry()
        wl.hints(specialise=specialise)
        i, j = T.cta_id([M // BM, N // BN])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        out = T.alloc_buffer((BM, BN), "float16", scope="fragment")
        for k in wl.pipelined(K // BK, stages):
            Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
            Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, k * BK : k * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.cast(out, acc)
        Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], out)

    return kernel


rng = np.random.default_rng(0)
a, b = (rng.standard_normal((rows, K)).astype(np.float16) for rows in (M, N))


def timeline_of(func):
    """Every CTA of the grid, with its warps scheduled round-robin."""
    kernel = profile.instrument(func, profile.Recording(ctas=132))
    return kernel.emulate([a, b, np.empty((M, N), np.float16)], schedule="round-robin")


# %% [markdown]
# ## Too few stages
#
# With one stage the loads of a step begin when the MMAs of the step before have read theirs.
# Look at `wait` of the role that computes: these are waits for `full` barriers, with nothing to
# multiply. With four stages they are almost gone. Waits of the role that *loads* are a good sign:
# all stages are full, and it has nothing to do.

# %%
starved = {}
for stages in (1, 4):
    timeline = timeline_of(gemm(stages))
    starved[stages] = timeline.shares()["compute"]["wait"]
    print(f"{stages} stages:\n{timeline.summary()}\n")
assert starved[4] < starved[1] / 2

# %% [markdown]
# ## One role for everything
#
# Without a producer warp, a thread that computes also issues the loads, and the others meet it at a
# barrier before each. There is no role `load`; the time of `load` is lost for MMAs.

# %%
together = timeline_of(gemm(4, specialise=False))
print(together.summary(), "\n")
assert together.shares().keys() == {"compute"} and together.shares()["compute"]["load"] > 0.05

# %% [markdown]
# ## One span after the other
#
# The table sums up; the trace shows each span. Here the first steps of a warpgroup, as Perfetto
# draws them. `mma` begins with the first instruction of a step and ends when the MMAs of the
# step *before* are complete: one MMA is always under way. The last span of a tile waits for
# the last MMA; then comes the epilogue, while the loading role already fills the stages of the
# next tile.

# %%
stream = next(one for one in timeline.streams if one.name == "compute 0")
for span in stream.spans[:6]:
    print(f"{span.begin:8.0f} to {span.end:8.0f}: {span.name}")
assert [span.category for span in stream.spans[:4]] == ["wait", "mma", "wait", "mma"]
assert stream.spans[-1].category == "epilogue"

with tempfile.TemporaryDirectory() as folder:
    timeline.write(Path(folder, "trace.json"))  # open it in ui.perfetto.dev
    print(f"\ntrace.json has {Path(folder, 'trace.json').stat().st_size} bytes")
    # timeline.plot("trace.png") draws the same; it needs matplotlib.


# %% [markdown]
# ## Spans of one's own
#
# In a kernel that its author orchestrates, each warp is a stream. Waits, loads, MMAs and the
# rest are found as above; `wl.span` names parts instead. It costs nothing where nothing records:
# the compiled kernel is the one without.

# %%
@T.prim_func
def row_sums(A: T.Buffer((M, K), "float16"), S: T.Buffer((M,), "float32")):
    T.device_entry()
    row = T.cta_id([M])
    warp = T.warp_id([4])
    lane = T.lane_id([32])
    parts = T.alloc_buffer((4,), "float32", scope="shared")
    mine: T.float32 = 0.0
    with wl.span("load row"):
        for i in T.serial(K // 128):
            mine = mine + T.Cast("float32", A[row, i * 128 + warp * 32 + lane])
    with wl.span("sum of a warp"):
        for i in T.unroll(5):
            mine = mine + T.tvm_warp_shuffle_xor(T.uint32(0xFFFFFFFF), mine, 16 >> i, 32, 32)
        if lane == 0:
            parts[warp] = mine
    with wl.span("wait for warps"):
        T.cuda.cta_sync()
    with wl.span("epilogue"):
        if warp == 0 and lane == 0:
            S[row] = parts[0] + parts[1] + parts[2] + parts[3]


by_hand = profile.instrument(row_sums, profile.Recording(ctas=2))
own = by_hand.emulate([a, np.empty(M, np.float32)])
print(own.summary())
for stream in own.streams:
    names = [span.name for span in stream.spans]
    assert names == ["load row", "sum of a warp", "wait for warps", "epilogue"]

# %% [markdown]
# ## What recording costs
#
# A span is one reading of the SM's clock at either end, or one in all where it follows another. The
# clocks stay in registers until the end of a trip of the loop around, and one thread of the role
# stores them together. `Recording(ctas=16, capacity=512)`, the default, records 16 CTAs, spread
# over the grid, until each of their roles has recorded 512 spans; the others only find that they
# need not. `warploom bench profile` measures it.
#
# The clock is read where the program has it, but the compiler may move arithmetic past it by some
# instructions: look at spans of a hundred clocks and more. Waits for MMAs stay in place.

# %% [markdown]
# ## Exercises
#
# `warploom tutorials start my_exercises` writes them with TODOs, and
# `warploom tutorials check my_exercises/exercises/08_timeline.py` checks yours.
#
# 1. Find the longest wait of a role.
# 2. Find the least number of stages that keeps a role from waiting.
