# %% [markdown]
# # Sums along rows: a softmax
#
#     python tutorials/02_row_softmax.py
#
# **Time:** 15 minutes. **You need:** `01_vector_add.py`. **You get:** tiles of two dimensions,
# reductions, and a kernel that reads its matrix once.
#
# Softmax of a row is `exp(x - max x) / sum exp(x - max x)`. The textbook reads a row three times:
# for the maximum, for the sum, and for the result. Here a row stays in registers.

# %%
import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import emulator
from warploom import language as wl
from warploom.lower.lowerings import lower

ROWS, COLUMNS, TILE = 10, 500, 4


# %% [markdown]
# ## The program
#
# * A CTA has four rows. `wl.load(..., dtype="float32")` converts on the way.
# * `wl.alloc_fragment((TILE,))` is a vector with an element for each row.
# * `Tx.cta.max(largest, x, axes=(1,))` reduces each row; threads that share a row exchange their
#   parts by shuffles or through shared memory, which the passes see to.


# %%
@T.prim_func
def softmax(X: T.Buffer((ROWS, COLUMNS), "float16"), Y: T.Buffer((ROWS, COLUMNS), "float16")):
    T.device_entry()
    i = T.cta_id([T.ceildiv(ROWS, TILE)])
    x = wl.load(X, (i, 0), (TILE, COLUMNS), scope="fragment", dtype="float32")
    largest = wl.alloc_fragment((TILE,))
    total = wl.alloc_fragment((TILE,))
    Tx.cta.max(largest, x, axes=(1,))
    for y, c in T.grid(TILE, COLUMNS):
        x[y, c] = T.exp(x[y, c] - largest[y])
    Tx.cta.sum(total, x, axes=(1,))
    for y, c in T.grid(TILE, COLUMNS):
        x[y, c] = x[y, c] / total[y]
    wl.store(Y, (i, 0), x)


# %% [markdown]
# ## Is it right?

# %%
x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float16)
weights = np.exp(x.astype(np.float64))
expected = weights / weights.sum(1, keepdims=True)
poison = np.full_like(x, np.nan)
result = emulator.run(softmax, [x, poison])
error = np.abs(result.outputs[1] - expected).max()
print(f"largest error {error:.1e}")
assert error < 1e-4

# %% [markdown]
# ## What the passes have made of it
#
# `lower` shows the kernel: how many threads there are, who holds what, and where they meet.
# `warploom inspect program FILE.py:NAME` prints and draws the same for kernels with roles.

# %%
kernel = lower(softmax)
print("\n".join(kernel.script().splitlines()[:16]))
reductions = kernel.script().count("shuffle")
assert isinstance(kernel, tvm.tirx.PrimFunc) and reductions > 0
print(f"... and {reductions} shuffles between the threads of a row")

# %% [markdown]
# ## Exercises
#
# `warploom tutorials check my_exercises/exercises/02_row_softmax.py` checks them.
#
# 1. RMS norm: `y = x / sqrt(mean(x^2) + eps)`, row by row.
# 2. The logarithm of the sum of the exponentials of a row, one float32 for each row.
