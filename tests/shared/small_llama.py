"""A small Llama with TVM's paged KV cache, as MLC-LLM writes models, and its results in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.nn.llm import kv_cache
from tvm.target import Target

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, WORDS, LAYERS = 256, 4, 2, 64, 512, 1000, 1
PAGE = 16


class _Layer(nn.Module):
    def __init__(self) -> None:
        self.norm1 = nn.RMSNorm(HIDDEN, -1, bias=False)
        self.norm2 = nn.RMSNorm(HIDDEN, -1, bias=False)
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x: nn.Tensor, cache: Any, layer: int) -> nn.Tensor:
        batch, rows, _ = x.shape
        heads = (batch, rows, HEADS + 2 * KV_HEADS, HEAD_DIM)
        qkv = op.reshape(self.qkv(self.norm1(x)), heads)
        found = cache.attention_with_fused_qkv(layer, qkv, HEADS, sm_scale=HEAD_DIM**-0.5)
        x = self.out(op.reshape(found, (batch, rows, HEADS * HEAD_DIM))) + x
        gate, up = op.split(self.gate_up(self.norm2(x)), 2, -1)
        return self.down(op.silu(gate) * up) + x


class _Llama(nn.Module):
    def __init__(self, target: Target) -> None:
        self.target = target
        self.embedding = nn.Embedding(WORDS, HIDDEN)
        self.layers = nn.ModuleList([_Layer() for _ in range(LAYERS)])
        self.norm = nn.RMSNorm(HIDDEN, -1, bias=False)
        self.head = nn.Linear(HIDDEN, WORDS, bias=False)

    def embed(self, ids: nn.Tensor) -> nn.Tensor:
        return self.embedding(ids)

    def _run(self, x: nn.Tensor, cache: Any) -> nn.Tensor:
        for place, layer in enumerate(self.layers):
            x = layer(x, cache, place)
        return self.norm(x)

    def prefill(self, x: nn.Tensor, cache: Any) -> Any:
        def last(x: te.Tensor) -> te.Tensor:
            batch, rows, width = x.shape
            return te.compute((batch, 1, width), lambda i, _, k: x[i, rows - 1, k], name="index")

        x = op.tensor_expr_op(last, "index", [self._run(x, cache)])
        return op.astype(self.head(x), "float32"), cache

    def batch_decode(self, x: nn.Tensor, cache: Any) -> Any:
        return op.astype(self.head(self._run(x, cache)), "float32"), cache

    def create_cache(
        self, batch: tirx.Var, total: tirx.Var, chunk: tirx.Var, page: tirx.Var, window: tirx.Var
    ) -> Any:
        return kv_cache.TIRPagedKVCache(
            attn_kind="mha", max_batch_size=batch, max_total_seq_len=total,
            prefill_chunk_size=chunk, page_size=page, support_sliding_window=window,
            layer_partition=relax.ShapeExpr([0, LAYERS]), num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, qk_head_dim=HEAD_DIM,
            v_head_dim=HEAD_DIM, mla_original_qk_head_dim=0, mla_original_v_head_dim=0,
            rope_mode=kv_cache.RopeMode.NORMAL, rope_scale=1, rope_theta=10000, rope_scaling={},
            rope_ext_factors=tirx.IntImm("int64", 0), rotary_dim=HEAD_DIM,
            enable_disaggregation=False, dtype="float16", target=self.target,
        )  # fmt: skip


def small_llama(
    target: Target, tokens: int | str = "n", sequences: int | str = "b"
) -> tuple[tvm.IRModule, dict[str, tuple[int, ...]]]:
    """Return the model before any pass, and the shapes of its parameters in their order.

    ``prefill`` has so many tokens, and ``batch_decode`` so many sequences; names are symbolic.
    """
    model = _Llama(target)
    model.to("float16")
    packed = {"param_mode": "packed", "effect_mode": "none"}
    cache = nn.spec.Object(object_type=kv_cache.PagedKVCache)
    mod, parameters = model.export_tvm(
        {
            "embed": {"ids": nn.spec.Tensor([tokens], "int32"), "$": packed},
            "prefill": {
                "x": nn.spec.Tensor([1, tokens, HIDDEN], "float16"), "cache": cache, "$": packed
            },
            "batch_decode": {
                "x": nn.spec.Tensor([sequences, 1, HIDDEN], "float16"), "cache": cache, "$": packed
            },
            "create_cache": {
                **dict.fromkeys(("batch", "total", "chunk", "page", "window"), int),
                "$": {"param_mode": "none", "effect_mode": "none"},
            },
        }
    )  # fmt: skip
    return mod, {name: tuple(map(int, each.shape)) for name, each in parameters}


def random_parameters(
    rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """Random parameters in float16, of a size that keeps activations near 1."""

    def one(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) == 1:
            return 1 + 0.1 * rng.standard_normal(shape)
        return rng.standard_normal(shape) * (1 if "embedding" in name else shape[-1] ** -0.5)

    return {name: one(name, shape).astype("float16") for name, shape in shapes.items()}


class Session:
    """A built model with an empty cache, on a device."""

    def __init__(
        self, executable: Any, parameters: Mapping[str, np.ndarray], device: Any
    ) -> None:
        self.device, self.machine = device, relax.VirtualMachine(executable, device)
        self.parameters = [tvm.runtime.tensor(each, device) for each in parameters.values()]
        sizes = (4, 256, 64, PAGE, 0)
        self.cache = self.machine["create_cache"](*(tvm.runtime.ShapeTuple([n]) for n in sizes))

    def run(self, name: str, sequences: dict[int, np.ndarray], new: bool = False) -> np.ndarray:
        """Logits behind the last of the tokens of each sequence: [sequences, WORDS].

        ``prefill`` takes one sequence, ``batch_decode`` one token of each.
        """
        function, shape = tvm.get_global_func, tvm.runtime.ShapeTuple
        for each in sequences if new else ():
            function("vm.builtin.kv_state_add_sequence")(self.cache, each)
        lengths = shape([len(each) for each in sequences.values()])
        function("vm.builtin.kv_state_begin_forward")(self.cache, shape(list(sequences)), lengths)
        ids = np.concatenate(list(sequences.values())).astype("int32")
        x = self.machine["embed"](tvm.runtime.tensor(ids, self.device), self.parameters).numpy()
        x = x.reshape((1, -1, HIDDEN) if name == "prefill" else (-1, 1, HIDDEN))
        x = tvm.runtime.tensor(x, self.device)
        found = self.machine[name](x, self.cache, self.parameters)[0].numpy()
        function("vm.builtin.kv_state_end_forward")(self.cache)
        return found.reshape(len(sequences), WORDS)


def reference(parameters: Mapping[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """Logits behind the last of ``ids``: [WORDS]."""

    def weight(name: str) -> np.ndarray:
        return parameters[f"{name}.weight"].astype(np.float64)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight(name)

    def rotated(x: np.ndarray) -> np.ndarray:
        low, high = np.split(x, 2, -1)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)

    count = len(ids)
    angles = np.arange(count)[:, None] * 10000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    x = weight("embedding")[ids]
    for layer in (f"layers.{i}" for i in range(LAYERS)):
        heads = norm(x, f"{layer}.norm1") @ weight(f"{layer}.qkv").T
        heads = heads.reshape(count, -1, HEAD_DIM)
        q, k, v = np.split(heads, [HEADS, HEADS + KV_HEADS], 1)
        k, v = (np.repeat(each, HEADS // KV_HEADS, 1) for each in (rotated(k), v))
        scores = np.einsum("ihd,jhd->hij", rotated(q), k) * HEAD_DIM**-0.5
        scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", scores, v).reshape(count, -1)
        x = x + mixed @ weight(f"{layer}.out").T
        gate, up = np.split(norm(x, f"{layer}.norm2") @ weight(f"{layer}.gate_up").T, 2, -1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weight(f"{layer}.down").T
    return norm(x[-1], "norm") @ weight("head").T
