# %% [markdown]
# # Why does it hang? Finding a deadlock with the emulator
#
#     python tutorials/07_find_a_deadlock.py
#
# **Time:** 20 minutes.
#
# A kernel that hangs on a GPU tells nothing: the launch never returns, and a debugger shows warps
# in a loop around `mbarrier.try_wait`. The emulator sees every barrier, and who has used it. This
# tutorial plants two bugs of the kind that everybody writes once, reads the reports, and repairs.

# %%
import numpy as np
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import emulator
from warploom.schedulers import MBarrier, PipelineState, TMABar

emulator.enable_without_gpu()
STAGES, SIZE = 2, 64
TILE_BYTES = SIZE * SIZE * 2

# %% [markdown]
# ## The kernel
#
# A warp loads tiles of A by TMA into a ring of two stages, a warpgroup adds up the tiles of each
# group and stores the sum. `full` says that a tile has come, `empty` that a stage may be
# overwritten. To be clever, the consumer gives a stage back one round later, as if something
# asynchronous still read it; and here is a bug: no warp releases the stage of the *last* round of
# a group.


# %%
def make(groups, tiles, release_last, first_parity=1):
    """`groups` sums of `tiles` tiles each."""
    layout = mma_shared_layout("float16", 3, (STAGES, SIZE, SIZE))

    @T.prim_func
    def sums(
        A: T.Buffer((groups * tiles * SIZE, SIZE), "float16"),
        B: T.Buffer((groups, SIZE, SIZE), "float32"),
    ):
        T.device_entry()
        T.cta_id([1])
        wg = T.warpgroup_id([2])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        pool = T.SMEMPool()
        A_s = pool.alloc((STAGES, SIZE, SIZE), "float16", align=1024, layout=layout)
        full = TMABar(pool, STAGES)
        empty = MBarrier(pool, STAGES)
        pool.commit()
        full.init(1)
        empty.init(1)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if wg == 0:
            if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
                ring = PipelineState(STAGES, first_parity)
                for tile in T.serial(groups * tiles):
                    empty.wait(ring.stage, ring.phase)
                    full.arrive(ring.stage, TILE_BYTES)
                    Tx.copy_async(
                        A_s[ring.stage, :, :], A[tile * SIZE : tile * SIZE + SIZE, :],
                        dispatch="tma_auto", mbar=full.ptr_to([ring.stage]),
                    )  # fmt: skip
                    ring.advance()
        else:
            thread = T.meta_var(warp * 32 + lane)
            ring = PipelineState(STAGES, 0)
            last: T.int32 = 0
            total = T.alloc_buffer((32,), "float32", scope="local")
            for group in T.serial(groups):
                for i in T.unroll(32):
                    total[i] = T.float32(0)
                for tile in T.serial(tiles):
                    full.wait(ring.stage, ring.phase)
                    for i in T.unroll(32):
                        total[i] = total[i] + T.cast(
                            A_s[ring.stage, thread // 2, thread % 2 * 32 + i], "float32"
                        )
                    T.cuda.warpgroup_sync(1)
                    if T.And(thread == 0, tile > 0):
                        empty.arrive(last)
                    last = ring.stage
                    ring.advance()
                if T.And(thread == 0, T.bool(release_last)):
                    empty.arrive(last)
                for i in T.unroll(32):
                    B[group, thread // 2, thread % 2 * 32 + i] = total[i]

    return sums


def data(groups, tiles):
    a = np.random.default_rng(0).integers(-4, 5, (groups * tiles * SIZE, SIZE))
    return [a.astype(np.float16), np.full((groups, SIZE, SIZE), np.nan, np.float32)]


def expected(a, groups, tiles):
    return a.reshape(groups, tiles, SIZE, SIZE).astype(np.float32).sum(axis=1)


# %% [markdown]
# With one group everything is fine: nobody needs the stage again. A test with one tile of the
# result passes. The first larger one hangs.

# %%
arrays = data(1, 3)
result = emulator.run(make(1, 3, release_last=False), arrays).outputs[1]
np.testing.assert_array_equal(result, expected(arrays[0], 1, 3))
print("one group: right")

try:
    emulator.run(make(2, 3, release_last=False), data(2, 3))
except emulator.EmulatorError as report:
    deadlock = str(report)
    print(deadlock)
assert deadlock.startswith("deadlock in kernel sums_kernel")
assert "empty.wait(ring.stage, ring.phase)" in deadlock
assert "1 of 1 arrivals" in deadlock

# %% [markdown]
# ## How to read it
#
# *No warp can go on and no asynchronous operation is pending*: then come the warps, each with the
# barrier that it waits for, and who has used that barrier.
#
# 1. Warps 4 to 7, the consumer, wait at `full.wait`: "1 of 1 arrivals and 0 bytes pending", so that
#    the producer has not even announced the tile they want.
# 2. Warp 0, the producer, waits at `empty.wait`, also with "1 of 1 arrivals pending": what it lacks
#    is an arrival of the consumer. So far there was one, "`empty.arrive(last)` ... 1 times".
# 3. The barrier of the consumer, on the same stage, says "2 phases have completed": two tiles came
#    to that stage, and it was released once. The tile that was not is the last of the first
#    group.
#
# The fix is the arrival behind the loop. `seed=` chooses another order of warps and copies; a
# kernel that waits correctly is right under all of them.

# %%
arrays = data(2, 3)
for seed in range(3):
    result = emulator.run(make(2, 3, release_last=True), arrays, seed=seed).outputs[1]
    np.testing.assert_array_equal(result, expected(arrays[0], 2, 3))
print("two groups: right under 3 schedules")

# %% [markdown]
# ## The other usual one: a wrong parity
#
# A fresh barrier is in phase 0. A wait for parity 1 passes, one for parity 0 does not before the
# first phase is complete. The producer, whose ring starts empty, must therefore begin with 1. With
# 0 it waits for a consumer that waits for it. The report says so in numbers: *no thread has ever
# arrived* at the barrier that warp 0 waits for.

# %%
try:
    emulator.run(make(2, 3, release_last=True, first_parity=0), data(2, 3))
except emulator.EmulatorError as report:
    parity = str(report)
    print(parity)
assert parity.startswith("deadlock") and "no thread has ever arrived" in parity

# %% [markdown]
# On a GPU that hangs, `warploom emulate script.py` runs the script unchanged on the emulator. In
# tests, let it run there in any case: it also finds what hangs once in a thousand launches
# (`emulator.explore`, and `tutorials/06_emulator.py` for races).

# %% [markdown]
# ## Exercises
#
# `warploom tutorials start my_exercises` writes them with TODOs, and
# `warploom tutorials check my_exercises/exercises/07_find_a_deadlock.py` checks yours.
#
# 1. Hand a row from warp to warp without a hang.
# 2. Say how many arrivals the barriers expect.
