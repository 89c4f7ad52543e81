"""A model that does nothing but attend through a cache, beside the same in numpy, for its graphs.

Its kernels are TVM's own, which compile in seconds; graphs do not ask whose kernels they have.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any
from unittest import mock

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache

from warploom.relax import cuda_graph
from warploom.relax.pipeline import SWITCH
from warploom.target import cuda_target

HEADS, KV_HEADS, DIM, LAYERS, PAGE = 2, 1, 64, 2, 16
_TARGET = cuda_target("h200")
_WIDTH = HEADS + 2 * KV_HEADS


class _Model(nn.Module):
    def attend(self, x: nn.Tensor, cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        """The sum of what all layers find; each has queries, keys and values half as large."""
        total = None
        for layer in range(LAYERS):
            found = cache.attention_with_fused_qkv(layer, x, HEADS, sm_scale=DIM**-0.5)
            total = found if total is None else total + found
            x = x * 0.5
        return total, cache

    def first(self, x: nn.Tensor, cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        return self.attend(x, cache)

    def create(
        self, batch: tirx.Var, total: tirx.Var, chunk: tirx.Var, page: tirx.Var, window: tirx.Var
    ) -> PagedKVCache:
        return TIRPagedKVCache(
            attn_kind="mha", max_batch_size=batch, max_total_seq_len=total,
            prefill_chunk_size=chunk, page_size=page, support_sliding_window=window,
            layer_partition=relax.ShapeExpr([0, LAYERS]), num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, qk_head_dim=DIM,
            v_head_dim=DIM, mla_original_qk_head_dim=0, mla_original_v_head_dim=0,
            rope_mode=RopeMode.NONE, rope_scale=1, rope_theta=10000, rope_scaling={},
            rope_ext_factors=tirx.IntImm("int64", 0), rotary_dim=DIM,
            enable_disaggregation=False, dtype="float16", target=_TARGET,
        )  # fmt: skip


@functools.cache
def _executable() -> Any:
    cache = nn.spec.Object(object_type=PagedKVCache)
    options = {"param_mode": "none", "effect_mode": "none"}
    sizes: dict[str, Any] = dict.fromkeys(("batch", "total", "chunk", "page", "window"), int)
    module = _Model().export_tvm({
        "attend": {"x": nn.spec.Tensor(["b", 1, _WIDTH, DIM], "float16"), "cache": cache,
                   "$": options},
        "first": {"x": nn.spec.Tensor([1, "n", _WIDTH, DIM], "float16"), "cache": cache,
                  "$": options},
        "create": {**sizes, "$": options},
    })[0]  # fmt: skip
    with mock.patch.dict(os.environ, {SWITCH: "0"}):
        return relax.build(module, _TARGET)


class GraphedAttention:
    """Sequences in a cache, and all their queries, keys and values in numpy.

    Attributes
    ----------
    attend : GraphFunction
        A step of one token of each sequence.
    known : dict of int to numpy.ndarray
        Of each sequence ``[tokens, heads, d]``.
    """

    def __init__(self, rng: np.random.Generator, sequences: int = 8, tokens: int = 2048) -> None:
        self.rng, self.device = rng, tvm.cuda(0)
        self.known: dict[int, np.ndarray] = {}
        self.machine = relax.VirtualMachine(_executable(), self.device)
        self.attend = cuda_graph(self.machine, "attend")
        self.open(sequences, tokens)

    def open(self, sequences: int, tokens: int) -> None:
        """An empty cache, in the place of the one before."""
        self.known.clear()
        self.cache = None
        shape = tvm.runtime.ShapeTuple
        sizes = (sequences, tokens, 256, PAGE, 0)
        self.cache = self.machine["create"](*(shape([size]) for size in sizes))

    def call(self, name: str, *arguments: Any) -> Any:
        """A function of the cache's state."""
        return tvm.get_global_func(f"vm.builtin.kv_state_{name}")(self.cache, *arguments)

    def add(self, sequence: int, tokens: int) -> None:
        """A new sequence."""
        self.call("add_sequence", sequence)
        self.known[sequence] = np.zeros((0, _WIDTH, DIM))
        new = self.random(tokens)
        self._forward(self.machine["first"], {sequence: new}, new[None])

    def fork(self, sequence: int, new: int, tokens: int) -> None:
        """A new sequence that begins with tokens of another."""
        self.call("fork_sequence", sequence, new, tokens)
        self.known[new] = self.known[sequence][:tokens]

    def pop(self, sequence: int, tokens: int) -> None:
        """Forget the last tokens of a sequence."""
        self.call("popn", sequence, tokens)
        self.known[sequence] = self.known[sequence][:-tokens]

    def remove(self, sequence: int) -> None:
        """End a sequence."""
        self.call("remove_sequence", sequence)
        del self.known[sequence]

    def step(self, *sequences: int, x: Any = None) -> np.ndarray:
        """Attend a token of each sequence, and compare; returns what was found."""
        new = self.random(len(sequences)) if x is None else x.numpy()[:, 0]
        rows = {each: new[i : i + 1] for i, each in enumerate(sequences)}
        found = self._forward(self.attend, rows, new[:, None], x)
        for row, each in zip(found, sequences, strict=True):
            wanted = expected(self.known[each])
            assert np.abs(row[0] - wanted).max() <= 4e-3 * max(1, np.abs(wanted).max())
        return found

    def random(self, rows: int) -> np.ndarray:
        """Queries, keys and values."""
        return self.rng.standard_normal((rows, _WIDTH, DIM)).astype("float16")

    def _forward(
        self, function: Any, rows: Mapping[int, np.ndarray], array: np.ndarray, x: Any = None
    ) -> np.ndarray:
        shape = tvm.runtime.ShapeTuple
        self.call("begin_forward", shape(rows), shape([len(one) for one in rows.values()]))
        found = function(tvm.runtime.tensor(array, self.device) if x is None else x, self.cache)
        self.call("end_forward")
        assert found[1].same_as(self.cache)
        for sequence, new in rows.items():
            self.known[sequence] = np.concatenate([self.known[sequence], new.astype(float)])
        return found[0].numpy().astype(float)


def expected(qkv: np.ndarray) -> np.ndarray:
    """What the last token of a sequence finds, ``[heads, d]``."""
    total = np.zeros((HEADS, DIM))
    for layer in range(LAYERS):
        q, k, v = np.split(qkv * 0.5**layer, (HEADS, HEADS + KV_HEADS), axis=1)
        k, v = (np.repeat(one, HEADS // KV_HEADS, axis=1) for one in (k, v))
        logits = np.einsum("hd,khd->hk", q[-1], k) * DIM**-0.5
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        total += np.einsum("hk,khd->hd", shares / shares.sum(-1, keepdims=True), v)
    return total
