# %% [markdown]
# # Put your own pass between ours: another order of tiles
#
#     python tutorials/20_own_pass.py
#
# **Time:** 25 minutes.
#
# A tile program is lowered by passes of TVM, each from PrimFunc to PrimFunc: `warploom.transform`
# has them by name. They work alone and in `tvm.transform.Sequential`, `PassContext(instruments=…)`
# sees every one of them, and what they tell each other is in the function, where it is printed and
# parsed. So a pass of yours can stand anywhere between them.

# %%
import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from warploom import emulator
from warploom import language as wl
from warploom.lower.trace import LoweringTrace

M, N, K = 256, 256, 128
BM, BN, BK = 64, 64, 64
TILES = (M // BM) * (N // BN)


# %%
@T.prim_func
def matmul(
    A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"), C: T.Buffer((M, N), "float16")
):
    T.device_entry()
    i, j = T.cta_id([M // BM, N // BN])
    A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
    B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
    acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
    out = T.alloc_buffer((BM, BN), "float16", scope="fragment")
    for k in wl.pipelined(K // BK):
        Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
        Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, k * BK : k * BK + BK])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    Tx.cta.cast(out, acc)
    Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], out)


# %% [markdown]
# ## A few passes, and what they leave
#
# `ChooseGrid` makes each thread block work on tile after tile. Its loop has the annotation
# `warploom.tiles`, and the scalar `tile` counts the tiles of the whole matrix.

# %%
first = tvm.transform.Sequential(
    [
        warploom.transform.CheckProgram("sm_90a"),
        warploom.transform.Canonicalize(),
        warploom.transform.ChooseGrid(),
    ]
)
mod = first(tvm.IRModule({"main": matmul}))
print(mod["main"].script())

# %% [markdown]
# ## The pass
#
# The last tile is computed first. Nothing here is special to warploom: it is a pass on PrimFuncs.


# %%
@tvm.tirx.transform.prim_func_pass(opt_level=0, name="ReverseTiles")
def reverse_tiles(func, _mod, _context):
    def store(one: tirx.BufferStore) -> tirx.Stmt:
        if one.buffer.name != "tile":
            return one
        return tirx.BufferStore(one.buffer, TILES - 1 - one.value, one.indices)

    body = tvm_ffi.structural_map(func.body, (tirx.BufferStore, store), order="post")
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


# %% [markdown]
# Until roles part, a program still says what one thread block does, one statement after the other:
# `wl.interpret` runs it, and so tells whether a pass has kept its meaning.

# %%
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape).astype("float16") for shape in ((M, K), (N, K)))
expected = a.astype("float32") @ b.astype("float32").T
for one in (matmul, mod["main"], reverse_tiles(mod)["main"]):
    got = np.full((M, N), np.nan, "float16")
    wl.interpret(one, [a, b, got])
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-2)

# %% [markdown]
# ## In a compilation
#
# The option `warploom.add_lower_pass` of TVM's `PassContext` names the pass that yours comes after.
# `LoweringTrace` is an instrument that keeps the program after every pass, with what was decided
# and why.

# %%
trace = LoweringTrace()
config = {"warploom.add_lower_pass": [("ChooseGrid", reverse_tiles)], "warploom.stages": 2}
with tvm.transform.PassContext(config=config, instruments=[trace]):
    executable = tvm.compile(
        tvm.IRModule({"main": matmul}), warploom.cuda_target("h200"), tir_pipeline="warploom"
    )
for step in trace.steps:
    print(step.name, *step.decisions, sep="\n    ")

# %% [markdown]
# Every hint is an option, too: `warploom.stages` above holds for all programs whose author has not
# said how many stages their loops have.

# %%
with tvm.transform.PassContext(config=config):
    result = emulator.run(matmul, [a, b, np.full((M, N), np.nan, "float16")], checks=True)
np.testing.assert_allclose(result.outputs[-1], expected, rtol=2e-3, atol=2e-2)
print("the result is right, and free of races")
