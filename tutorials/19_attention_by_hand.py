# %% [markdown]
# # Attention by hand: a softmax between the instructions of two MMAs
#
# **Time:** 40 minutes.
#
# A tile program (`18_flash_attention.py`) leaves to the passes what runs beside what. Here the
# author says it, with `wl.WgmmaEmitter`, in one warpgroup a CTA: the weights of 16 keys are
# computed and rounded while the tensor core multiplies those of the 16 keys before, and their sum
# is formed while it multiplies the last.
#
# Three rules of `wgmma` show (PTX ISA, asynchronous warpgroup instructions):
#
# * a `wgmma.fence` (`arrive`) between what threads write to A's registers and the instruction that
#   reads them, so one before each atom;
# * a `wait_group` (`wait`) between an MMA and what uses its result, or writes what it reads: the
#   scores before the softmax, the output before it is rescaled, the weights and a stage of K and V
#   before they are overwritten;
# * an operand fence beside each of them (`fence_d`, `fence_a`), since the two above name no
#   register, and the compiler may move arithmetic across them.

# %%
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm.backend.cuda.lang.pipeline import PipelineState, TMABar
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import S, TileLayout

from warploom import emulator
from warploom import language as wl
from warploom.kernels.load import load_tile
from warploom.layout.fragment import row_fragment
from warploom.target import cuda_target

# %% [markdown]
# ## The kernel
#
# `O = softmax(Q K^T / sqrt(head_dim)) V` for each head. All tensors are
# `(heads, tokens, head_dim)`, for any number of tokens above 1. `keys` are those of one step;
# `stages` blocks of K and V are in shared memory.


# %%
@dataclass(frozen=True)
class Head:
    """One head of a tensor ``(heads, tokens, head_dim)``, as a matrix."""

    tensor: Any
    head: Any

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        return self.tensor[(self.head, *index)]


