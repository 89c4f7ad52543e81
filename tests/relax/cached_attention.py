"""Attention through TVM's paged KV cache, beside the same in numpy: what tests of the cache use."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import RopeMode, TIRPagedKVCache

from tests.shared.tile_programs.case import numpy_dtype, precision
from warploom.target import cuda_target

TARGET = cuda_target("h200")
#: The rotary embedding of Llama 3.
_SCALING = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


@dataclass(frozen=True)
class CacheOptions:
    """How a cache is made; ``rope_mode`` and the sizes as ``TIRPagedKVCache`` has them.

    One that is ``latent`` holds the latent vectors of DeepSeek's models (MLA): 512 elements and 64
    rotated ones, of which heads have 192 and 128.
    """

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    dtype: str = "float16"
    rope_mode: RopeMode = RopeMode.NORMAL
    latent: bool = False
    scaled: bool = False

    def module(self) -> tvm.IRModule:
        """A model whose only function, ``create_kv``, makes a cache of one layer."""
        model = _Cache(self)
        spec: dict[str, Any] = dict.fromkeys(("batch", "total", "chunk", "page", "window"), int)
        options = {"param_mode": "none", "effect_mode": "none"}
        return model.export_tvm({"create_kv": {**spec, "$": options}})[0]


class _Cache(nn.Module):
    def __init__(self, options: CacheOptions) -> None:
        self.options = options

    def create_kv(
        self, batch: tirx.Var, total: tirx.Var, chunk: tirx.Var, page: tirx.Var, window: tirx.Var
    ) -> TIRPagedKVCache:
        one = self.options
        return TIRPagedKVCache(
            attn_kind="mla" if one.latent else "mha", max_batch_size=batch, max_total_seq_len=total,
            prefill_chunk_size=chunk, page_size=page, support_sliding_window=window,
            layer_partition=relax.ShapeExpr([0, 1]), num_hidden_layers=1,
            num_attention_heads=one.heads, num_key_value_heads=one.kv_heads,
            qk_head_dim=one.head_dim, v_head_dim=512 if one.latent else one.head_dim,
            mla_original_qk_head_dim=192 if one.latent else 0,
            mla_original_v_head_dim=128 if one.latent else 0, rope_mode=one.rope_mode,
            rope_scale=1, rope_theta=10000, rope_scaling=_SCALING if one.scaled else {},
            rotary_dim=one.head_dim,
            rope_ext_factors=tirx.IntImm("int64", 0),
            enable_disaggregation=False, dtype=one.dtype, target=TARGET,
        )  # fmt: skip


@functools.cache
def executable(options: CacheOptions) -> Any:
    """The model of a cache, built once."""
    return relax.build(options.module(), TARGET)


class CachedAttention:
    """A cache on the device, and the keys and values of its sequences in numpy.

    Parameters
    ----------
    options : CacheOptions
    rng : Generator
        Draws queries, keys and values.
    window : bool
        Whether sequences may have a sliding window.
    """

    def __init__(
        self, options: CacheOptions, rng: np.random.Generator, window: bool = False
    ) -> None:
        self.options, self.rng = options, rng
        machine = relax.VirtualMachine(executable(options), tvm.cuda(0))
        sizes = (8, 1024, 256, 16, int(window))
        self.cache = machine["create_kv"](*(tvm.runtime.ShapeTuple([size]) for size in sizes))
        self.known: dict[int, np.ndarray] = {}
        self.windows: dict[int, tuple[int, int]] = {}
        self.trees: dict[int, list[int]] = {}

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of TVM's runtime with the cache."""
        return tvm.get_global_func(f"vm.builtin.{name}")(self.cache, *arguments)

    def add(self, sequence: int) -> None:
        """Begin a sequence."""
        self.call("kv_state_add_sequence", sequence)
        one = self.options
        self.known[sequence] = np.zeros((2, 0, one.kv_heads, one.head_dim))

    def fork(self, parent: int, child: int, position: int) -> None:
        """Begin a sequence with the first tokens of another; all of them for -1."""
        self.call("kv_state_fork_sequence", parent, child, position)
        tokens = self.known[parent]
        self.known[child] = tokens if position < 0 else tokens[:, :position]

    def pop(self, sequence: int, count: int) -> None:
        """Forget the last tokens of a sequence."""
        self.call("kv_state_popn", sequence, count)
        self.known[sequence] = self.known[sequence][:, : self.known[sequence].shape[1] - count]

    def slide(self, sequence: int, window: int, sink: int) -> None:
        """Let a sequence see its first tokens, and as many of the last as fill the window."""
        self.call("attention_kv_cache_enable_sliding_window_for_seq", sequence, window, sink)
        self.windows[sequence] = window, sink

    def accept(self, leaves: dict[int, int]) -> None:
        """Keep the branches of trees that end with these tokens, and forget the others."""
        shape = tvm.runtime.ShapeTuple
        self.call(
            "attention_kv_cache_commit_accepted_token_tree_nodes", shape(leaves),
            shape(leaves.values()),
        )  # fmt: skip
        for sequence, leaf in leaves.items():
            tree = self.trees.pop(sequence)
            before = self.known[sequence].shape[1] - len(tree)
            branch = np.array([before + token for token in _branch(tree, leaf)])
            kept = np.concatenate([np.arange(before), branch])
            self.known[sequence] = self.known[sequence][:, kept]

    def check(self, lengths: dict[int, int], trees: dict[int, list[int]] | None = None) -> None:
        """Append so many tokens to each sequence, and compare the attention of the new ones.

        Where they form trees, the token before each in its tree is given; -1 for the first ones.
        """
        self.trees = trees or {}
        one, scale = self.options, self.options.head_dim**-0.5 * 1.5
        dtype, count = numpy_dtype(one.dtype), sum(lengths.values())
        both = one.heads + 2 * one.kv_heads
        qkv = self.rng.standard_normal((count, both, one.head_dim)).astype(dtype)
        found = self._attend(lengths, qkv, scale)
        done = 0
        for sequence, length in lengths.items():
            part = slice(done, done + length)
            expected = self._expected(sequence, qkv[part].astype(np.float64), scale)
            bound = 4 * precision(one.dtype) * max(np.abs(expected).max(initial=0), 1)
            assert np.abs(found[part] - expected).max(initial=0) <= bound, (sequence, length)
            done += length

    def _attend(self, lengths: dict[int, int], qkv: np.ndarray, scale: float) -> np.ndarray:
        shape = tvm.runtime.ShapeTuple
        parents = [one for tree in self.trees.values() for one in tree]
        tree = [shape(parents)] if parents else []
        self.call("kv_state_begin_forward", shape(lengths), shape(lengths.values()), *tree)
        one = self.options
        empty = np.full((len(qkv), one.heads, one.head_dim), np.nan, np.float32).astype(qkv.dtype)
        out, tensor = (tvm.runtime.tensor(array, tvm.cuda(0)) for array in (empty, qkv))
        self.call("attention_kv_cache_attention_with_fused_qkv", 0, scale, tensor, out)
        self.call("kv_state_end_forward")
        return out.numpy().astype(np.float64)

    def _expected(self, sequence: int, qkv: np.ndarray, scale: float) -> np.ndarray:
        one, before = self.options, self.known[sequence].shape[1]
        dtype = numpy_dtype(one.dtype)
        positions = before + np.arange(len(qkv))
        if sequence in self.trees:
            tree = self.trees[sequence]
            positions = before + np.array([len(_branch(tree, n)) - 1 for n in range(len(tree))])
        q, k, v = np.split(qkv, (one.heads, one.heads + one.kv_heads), axis=1)
        if one.rope_mode != RopeMode.NONE:
            q, k = (_rotated(part, positions).astype(dtype).astype(np.float64) for part in (q, k))
        tokens = np.concatenate([self.known[sequence], np.stack([k, v])], axis=1)
        self.known[sequence] = tokens
        keys, values = np.repeat(tokens, one.heads // one.kv_heads, axis=2)
        logits = np.einsum("qhd,khd->hqk", q, keys) * scale
        logits = np.where(self._sees(sequence, before, tokens.shape[1]), logits, -np.inf)
        weights = np.exp(logits - logits.max(axis=2, keepdims=True, initial=-1e30))
        weights /= weights.sum(axis=2, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights, values)

    def _sees(self, sequence: int, before: int, count: int) -> np.ndarray:
        tokens = np.arange(count)
        sees = tokens <= np.arange(before, count)[:, None]
        if sequence in self.trees:
            for number in range(count - before):
                branch = _branch(self.trees[sequence], number)
                sees[number, before:] = np.isin(tokens[before:] - before, branch)
        if sequence not in self.windows:
            return sees
        # The window holds what was there before; the cache slides when it has been read.
        window, sink = self.windows[sequence]
        return sees & ((tokens < sink) | (tokens >= before - (window - sink)))


def _branch(tree: list[int], token: int) -> list[int]:
    """The tokens from the root of a tree to one of its tokens."""
    branch = []
    while token >= 0:
        branch.append(token)
        token = tree[token]
    return branch[::-1]


def _rotated(heads: np.ndarray, positions: np.ndarray) -> np.ndarray:
    half = heads.shape[2] // 2
    angles = positions[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    x, y = heads[..., :half], heads[..., half:]
    return np.concatenate([x * cos - y * sin, y * cos + x * sin], axis=2)
