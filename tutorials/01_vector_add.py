# %% [markdown]
# # Your first kernel: add two vectors
#
#     python tutorials/01_vector_add.py
#
# **Time:** 10 minutes. **You need:** Python and numpy; no GPU, no CUDA. **You get:** a kernel that
# runs, a check that it is right, and a bug that the emulator explains.
#
# A *tile program* says what one thread block (CTA) computes, one statement after the other. It
# names no thread: passes spread the elements of a tile over the threads of the CTA.

# %%
import numpy as np
from tvm.script import tirx as T

from warploom import emulator
from warploom import language as wl

N, TILE = 1000, 256


# %% [markdown]
# ## C = A + B
#
# * `T.cta_id([4])`: the grid has four CTAs, and `i` is the number of this one.
# * `wl.load(A, (i,), (TILE,))` is tile number `i` of 256 elements, in registers.
# * `T.grid` is a loop over the elements of the tile; no element may need another one.
# * `wl.store` writes the tile back. 1000 is no multiple of 256: what lies outside of a vector is
#   zero where it is loaded, and left alone where it would be stored.


# %%
@T.prim_func
def add(
    A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32"), C: T.Buffer((N,), "float32")
):  # fmt: skip
    T.device_entry()
    i = T.cta_id([T.ceildiv(N, TILE)])
    a = wl.load(A, (i,), (TILE,), scope="fragment")
    b = wl.load(B, (i,), (TILE,), scope="fragment")
    for x in T.grid(TILE):
        a[x] = a[x] + b[x]
    wl.store(C, (i,), a)


# %% [markdown]
# ## What it means, and what it does
#
# `wl.interpret` executes the program as it is written, in numpy: that is its meaning. On the
# emulator runs the kernel that the passes have made of it, as PTX, thread by thread. Both must
# agree; the results hold NaN before, so that an element that is left out shows.

# %%
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(N).astype(np.float32) for _ in range(2))
meant = [a.copy(), b.copy(), np.full(N, np.nan, np.float32)]
wl.interpret(add, meant)
np.testing.assert_array_equal(meant[2], a + b)

result = emulator.run(add, [a, b, np.full(N, np.nan, np.float32)])
np.testing.assert_array_equal(result.outputs[2], a + b)
print("1000 sums are right, by the interpreter and by the kernel")


# %% [markdown]
# On a GPU the same program is compiled by
# `tvm.compile(tvm.IRModule({"main": add}), target, tir_pipeline="warploom")`.
#
# ## A bug, and what is said about it
#
# This program is for 1000 elements, and we give it 999. Errors name the argument and the rule.

# %%
try:
    emulator.run(add, [a, b[:999], np.empty(N, np.float32)])
except Exception as error:
    print(str(error).strip().splitlines()[-1])
else:
    raise AssertionError("the short vector was not found")

# %% [markdown]
# ## Exercises
#
# `warploom tutorials start my_exercises` writes them as files with TODOs, and
# `warploom tutorials check my_exercises/exercises/01_vector_add.py` says whether yours are right.
#
# 1. Compute `Y = alpha X + Y` in place (*axpy*).
# 2. Compute the maximum of two vectors, of which one is float16 and the other float32.
