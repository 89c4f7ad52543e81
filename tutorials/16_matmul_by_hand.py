# %% [markdown]
# # A matmul by hand: work between the instructions
#
#     python tutorials/16_matmul_by_hand.py
#
# **Time:** 20 minutes.
#
# `Tx.wg.gemm_async` issues all instructions of a matmul at once. That is what one wants, unless
# the operand is still being made: here A passes through SiLU first, C = silu(A) Bᵀ. If all of A
# were activated before the matmul, the tensor core would wait for it. `wl.WgmmaEmitter` issues
# one instruction at a time, and the activation of the next 16 columns runs under the matmul of
# those before.

# %%
import numpy as np
import tvm
from tvm.backend.cuda.lang.pipeline import TMABar
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import emulator
from warploom import language as wl
from warploom.target import cuda_target

emulator.enable_without_gpu()
M, N, K = 128, 64, 128

# %% [markdown]
# ## A matmul as data
#
# The emitter knows the shape of the matmul and how its operands lie. It is a grid of *atoms*, one
# `wgmma` each: 64 rows, up to 256 columns, 32 bytes of K. An illegal shape or type is refused here.

# %%
emitter = wl.WgmmaEmitter.of(64, N, K, "float16", a_in_registers=True)
print(
    f"{emitter.instructions} instructions: {emitter.blocks} block of rows, widths "
    f"{emitter.widths}, {emitter.steps} steps of K; {emitter.a_registers} registers of a thread "
    f"hold A, {emitter.d_registers} hold D; {emitter.b.wgmma}"
)
assert (emitter.instructions, emitter.a_registers, emitter.d_registers) == (8, 32, 32)

# %% [markdown]
# ## The kernel
#
# `activate_and_multiply` is Python that runs while the kernel is written: its loop is unrolled, as
# it must be, since registers have no index. For each step of K it activates 16 columns, and issues
# the atom that reads them. Three things keep that right:
#
# * `arrive()` (`wgmma.fence`) stands between what threads write to registers and the atom that
#   reads them;
# * `commit()` and `wait(0)` stand between the atoms and whoever uses D, or overwrites A or B;
# * both name no register, so `fence_a` and `fence_d` keep the compiler from moving arithmetic over
#   them. They cost no instruction.


# %%
def activate_and_multiply(acc, raw, held, b, fence):
    for step in range(emitter.steps):
        columns = slice(step * emitter.kind.k, (step + 1) * emitter.kind.k)
        Tx.wg.silu(held[:, columns], raw[:, columns])
        emitter.fence_a(held[:, columns])
        if fence:
            emitter.arrive()
        emitter.rs_atom(acc, held, b, 0, 0, step, accum=False)


def make(fence=True):
    @T.prim_func
    def silu_matmul(
        A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"),
        C: T.Buffer((M, N), "float32"),
    ):  # fmt: skip
        T.device_entry()
        tile = T.cta_id([M // 64])
        T.warpgroup_id([1])
        thread = T.thread_id_in_wg([128])
        pool = T.SMEMPool()
        B_s = pool.alloc((N, K), "float16", align=1024, layout=emitter.b_shared_layout())
        full = TMABar(pool, 1)
        pool.commit()
        full.init(1)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if thread == 0:
            full.arrive(0, N * K * 2)
            Tx.copy_async(B_s[:, :], B[:, :], dispatch="tma_auto", mbar=full.ptr_to([0]))
        raw = T.alloc_buffer((64, K), "float16", scope="local", layout=emitter.a_layout)
        held = T.alloc_buffer((64, K), "float16", scope="local", layout=emitter.a_layout)
        acc = T.alloc_buffer((64, N), "float32", scope="local", layout=emitter.d_layout)
        Tx.wg.copy(raw[:, :], A[tile * 64 : tile * 64 + 64, :])
        full.wait(0, 0)
        b: T.uint64 = emitter.b_descriptor(B_s)
        activate_and_multiply(acc, raw, held, b, fence)
        emitter.commit()
        emitter.wait(0)
        emitter.fence_d(acc)
        Tx.wg.copy(C[tile * 64 : tile * 64 + 64, :], acc[:, :])

    return silu_matmul


# %%
module = tvm.IRModule({"main": make()})
executable = tvm.compile(module, cuda_target("h200"), tir_pipeline="warploom")
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape, np.float32).astype("float16") for shape in ((M, K), (N, K)))
c = tvm.runtime.tensor(np.full((M, N), np.nan, np.float32), tvm.cuda(0))
executable["main"](*(tvm.runtime.tensor(x, tvm.cuda(0)) for x in (a, b)), c)
wide = a.astype(np.float64)
expected = (wide / (1 + np.exp(-wide))).astype("float16").astype(np.float64) @ b.astype(float).T
error = np.abs(c.numpy() - expected).max()
print(f"largest error {error:.2g}")
assert error < 0.02

# %% [markdown]
# ## What a missing fence does
#
# On a GPU, mostly nothing, until it does. The emulator executes the same PTX and knows which
# registers were written without a fence before the matmul that reads them:

# %%
try:
    emulator.run(make(fence=False), [a, b, np.zeros((M, N), np.float32)])
    raise AssertionError("the emulator should have found the missing fence")
except emulator.EmulatorError as report:
    print(report)
    assert "wgmma register race" in str(report) and "no wgmma.fence" in str(report)

# %% [markdown]
# `19_attention_by_hand.py` does the same with a softmax between two matmuls;
# its machine code has exponentials between the instructions of the second one.
