# %% [markdown]
# # Shapes that only a call knows
#
#     python tutorials/05_dynamic_shapes.py
#
# **Time:** 15 minutes.
#
# The number of tokens changes from call to call, the weights stay. So M is an argument of the
# kernel, N and K are constants: one compilation serves all M, 0 and 1 included.

# %%
import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import emulator
from warploom import language as wl
from warploom.relax.inspect import inspect
from warploom.target import default_target

emulator.enable_without_gpu()
target, _ = default_target()
N, K = 192, 128
BM, BN, BK = 128, 64, 64

# %% [markdown]
# ## A tile program
#
# `m = T.int32()` is a variable of the program, and the buffers' shapes bind it. The grid is an
# expression, `ceildiv(m, BM)`. The last tile may reach over the edge: loads fill with zeros, stores
# are clipped, by the TMA engine and for nothing.


# %%
@T.prim_func
def linear(a: T.handle, B: T.Buffer((N, K), "float16"), c: T.handle):
    m = T.int32()
    A = T.match_buffer(a, (m, K), "float16")
    C = T.match_buffer(c, (m, N), "float16")
    T.device_entry()
    i, j = T.cta_id([T.ceildiv(m, BM), N // BN])
    A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
    B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
    acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
    out = T.alloc_buffer((BM, BN), "float16", scope="fragment")
    for k in wl.pipelined(K // BK, stages=2):
        Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
        Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, k * BK : k * BK + BK])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    Tx.cta.cast(out, acc)
    Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], out)


def on_device(array):
    return tvm.runtime.tensor(array, tvm.cuda(0))


kernel = tvm.compile(tvm.IRModule({"main": linear}), target, tir_pipeline="warploom")
rng = np.random.default_rng(0)
b = rng.standard_normal((N, K)).astype(np.float16)
for m in (1, 77, 128, 300):
    a = rng.standard_normal((m, K)).astype(np.float16)
    c = on_device(np.full((m, N), np.nan, np.float16))
    kernel["main"](on_device(a), on_device(b), c)
    error = np.abs(c.numpy() - a.astype(np.float64) @ b.astype(np.float64).T).max()
    print(f"m = {m}: largest error {error:.1e}")
    assert error < 0.05

# %% [markdown]
# ## A model
#
# One row and a thousand rows want different tiles. For a dimension of unknown size, Relax gets
# several kernels in one function, of which the host takes one by the number of rows, measured
# ones where a database has them. `inspect` tells which.


# %%
class Layer(nn.Module):
    def __init__(self):
        self.up = nn.Linear(128, 192, bias=True)

    def forward(self, x):
        return nn.op.silu(self.up(x))


layer = Layer()
layer.to("float16")
mod, _ = layer.export_tvm({"forward": {"x": nn.spec.Tensor(["tokens", 128], "float16")}})
for function in inspect(mod):
    print(function)

executable = relax.build(mod, target)
machine = relax.VirtualMachine(executable, tvm.cuda(0))
weight, bias = (rng.standard_normal(s).astype(np.float16) for s in ((192, 128), (192,)))
for tokens in (3, 200):
    x = (0.1 * rng.standard_normal((tokens, 128))).astype(np.float16)
    found = machine["forward"](*map(on_device, (x, weight, bias))).numpy()
    sums = x.astype(np.float64) @ weight.astype(np.float64).T + bias
    error = np.abs(found - sums / (1 + np.exp(-sums))).max()
    print(f"{tokens} tokens: largest error {error:.1e}")
    assert error < 0.02

# %% [markdown]
# Other ways to get there: `warploom.programs.compile_gemm(None, n, k)` for a bare GEMM, and
# `programs.attention(None, ..., tokens_first=True)` for attention of any length.

# %% [markdown]
# ## Exercises
#
# `warploom tutorials start my_exercises` writes them with TODOs, and
# `warploom tutorials check my_exercises/exercises/05_dynamic_shapes.py` checks yours.
#
# 1. Twice a matrix of any number of rows.
# 2. A GEMM of any number of rows.
