"""Language models in ``relax.frontend.nn`` with TVM's paged KV cache, as MLC-LLM writes them."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache
from tvm.target import Target

from warploom_bench.models.experts import Experts
from warploom_bench.models.latent import LatentAttention
from warploom_bench.models.linears import linear
from warploom_bench.models.sizes import LanguageSizes

PAGE = 16
EPSILON = 1e-5
DTYPE = "float16"


def rms_norm(width: int) -> nn.Module:
    """The norm of all these models."""
    return nn.RMSNorm(width, -1, epsilon=EPSILON, bias=False, dtype=DTYPE)


class Attention(nn.Module):
    """Grouped queries through the cache, which rotates queries and keys."""

    def __init__(self, sizes: LanguageSizes) -> None:
        self.sizes = sizes
        self.qkv = linear(*sizes.projections["qkv"], sizes.weights, sizes.bias)
        self.out = linear(*sizes.projections["out"], sizes.weights)

    def forward(self, x: nn.Tensor, cache: PagedKVCache, layer: int) -> nn.Tensor:
        batch, rows, _ = x.shape
        heads, depth = self.sizes.heads, self.sizes.head_dim
        qkv = op.reshape(self.qkv(x), (batch, rows, heads + 2 * self.sizes.kv_heads, depth))
        found = cache.attention_with_fused_qkv(layer, qkv, heads, sm_scale=depth**-0.5)
        return self.out(op.reshape(found, (batch, rows, heads * depth)))


class Swiglu(nn.Module):
    """``down(silu(gate(x)) * up(x))``."""

    def __init__(self, sizes: LanguageSizes) -> None:
        self.gate_up = linear(*sizes.projections["gate_up"], sizes.weights)
        self.down = linear(*sizes.projections["down"], sizes.weights)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        gate, up = op.split(self.gate_up(x), 2, -1)
        return self.down(op.silu(gate) * up)


class Layer(nn.Module):
    """``h = x + attention(norm(x))``, then ``h + mlp(norm(h))``."""

    def __init__(self, sizes: LanguageSizes) -> None:
        self.attention_norm, self.mlp_norm = rms_norm(sizes.hidden), rms_norm(sizes.hidden)
        self.attention = LatentAttention(sizes) if sizes.latent else Attention(sizes)
        self.mlp = Experts(sizes) if sizes.experts else Swiglu(sizes)

    def forward(self, x: nn.Tensor, cache: PagedKVCache, layer: int) -> nn.Tensor:
        x = self.attention(self.attention_norm(x), cache, layer) + x
        return self.mlp(self.mlp_norm(x)) + x


class LanguageModel(nn.Module):
    """Embedding, layers and head; its methods are what a server calls.

    ``prefill`` takes the tokens of one sequence ``[1, n]``, ``decode`` one token of each sequence
    ``[b, 1]``; both return float32 logits behind the last token of each.
    """

    def __init__(self, sizes: LanguageSizes, target: Target) -> None:
        self.sizes, self.target = sizes, target
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden, dtype=DTYPE)
        self.layers = nn.ModuleList([Layer(sizes) for _ in range(sizes.layers)])
        self.norm = rms_norm(sizes.hidden)
        self.head = linear(sizes.vocabulary, sizes.hidden, sizes.weights)

    def _run(self, ids: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        x = self.embedding(ids)
        for number, layer in enumerate(self.layers):
            x = layer(x, cache, number)
        return self.norm(x)

    def prefill(self, ids: nn.Tensor, cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        def last(x: te.Tensor) -> te.Tensor:
            batch, rows, width = x.shape
            return te.compute((batch, 1, width), lambda i, _, k: x[i, rows - 1, k], name="last")

        x = op.tensor_expr_op(last, "last", [self._run(ids, cache)])
        return op.astype(self.head(x), "float32"), cache

    def decode(self, ids: nn.Tensor, cache: PagedKVCache) -> tuple[nn.Tensor, PagedKVCache]:
        return op.astype(self.head(self._run(ids, cache)), "float32"), cache

    def create_cache(
        self, batch: tirx.Var, total: tirx.Var, chunk: tirx.Var, page: tirx.Var, window: tirx.Var
    ) -> PagedKVCache:
        one = self.sizes
        latent = one.latent > 0
        depth = one.latent + one.rotated if latent else one.head_dim
        return TIRPagedKVCache(
            attn_kind="mla" if latent else "mha", max_batch_size=batch, max_total_seq_len=total,
            prefill_chunk_size=chunk, page_size=page, support_sliding_window=window,
            layer_partition=relax.ShapeExpr([0, one.layers]), num_hidden_layers=one.layers,
            num_attention_heads=one.heads, num_key_value_heads=1 if latent else one.kv_heads,
            qk_head_dim=depth, v_head_dim=one.latent if latent else depth,
            mla_original_qk_head_dim=one.query_dim if latent else 0,
            mla_original_v_head_dim=one.head_dim if latent else 0,
            rope_mode=RopeMode.NONE if latent else RopeMode.NORMAL, rope_scale=1,
            rope_theta=int(one.theta), rope_scaling={},
            rope_ext_factors=tirx.IntImm("int64", 0), rotary_dim=depth,
            enable_disaggregation=False, dtype=DTYPE, target=self.target,
        )  # fmt: skip


def language_module(sizes: LanguageSizes, target: Target, cache_only: bool = False) -> tvm.IRModule:
    """The model before any pass.

    With ``cache_only`` it has but the function that creates a cache, and so its kernels.
    """
    packed = {"param_mode": "packed", "effect_mode": "none"}
    cache = nn.spec.Object(object_type=PagedKVCache)
    sizes_of_cache: dict[str, Any] = dict.fromkeys(
        ("batch", "total", "chunk", "page", "window"), int
    )
    functions = {
        "create_cache": {**sizes_of_cache, "$": {"param_mode": "none", "effect_mode": "none"}}
    }
    if not cache_only:
        functions |= {
            "prefill": {"ids": nn.spec.Tensor([1, "n"], "int32"), "cache": cache, "$": packed},
            "decode": {"ids": nn.spec.Tensor(["b", 1], "int32"), "cache": cache, "$": packed},
        }
    return LanguageModel(sizes, target).export_tvm(functions)[0]


def parameter_shapes(
    sizes: LanguageSizes, target: Target
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each parameter, in the order in which the functions take them."""
    return {
        name: (tuple(int(extent) for extent in one.shape), one.dtype)
        for name, one in LanguageModel(sizes, target).named_parameters()
    }