def attention(tokens, head_dim=64, heads=1, keys=64, stages=2, dtype="float16"):
    rows = 64  # of one wgmma
    logits = wl.WgmmaEmitter.of(rows, keys, head_dim, dtype)
    mix = wl.WgmmaEmitter.of(rows, head_dim, keys, dtype, a_in_registers=True, b_major="MN")
    blocks = -(-tokens // keys)
    block_bytes = 2 * keys * head_dim * logits.b.element_bytes
    q_bytes = rows * head_dim * logits.b.element_bytes
    scale = math.log2(math.e) / math.sqrt(head_dim)

    def mask(scores: Any, first_key: Any, lane: Any) -> None:
        """Scores of keys that do not exist are minus infinity."""
        count = rows * keys // 128
        words = scores.local(count, layout=TileLayout(S[(count,)]))
        for at in range(count):
            key = first_key + at // 4 * 8 + lane % 4 * 2 + at % 2
            value = T.if_then_else(key < tokens, words[at], T.float32("-inf"))
            T.buffer_store(words, value, [at])

    def weigh(out: Any, scores: Any, largest: Any, weights: Any, values: Any) -> None:
        """Issue the MMAs of 16 keys as soon as their weights are there, then the next 16."""
        for step in range(mix.steps):
            columns = slice(step * mix.kind.k, (step + 1) * mix.kind.k)
            Tx.wg.sub(scores[:, columns], scores[:, columns], largest)
            Tx.wg.exp2(scores[:, columns], scores[:, columns])
            Tx.wg.cast(weights[:, columns], scores[:, columns])
            mix.fence_a(weights[:, columns])
            mix.arrive()
            mix.rs_atom(out, weights, values, 0, 0, step)

    @T.prim_func
    def kernel(q: T.handle, k: T.handle, v: T.handle, o: T.handle):
        Q = T.match_buffer(q, (heads, tokens, head_dim), dtype, align=16)
        K = T.match_buffer(k, (heads, tokens, head_dim), dtype, align=16)
        V = T.match_buffer(v, (heads, tokens, head_dim), dtype, align=16)
        Out = T.match_buffer(o, (heads, tokens, head_dim), dtype, align=16)
        T.device_entry()
        block, head = T.cta_id([-(-tokens // rows), heads])
        T.warpgroup_id([1])
        lane = T.lane_id([32])
        thread = T.thread_id_in_wg([128])
        pool = T.SMEMPool()
        Q_s = pool.alloc((1, rows, head_dim), dtype, align=1024, layout=logits.a_shared_layout(1))
        K_s = pool.alloc(
            (stages, keys, head_dim), dtype, align=1024, layout=logits.b_shared_layout(stages)
        )
        V_s = pool.alloc(
            (stages, keys, head_dim), dtype, align=1024, layout=mix.b_shared_layout(stages)
        )
        q_full, full = TMABar(pool, 1), TMABar(pool, stages)
        pool.commit()
        q_full.init(1)
        full.init(1)
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()

        @T.inline
        def load(step, stage):
            bar = T.meta_var(full.ptr_to([stage]))
            full.arrive(stage, block_bytes)
            load_tile(K_s, logits.b, stage, Head(K, head), (step * keys, 0), bar)
            load_tile(V_s, mix.b, stage, Head(V, head), (0, step * keys), bar)

        if thread == 0:
            q_full.arrive(0, q_bytes)
            load_tile(Q_s, logits.a, 0, Head(Q, head), (block * rows, 0), q_full.ptr_to([0]))
            for first in T.unroll(min(stages, blocks)):
                load(first, first)

        row_layout = T.meta_var(row_fragment(rows))
        scores = T.alloc_buffer((rows, keys), "float32", scope="local", layout=logits.d_layout)
        weights = T.alloc_buffer((rows, keys), dtype, scope="local", layout=mix.a_layout)
        out = T.alloc_buffer((rows, head_dim), "float32", scope="local", layout=mix.d_layout)
        rounded = T.alloc_buffer((rows, head_dim), dtype, scope="local", layout=mix.d_layout)
        largest = T.alloc_buffer((rows, 1), "float32", scope="local", layout=row_layout)
        shrink = T.alloc_buffer((rows, 1), "float32", scope="local", layout=row_layout)
        total = T.alloc_buffer((rows, 1), "float32", scope="local", layout=row_layout)
        Tx.wg.fill(largest, T.float32("-inf"))
        Tx.wg.fill(total, T.float32(0))
        Tx.wg.fill(out, T.float32(0))
        q_full.wait(0, 0)
        ring = PipelineState(stages, 0)
        for step in T.serial(blocks):
            # TVM gives a dimension of extent 1 no stride: it is indexed with a number.
            stage = T.meta_var(ring.stage if stages > 1 else 0)
            full.wait(stage, ring.phase)
            logits.arrive()
            logits.ss(scores, Q_s[0, :, :], K_s[stage, :, :], accum=False)
            logits.commit()
            logits.wait(0)
            logits.fence_d(scores)
            Tx.wg.mul(scores, scores, T.float32(scale))
            if (step + 1) * keys > tokens:
                mask(scores, step * keys, lane)
            Tx.wg.cast(shrink, largest)
            Tx.wg.max(largest, scores, axes=(1,), accum=True)
            Tx.wg.sub(shrink, shrink, largest)
            Tx.wg.exp2(shrink, shrink)
            Tx.wg.mul(total, total, shrink)
            Tx.wg.mul(out, out, shrink)
            mix.fence_d(out)
            values: T.uint64 = mix.b_descriptor(V_s[stage, :, :])
            weigh(out, scores, largest, weights, values)
            mix.commit()
            Tx.wg.sum(total, scores, axes=(1,), accum=True)
            mix.wait(0)
            mix.fence_d(out)
            # A wait is over when the MMAs of all four warps are: nobody reads the stage.
            if thread == 0 and step + stages < blocks:
                load(step + stages, stage)
            ring.advance()
        Tx.wg.fdiv(out, out, total)
        Tx.wg.cast(rounded, out)
        Tx.wg.copy(Out[head, block * rows : block * rows + rows, :], rounded)

    return kernel


# %% [markdown]
# ## Run and check
#
# Without a GPU the emulator runs it, and reports every register that is read too early.

# %%
HEADS, TOKENS, HEAD_DIM = 2, 150, 64


def check():
    executable = tvm.compile(
        tvm.IRModule({"main": attention(TOKENS, HEAD_DIM, HEADS)}),
        cuda_target("h200"), tir_pipeline="tirx",
    )  # fmt: skip
    rng = np.random.default_rng(1)
    shape = (HEADS, TOKENS, HEAD_DIM)
    q, k, v = (rng.standard_normal(shape, np.float32).astype(np.float16) for _ in "qkv")
    arrays = (q, k, v, np.full(shape, np.nan, np.float16))
    tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays]
    executable["main"](*tensors)
    q, k, v = (one.astype(np.float64) for one in (q, k, v))
    weights = np.exp(q @ k.transpose(0, 2, 1) / math.sqrt(HEAD_DIM))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    error = np.abs(tensors[-1].numpy() - expected).max()
    print(f"largest error {error:.1e}")
    assert error < 2**-8


if __name__ == "__main__":
    emulator.enable_without_gpu()
    check()

# %% [markdown]
# Its machine code has exponentials between the instructions of the second MMA
# (`warploom.compile_report(executable)` counts instructions where the CUDA toolkit is installed).
