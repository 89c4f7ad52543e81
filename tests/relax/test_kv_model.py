"""A decoder with TVM's paged KV cache, as MLC-LLM writes it, from prompt to next tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode, TIRPagedKVCache

from warploom.relax import cuda_graph
from warploom.relax.inspect import inspect
from warploom.target import cuda_target

_TARGET = cuda_target("h200")
_HIDDEN, _HEADS, _KV_HEADS, _DIM, _WIDE, _LAYERS, _PROMPT, _BATCH = 128, 4, 2, 64, 256, 2, 19, 2


class _Layer(nn.Module):
    def __init__(self) -> None:
        self.norm1 = nn.RMSNorm(_HIDDEN, -1, bias=False)
        self.norm2 = nn.RMSNorm(_HIDDEN, -1, bias=False)
        self.qkv = nn.Linear(_HIDDEN, (_HEADS + 2 * _KV_HEADS) * _DIM, bias=False)
        self.out = nn.Linear(_HEADS * _DIM, _HIDDEN, bias=False)
        self.gate_up = nn.Linear(_HIDDEN, 2 * _WIDE, bias=False)
        self.down = nn.Linear(_WIDE, _HIDDEN, bias=False)

    def forward(self, x: nn.Tensor, cache: PagedKVCache, number: int) -> nn.Tensor:
        batch, tokens, _ = x.shape
        heads = _HEADS + 2 * _KV_HEADS
        qkv = op.reshape(self.qkv(self.norm1(x)), (batch, tokens, heads, _DIM))
        mixed = cache.attention_with_fused_qkv(number, qkv, _HEADS, sm_scale=_DIM**-0.5)
        x = self.out(op.reshape(mixed, (batch, tokens, _HEADS * _DIM))) + x
        gate, up = op.split(self.gate_up(self.norm2(x)), 2, -1)
        return self.down(op.silu(gate) * up) + x


class _Decoder(nn.Module):
    def __init__(self) -> None:
        self.layers = nn.ModuleList([_Layer() for _ in range(_LAYERS)])

    def prefill(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x, cache, number)
        return x

    def decode(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        return self.prefill(x, cache)

    def create_kv(self, batch: tirx.Var, total: tirx.Var, chunk: tirx.Var, page: tirx.Var,
                  window: tirx.Var) -> PagedKVCache:  # fmt: skip
        return TIRPagedKVCache(
            attn_kind="mha", max_batch_size=batch, max_total_seq_len=total,
            prefill_chunk_size=chunk, page_size=page, support_sliding_window=window,
            layer_partition=relax.ShapeExpr([0, _LAYERS]), num_hidden_layers=_LAYERS,
            num_attention_heads=_HEADS, num_key_value_heads=_KV_HEADS, qk_head_dim=_DIM,
            v_head_dim=_DIM, mla_original_qk_head_dim=0, mla_original_v_head_dim=0,
            rope_mode=RopeMode.NORMAL, rope_scale=1, rope_theta=10000, rope_scaling={},
            rope_ext_factors=tirx.IntImm("int64", 0), rotary_dim=_DIM,
            enable_disaggregation=False, dtype="float16", target=_TARGET,
        )  # fmt: skip


def _exported() -> tuple[tvm.IRModule, list[tuple[str, tuple[int, ...]]]]:
    model = _Decoder()
    model.to("float16")
    cache = nn.spec.Object(object_type=PagedKVCache)
    packed = {"param_mode": "packed", "effect_mode": "none"}
    sizes: dict[str, Any] = dict.fromkeys(("batch", "total", "chunk", "page", "window"), int)
    module, parameters = model.export_tvm({
        "prefill": {"x": nn.spec.Tensor([1, _PROMPT, _HIDDEN], "float16"), "cache": cache,
                    "$": packed},
        "decode": {"x": nn.spec.Tensor([_BATCH, 1, _HIDDEN], "float16"), "cache": cache,
                   "$": packed},
        "create_kv": {**sizes, "$": {"param_mode": "none", "effect_mode": "none"}},
    })  # fmt: skip
    return module, [(name, tuple(map(int, one.shape))) for name, one in parameters]


def _expected(weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """All tokens of one sequence at once."""

    def norm(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return rows / np.sqrt((rows * rows).mean(-1, keepdims=True) + 1e-5) * weight

    def rotated(heads: np.ndarray) -> np.ndarray:
        half = _DIM // 2
        angles = np.arange(len(heads))[:, None] * 10000.0 ** (-np.arange(half) / half)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = heads[..., :half], heads[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    for number in range(_LAYERS):
        start = f"layers.{number}."
        part = {
            name.removeprefix(start): weight.astype(np.float64)
            for name, weight in weights.items() if name.startswith(start)
        }  # fmt: skip
        qkv = (norm(x, part["norm1.weight"]) @ part["qkv.weight"].T).reshape(len(x), -1, _DIM)
        q, k, v = np.split(qkv, (_HEADS, _HEADS + _KV_HEADS), axis=1)
        k, v = (np.repeat(one, _HEADS // _KV_HEADS, axis=1) for one in (rotated(k), v))
        logits = np.einsum("qhd,khd->hqk", rotated(q), k) * _DIM**-0.5
        logits = np.where(np.tri(len(x), dtype=bool), logits, -np.inf)
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        x = np.einsum("hqk,khd->qhd", shares, v).reshape(len(x), -1) @ part["out.weight"].T + x
        gate, up = np.split(norm(x, part["norm2.weight"]) @ part["gate_up.weight"].T, 2, axis=-1)
        x = (gate / (1 + np.exp(-gate)) * up) @ part["down.weight"].T + x
    return x


@pytest.mark.in_turn(4)
@pytest.mark.gpu
def test_a_decoder_from_prompt_to_tokens(rng: np.random.Generator) -> None:
    """Two prompts, then tokens of both; each is compared with all tokens at once in float64.

    All decode steps but the first are CUDA graphs.
    """
    module, parameters = _exported()
    names = {one.name for one in inspect(module) if one.multiplies}
    assert names >= {"batch_prefill_ragged_kv", "batch_decode_paged_kv"}
    weights = {
        name: (rng.standard_normal(shape) * shape[-1] ** -0.5 if len(shape) > 1
               else 1 + 0.1 * rng.standard_normal(shape)).astype("float16")
        for name, shape in parameters
    }  # fmt: skip
    machine = relax.VirtualMachine(relax.build(module, _TARGET), tvm.cuda(0))
    functions = {"prefill": machine["prefill"], "decode": cuda_graph(machine, "decode")}
    packed = [tvm.runtime.tensor(weights[name], tvm.cuda(0)) for name, _ in parameters]
    shape, call = tvm.runtime.ShapeTuple, tvm.get_global_func
    cache = machine["create_kv"](*(shape([size]) for size in (4, 256, 64, 16, 0)))

    def forward(name: str, x: np.ndarray, lengths: dict[int, int]) -> np.ndarray:
        call("vm.builtin.kv_state_begin_forward")(cache, shape(lengths), shape(lengths.values()))
        found = functions[name](tvm.runtime.tensor(x, tvm.cuda(0)), cache, packed)
        call("vm.builtin.kv_state_end_forward")(cache)
        return found.numpy().astype(np.float64)

    known = []
    for sequence in range(_BATCH):
        call("vm.builtin.kv_state_add_sequence")(cache, sequence)
        x = rng.standard_normal((1, _PROMPT, _HIDDEN)).astype("float16")
        found = forward("prefill", x, {sequence: _PROMPT})[0]
        known.append(x[0].astype(np.float64))
        _close(found, _expected(weights, known[sequence]))
    for _ in range(3):
        x = rng.standard_normal((_BATCH, 1, _HIDDEN)).astype("float16")
        found = forward("decode", x, dict.fromkeys(range(_BATCH), 1))
        for sequence in range(_BATCH):
            known[sequence] = np.concatenate([known[sequence], x[sequence]])
            _close(found[sequence, 0], _expected(weights, known[sequence])[-1])
    assert functions["decode"].counts.replays == 2


def _close(found: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(found - expected).max() <= 4e-3 * np.abs(expected).max()
