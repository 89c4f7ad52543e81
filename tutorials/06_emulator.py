# %% [markdown]
# # Why is it sometimes wrong? Finding a race with the emulator
#
#     python tutorials/06_emulator.py
#
# **Time:** 15 minutes.
#
# A kernel with a bug, what the emulator says about it, and the fix. No GPU is needed. The kernel
# reverses tiles of 128 numbers through shared memory: each thread stores one number and loads
# another. All threads have to meet twice: before they load what others stored, and before they
# store what others may still have to load.

# %%
import numpy as np
from tvm.script import tirx as T

from warploom import emulator

TILES = 4


# %% [markdown]
# ## The kernel, without the second barrier
#
# On a GPU it mostly works: the four warps run at about the same pace, so that a test may pass for
# weeks.


# %%
@T.prim_func
def reverse_too_soon(a: T.Buffer((TILES, 128), "float32"), b: T.Buffer((TILES, 128), "float32")):
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([128])
    buffer = T.alloc_buffer((128,), "float32", scope="shared")
    for tile in T.serial(TILES):
        buffer[thread] = a[tile, thread]
        T.cuda.cta_sync()
        b[tile, thread] = buffer[127 - thread]


# %% [markdown]
# ## The same with it


# %%
@T.prim_func
def reverse(a: T.Buffer((TILES, 128), "float32"), b: T.Buffer((TILES, 128), "float32")):
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([128])
    buffer = T.alloc_buffer((128,), "float32", scope="shared")
    for tile in T.serial(TILES):
        buffer[thread] = a[tile, thread]
        T.cuda.cta_sync()
        b[tile, thread] = buffer[127 - thread]
        T.cuda.cta_sync()


# %% [markdown]
# ## Both on the emulator
#
# `run` takes numpy arrays, compiles the program, and raises what the checks find. The report names
# the line of this file on both sides of the conflict. Other seeds are other orders in which warps
# run and copies complete.


# %%
def main() -> None:
    """Run both; the first must be reported and the second be right under every schedule."""
    a = np.random.default_rng(0).standard_normal((TILES, 128), dtype=np.float32)
    b = np.full_like(a, np.nan)

    try:
        emulator.run(reverse_too_soon, [a, b])
    except emulator.EmulatorError as report:
        print(f"reverse_too_soon:\n{report}\n")
    else:
        raise AssertionError("the missing barrier was not found")

    for seed in range(4):
        result = emulator.run(reverse, [a, b], seed=seed)
        np.testing.assert_array_equal(result.outputs[1], a[:, ::-1])
    print("reverse: right under 4 schedules")


# %%
if __name__ == "__main__":
    main()

# %% [markdown]
# ## Exercises
#
# `warploom tutorials start my_exercises` writes them with TODOs, and
# `warploom tutorials check my_exercises/exercises/06_emulator.py` checks yours.
#
# 1. Repair the race of a kernel that turns rows.
# 2. Write a function that lists the lines of a program's races.
