"""Latent attention (MLA) with TVM's paged KV cache, as MLC-LLM writes DeepSeek's models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache

from tests.shared.tile_programs.case import numpy_dtype, precision
from warploom.relax.inspect import inspect
from warploom.relax.kv_cache import left_to_tvm
from warploom.target import cuda_target

_TARGET = cuda_target("h200")
_LAYERS, _PROMPT, _MORE, _BATCH, _THETA = 2, 19, 5, 2, 1e4


@dataclass(frozen=True)
class Sizes:
    """Elements of parts of a model; heads have ``plain`` and ``rotated`` elements of q and k."""

    dtype: str
    heads: int = 4
    hidden: int = 128
    latent: int = 128
    plain: int = 128
    rotated: int = 64
    value: int = 128
    sign: int = 1

    @property
    def scale(self) -> float:
        return float(self.sign * (self.plain + self.rotated) ** -0.5)


def _rotate(x: nn.Tensor, positions: nn.Tensor) -> nn.Tensor:
    """The rotary embedding of (batch, tokens, heads, elements), halves beside each other."""

    def rotated(x: te.Tensor, positions: te.Tensor) -> te.Tensor:
        tokens, half = x.shape[1], x.shape[3] // 2

        def element(b: Any, s: Any, h: Any, d: Any) -> Any:
            exponent = tirx.Cast("float32", d % half) * (-1.0 / half)
            angle = tirx.Cast("float32", positions[b * tokens + s]) * tirx.power(
                tirx.const(_THETA, "float32"), exponent
            )
            here = tirx.Cast("float32", x[b, s, h, d])
            partner = x[b, s, h, tirx.if_then_else(d < half, d + half, d - half)]
            other = tirx.Cast("float32", partner)
            sin = tirx.if_then_else(d < half, -tirx.sin(angle), tirx.sin(angle))
            return tirx.Cast(x.dtype, here * tirx.cos(angle) + other * sin)

        return te.compute(x.shape, element, name="rotated")

    return op.tensor_expr_op(rotated, "rotate", [x, positions])


class _Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        self.sizes = one = sizes
        self.norm = nn.RMSNorm(one.hidden, -1, bias=False)
        self.q = nn.Linear(one.hidden, one.heads * (one.plain + one.rotated), bias=False)
        self.down = nn.Linear(one.hidden, one.latent + one.rotated, bias=False)
        self.latent_norm = nn.RMSNorm(one.latent, -1, bias=False)
        self.up = nn.Linear(one.latent, one.heads * (one.plain + one.value), bias=False)
        # The weights of `up` once more, of keys and of values, for latents that are not projected.
        self.up_k = nn.Parameter((one.heads, one.latent, one.plain))
        self.up_v = nn.Parameter((one.heads, one.value, one.latent))
        self.out = nn.Linear(one.heads * one.value, one.hidden, bias=False)

    def forward(
        self, x: nn.Tensor, cache: PagedKVCache, number: int, positions: nn.Tensor, mode: str
    ) -> tuple[nn.Tensor, PagedKVCache]:
        one = self.sizes
        batch, tokens, _ = x.shape
        normed = self.norm(x)
        q = op.reshape(self.q(normed), (batch, tokens, one.heads, one.plain + one.rotated))
        q, q_rotated = op.split(q, [one.plain], axis=-1)
        down = op.reshape(self.down(normed), (batch, tokens, 1, one.latent + one.rotated))
        latent, k_rotated = op.split(down, [one.latent], axis=-1)
        latent = self.latent_norm(latent)
        q_rotated, k_rotated = (_rotate(part, positions) for part in (q_rotated, k_rotated))
        cache = cache.append_mla_kv(number, op.concat([latent, k_rotated], dim=-1))
        if mode == "decode":
            mixed, _ = self._to_cache(q, q_rotated, cache, number)
        else:
            mixed, lse = self._to_itself(q, q_rotated, latent, k_rotated, cache, number)
            if mode == "extend":
                before, lse_before = self._to_cache(q, q_rotated, cache, number)
                mixed, _ = cache.merge_attn_output_inplace(mixed, lse, before, lse_before)
        mixed = op.reshape(mixed, (batch, tokens, one.heads * one.value))
        return self.out(mixed) + x, cache

    def _to_itself(
        self, q: nn.Tensor, q_rotated: nn.Tensor, latent: nn.Tensor, k_rotated: nn.Tensor,
        cache: PagedKVCache, number: int,
    ) -> tuple[nn.Tensor, nn.Tensor]:  # fmt: skip
        one = self.sizes
        batch, tokens, heads, _ = q.shape
        both = op.reshape(self.up(latent), (batch, tokens, heads, one.plain + one.value))
        k, v = op.split(both, [one.plain], axis=-1)
        k_rotated = op.broadcast_to(k_rotated, (batch, tokens, heads, one.rotated))
        q, k = op.concat([q, q_rotated], dim=-1), op.concat([k, k_rotated], dim=-1)
        return cache.self_attention(number, q, k, v, one.scale)

    def _to_cache(
        self, q: nn.Tensor, q_rotated: nn.Tensor, cache: PagedKVCache, number: int
    ) -> tuple[nn.Tensor, nn.Tensor]:
        one = self.sizes
        batch, tokens, heads, _ = q.shape
        by_head = op.permute_dims(op.reshape(q, (batch * tokens, heads, one.plain)), [1, 0, 2])
        by_head = op.matmul(by_head, op.permute_dims(self.up_k, [0, 2, 1]))
        q = op.reshape(op.permute_dims(by_head, [1, 0, 2]), (batch, tokens, heads, one.latent))
        found, lse = cache.cross_attention(
            number, op.concat([q, q_rotated], dim=-1), v_head_dim=one.latent, sm_scale=one.scale
        )
        by_head = op.permute_dims(op.reshape(found, (batch * tokens, heads, one.latent)), [1, 0, 2])
        by_head = op.matmul(by_head, op.permute_dims(self.up_v, [0, 2, 1]))
        found = op.permute_dims(by_head, [1, 0, 2])
        return op.reshape(found, (batch, tokens, heads, one.value)), lse


class _Decoder(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.layers = nn.ModuleList([_Attention(sizes) for _ in range(_LAYERS)])

    def _run(self, x: nn.Tensor, cache: PagedKVCache, mode: str) -> nn.Tensor:
        batch, tokens, _ = x.shape
        positions = cache.get_query_positions(batch * tokens)
        for number, layer in enumerate(self.layers):
            x, cache = layer(x, cache, number, positions, mode)
        return x

    def prefill(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        return self._run(x, cache, "prefill")

    def extend(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        return self._run(x, cache, "extend")

    def decode(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        return self._run(x, cache, "decode")

    def batch_decode(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        return self._run(x, cache, "decode")

    def create_kv(self, batch: tirx.Var, total: tirx.Var, chunk: tirx.Var, page: tirx.Var,
                  window: tirx.Var) -> PagedKVCache:  # fmt: skip
        one = self.sizes
        return TIRPagedKVCache(
            attn_kind="mla", max_batch_size=batch, max_total_seq_len=total,
            prefill_chunk_size=chunk, page_size=page, support_sliding_window=window,
            layer_partition=relax.ShapeExpr([0, _LAYERS]), num_hidden_layers=_LAYERS,
            num_attention_heads=one.heads, num_key_value_heads=1,
            qk_head_dim=one.latent + one.rotated, v_head_dim=one.latent,
            mla_original_qk_head_dim=one.plain + one.rotated,
            mla_original_v_head_dim=one.value, rope_mode=RopeMode.NONE, rope_scale=1,
            rope_theta=int(_THETA), rope_scaling={}, rope_ext_factors=tirx.IntImm("int64", 0),
            rotary_dim=one.rotated, enable_disaggregation=False, dtype=one.dtype, target=_TARGET,
        )  # fmt: skip


def _exported(sizes: Sizes) -> tuple[tvm.IRModule, list[tuple[str, tuple[int, ...]]]]:
    model = _Decoder(sizes)
    model.to(sizes.dtype)
    spec: dict[str, Any] = {
        name: {
            "x": nn.spec.Tensor([batch, tokens, sizes.hidden], sizes.dtype),
            "cache": nn.spec.Object(object_type=PagedKVCache),
            "$": {"param_mode": "packed", "effect_mode": "none"},
        }
        for name, batch, tokens in (
            ("prefill", 1, _PROMPT), ("extend", 1, _MORE), ("decode", 1, 1),
            ("batch_decode", _BATCH, 1),
        )
    }  # fmt: skip
    numbers: dict[str, Any] = dict.fromkeys(("batch", "total", "chunk", "page", "window"), int)
    spec["create_kv"] = {**numbers, "$": {"param_mode": "none", "effect_mode": "none"}}
    module, parameters = model.export_tvm(spec)
    return module, [(name, tuple(map(int, one.shape))) for name, one in parameters]


def _weights(
    parameters: list[tuple[str, tuple[int, ...]]], sizes: Sizes, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    weights = {}
    for name, shape in parameters:
        values = rng.standard_normal(shape)
        values = values * shape[-1] ** -0.5 if len(shape) > 1 else 1 + 0.1 * values
        weights[name] = values.astype(numpy_dtype(sizes.dtype))
    for number in range(_LAYERS):
        up = weights[f"layers.{number}.up.weight"].reshape(sizes.heads, -1, sizes.latent)
        weights[f"layers.{number}.up_k"] = up[:, : sizes.plain].transpose(0, 2, 1).copy()
        weights[f"layers.{number}.up_v"] = up[:, sizes.plain :].copy()
    return weights


def _expected(weights: dict[str, np.ndarray], x: np.ndarray, sizes: Sizes) -> np.ndarray:
    """All tokens of one sequence at once, with keys and values of each head."""
    one, count = sizes, len(x)

    def norm(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return rows / np.sqrt((rows * rows).mean(-1, keepdims=True) + 1e-5) * weight

    def rotated(heads: np.ndarray) -> np.ndarray:
        half = one.rotated // 2
        angles = np.arange(count)[:, None] * _THETA ** (-np.arange(half) / half)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = heads[..., :half], heads[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    for number in range(_LAYERS):
        start = f"layers.{number}."
        part = {
            name.removeprefix(start).removesuffix(".weight"): weight.astype(np.float64)
            for name, weight in weights.items() if name.startswith(start)
        }  # fmt: skip
        normed = norm(x, part["norm"])
        q = (normed @ part["q"].T).reshape(count, one.heads, -1)
        down = normed @ part["down"].T
        up = norm(down[:, : one.latent], part["latent_norm"]) @ part["up"].T
        k, v = np.split(up.reshape(count, one.heads, -1), [one.plain], axis=2)
        k_rotated = np.repeat(rotated(down[:, None, one.latent :]), one.heads, axis=1)
        logits = np.einsum("qhd,khd->hqk", q[..., : one.plain], k)
        logits += np.einsum("qhd,khd->hqk", rotated(q[..., one.plain :]), k_rotated)
        logits = np.where(np.tri(count, dtype=bool), logits * one.scale, -np.inf)
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        x = np.einsum("hqk,khd->qhd", shares, v).reshape(count, -1) @ part["out"].T + x
    return x


def test_scales_that_no_program_takes() -> None:
    module, _ = _exported(Sizes("float16", sign=-1))
    left = left_to_tvm(module, _TARGET)
    for name in ("batch_prefill_ragged_kv", "batch_prefill_paged_kv_mla"):
        assert "scales logits by -0.072" in left[name]


@pytest.mark.in_turn(4)
@pytest.mark.gpu
@pytest.mark.parametrize(
    "sizes", [Sizes("float16"), Sizes("bfloat16"), Sizes("bfloat16", heads=16, latent=512)],
    ids=["float16", "bfloat16", "DeepSeek's heads"],
)  # fmt: skip
@pytest.mark.some(1)
def test_latent_attention_from_prompt_to_tokens(rng: np.random.Generator, sizes: Sizes) -> None:
    """Two prompts, of which one has a second turn, then tokens of one and of both sequences; each
    is compared with all tokens at once in float64.
    """
    module, parameters = _exported(sizes)
    names = {one.name for one in inspect(module) if one.multiplies}
    assert names >= {"batch_prefill_ragged_kv", "batch_prefill_paged_kv_mla"}
    weights = _weights(parameters, sizes, rng)
    machine = relax.VirtualMachine(relax.build(module, _TARGET), tvm.cuda(0))
    packed = [tvm.runtime.tensor(weights[name], tvm.cuda(0)) for name, _ in parameters]
    shape, call = tvm.runtime.ShapeTuple, tvm.get_global_func
    cache = machine["create_kv"](*(shape([size]) for size in (4, 256, 64, 16, 0)))
    known: dict[int, np.ndarray] = {}

    def check(name: str, lengths: dict[int, int], tokens: tuple[int, int]) -> None:
        x = rng.standard_normal((*tokens, sizes.hidden)).astype(numpy_dtype(sizes.dtype))
        call("vm.builtin.kv_state_begin_forward")(cache, shape(lengths), shape(lengths.values()))
        found = machine[name](tvm.runtime.tensor(x, tvm.cuda(0)), cache, packed)
        call("vm.builtin.kv_state_end_forward")(cache)
        for place, sequence in enumerate(lengths):
            before = known.get(sequence, np.zeros((0, sizes.hidden)))
            known[sequence] = np.concatenate([before, x[place].astype(np.float64)])
            exact = _expected(weights, known[sequence], sizes)
            error = np.abs(found.numpy()[place].astype(np.float64) - exact[len(before) :]).max()
            assert error <= 8 * precision(sizes.dtype) * np.abs(exact).max(), (name, sequence)

    for sequence in range(_BATCH):
        call("vm.builtin.kv_state_add_sequence")(cache, sequence)
        check("prefill", {sequence: _PROMPT}, (1, _PROMPT))
    check("extend", {1: _MORE}, (1, _MORE))
    check("decode", {0: 1}, (1, 1))
    for _ in range(2):
        check("batch_decode", dict.fromkeys(range(_BATCH), 1), (_BATCH, 1))
