"""``programs.attention`` of random shapes, masks and biases, on both architectures."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm.tirx import Var

from tests.shared.lowered_programs import hinted, run
from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.programs import attention
from warploom.programs.heads_in_memory import HeadsInMemory

_NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
#: Lowest numbers that models mask with.
_MASKED = (-np.inf, -65504.0, float(np.finfo(np.float32).min))


@dataclass(frozen=True)
class Case:
    """Arguments of the program, and sizes that the launch may decide."""

    tokens: int
    keys: int
    head_dim: int
    value_dim: int
    heads: int
    kv_heads: int
    batch: int
    causal: bool | str
    dtype: str
    tokens_first: bool
    bias: str | None
    bias_dtype: str
    dynamic: bool
    masked: float | None
    soft_cap: float | None = None
    bias_batch: int | None = None

    def program(self, arch: str) -> Any:
        tokens, keys, batch = self.tokens, self.keys, self.batch
        if self.dynamic:
            tokens, keys, batch = (Var(name, "int32") for name in ("tokens", "keys", "batch"))
        elif keys == tokens:
            keys = None
        return attention(
            tokens, self.head_dim, self.heads, self.kv_heads, batch, self.causal, self.dtype,
            tokens_first=self.tokens_first, arch=arch, keys=keys, value_dim=self.value_dim,
            bias=self.bias, bias_dtype=self.bias_dtype, soft_cap=self.soft_cap,
            bias_batch=self.bias_batch,
        )  # fmt: skip

    def arrays(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Q, K, V with heads before tokens, and the bias if there is one."""
        kind = _NUMPY[self.dtype]
        kv_heads, keys = self.kv_heads, self.keys
        sizes = [(self.heads, self.tokens, self.head_dim), (kv_heads, keys, self.head_dim),
                 (kv_heads, keys, self.value_dim)]  # fmt: skip
        made = [
            rng.standard_normal((self.batch, *size), np.float32).astype(kind) for size in sizes
        ]
        if self.bias is not None:
            whole = {"b": self.bias_batch or self.batch, "h": self.heads, "q": self.tokens}
            shape = [size if letter in self.bias else 1 for letter, size in whole.items()]
            bias = rng.standard_normal((*shape, self.keys), np.float32)
            if self.masked is not None:  # from the first key on, but not all
                bias[..., : int(rng.integers(0, self.keys))] = self.masked
            made.append(bias.astype(_NUMPY[self.bias_dtype]))
        return made

    def exact(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: Any = 0.0) -> np.ndarray:
        q, k, v, bias = (np.asarray(x).astype(float) for x in (q, k, v, bias))
        k, v = (np.repeat(x, self.heads // self.kv_heads, axis=1) for x in (k, v))
        logits = q @ k.swapaxes(2, 3) / math.sqrt(self.head_dim)
        if self.soft_cap is not None:
            logits = self.soft_cap * np.tanh(logits / self.soft_cap)
        if self.bias_batch is not None:
            bias = np.tile(bias, (self.batch // self.bias_batch, 1, 1, 1))
        logits = logits + bias
        ahead = abs(self.keys - self.tokens) if self.causal == "BottomRight" else 0
        if self.causal:
            seen = np.tri(self.tokens, self.keys, ahead, dtype=bool)
            logits = np.where(seen, logits, -np.inf)
        weights = np.exp(logits - logits.max(axis=3, keepdims=True))
        return weights / weights.sum(axis=3, keepdims=True) @ v


def draw(rng: np.random.Generator) -> Case:
    def of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    tokens = int(rng.integers(1, 200))
    keys = of(tokens, int(rng.integers(1, 300)))
    head_dim = 8 * int(rng.integers(1, 17))
    kv_heads, dtype = of(1, 2), of("float16", "bfloat16")
    causal = of(False, True, "TopLeft", "BottomRight")
    bias = of(None, "", "b", "q", "bq", "bhq")
    masked = of(None, *_MASKED) if not causal else None  # a row may see keys that are masked alone
    batch, bias_batch = of((1, None), (2, None), (2, 1), (4, 2))
    bias_batch = bias_batch if "b" in (bias or "") else None
    bias_dtype = "float32" if masked is not None else of("float16", "bfloat16", "float32")
    return Case(
        tokens, keys, head_dim, of(head_dim, 8 * int(rng.integers(1, 17))), kv_heads * of(1, 2),
        kv_heads, batch, causal, dtype, of(True, False), bias, bias_dtype, of(True, False),
        masked, of(None, float(rng.uniform(0.5, 8))), bias_batch,
    )  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("number", range(40))
@pytest.mark.some(4)
def test_random_attention(number: int, arch: str, rng: np.random.Generator) -> None:
    case = draw(rng)
    print(case)
    arrays = case.arrays(rng)
    exact = case.exact(*arrays)
    kind = _NUMPY[case.dtype]
    o = np.full(exact.shape, np.nan, np.float32).astype(kind)
    arguments = [*arrays[:3], o]
    if case.tokens_first:
        arguments = [x.swapaxes(1, 2).copy() for x in arguments]
    arguments[3:3] = arrays[3:]
    func = case.program(arch)
    found = [run(func, arguments, arch)[-1]]
    if number % 4 == 0:  # seconds of Python
        wl.interpret(func, arguments)
        found.append(arguments[-1])
    for one in found:
        made = one.swapaxes(1, 2) if case.tokens_first else one
        bound = np.abs(exact).max() * float(ml_dtypes.finfo(kind).eps)
        assert np.abs(made.astype(float) - exact).max() <= 2 * bound


#: Head dims, tiles, and stages; tiles of several warpgroups, and of one.
_TILES = (
    (64, (128, 48), 2), (64, (192, 32), 3), (128, (128, 32), 2), (128, (64, 64), 1),
    (256, (64, 32), 2), (72, (128, 64), 2),
)  # fmt: skip


@pytest.mark.parametrize("causal", [False, True, "BottomRight"])
@pytest.mark.parametrize("order_mmas", [False, True])
@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("number", range(6))
@pytest.mark.in_turn(4)
def test_a_cta_with_many_tiles_goes_on_with_its_stages(
    number: int, specialise: bool, order_mmas: bool, causal: bool | str, rng: np.random.Generator
) -> None:
    """Several tiles a CTA, of one block of keys to many; the tiles of some have fewer than others.

    The emulated GPU has as many SMs as a real GPU, so that few tiles would be one for each CTA.
    """
    head_dim, tile, stages = _TILES[number]
    tokens, keys = int(rng.integers(1, 2 * tile[0])), int(rng.integers(1, 4 * tile[1]))
    if causal == "BottomRight":
        keys = tokens + int(rng.integers(0, 60))
    kv_heads, share = ((1, 2), (2, 1), (1, 3))[rng.integers(3)]
    print(tokens, keys, head_dim, tile, stages, kv_heads, share)
    heads = kv_heads * share
    case = Case(
        tokens, keys, head_dim, head_dim, heads, kv_heads, 1, causal, "float16", False, None,
        "float16", False, None,
    )  # fmt: skip
    arrays = case.arrays(rng)
    exact = case.exact(*arrays)
    func = attention(
        tokens, head_dim, heads, kv_heads, causal=causal, tile=tile, stages=stages, keys=keys,
        order_mmas=order_mmas and tile[0] > 64,
    )  # fmt: skip
    poison = np.full(exact.shape, np.nan, np.float16)
    made = run(hinted(func, ctas=2, specialise=specialise), [*arrays, poison])[-1]
    bound = np.abs(exact).max() * float(np.finfo(np.float16).eps)
    assert np.abs(made.astype(float) - exact).max() <= 2 * bound


def test_heads_of_several_times_are_all_computed(rng, monkeypatch) -> None:
    """Where the L2 cache holds few heads, tiles rise and fall by turns from some to the next."""
    program = importlib.import_module("warploom.programs.attention")
    monkeypatch.setattr(program, "heads_at_a_time", lambda *_: 1)
    case = Case(150, 150, 64, 64, 3, 3, 1, True, "float16", False, None, "float16", False, None)
    arrays = case.arrays(rng)
    func = attention(150, 64, 3, causal=True, tile=(64, 32))
    exact = case.exact(*arrays)
    made = run(hinted(func, ctas=2), [*arrays, np.full(exact.shape, np.nan, np.float16)])[-1]
    bound = np.abs(exact).max() * float(np.finfo(np.float16).eps)
    assert np.abs(made.astype(float) - exact).max() <= 2 * bound


def test_a_row_whose_keys_are_all_masked_by_a_finite_bias_is_their_mean(rng) -> None:
    case = Case(3, 200, 64, 64, 1, 1, 1, False, "float16", False, "", "float32", False, None)
    q, k, v, bias = case.arrays(rng)
    bias[:] = np.finfo(np.float32).min
    o = np.full(q.shape, np.nan, np.float16)
    made = run(case.program("sm_90a"), [q, k, v, bias, o])[-1]
    assert np.abs(made.astype(float) - v.astype(float).mean(axis=2, keepdims=True)).max() < 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value_dim": 12}, "value_dim is 12; .* multiples of 8 up to 256, so pad"),
        ({"value_dim": 264}, "value_dim is 264"),
        ({"causal": "Left"}, "causal is 'Left'; it can be True, False, 'TopLeft' or 'BottomRight'"),
        ({"bias": "qh"}, "bias is 'qh'; .* in this order: batch, heads, queries"),
        ({"bias": "x"}, "bias is 'x'"),
        ({"soft_cap": 0.0}, "soft_cap is 0.0; it must be a number above 0"),
    ],
)
def test_what_there_is_no_kernel_for(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(IllegalCombination, match=message):
        attention(64, 64, **arguments)


def test_operands_that_are_parts_of_one_tensor_and_a_row_without_keys(rng) -> None:
    """Heads of q, k and v lie behind each other, tokens before the batch; a bias masks a row."""
    batch, tokens, heads, dim = 2, 70, 2, 40
    qkv = rng.standard_normal((tokens, batch, 3 * heads, dim), np.float32).astype(np.float16)
    bias = rng.standard_normal((batch, 1, tokens, tokens), np.float32)
    bias[1, 0, 5] = -np.inf
    places = [HeadsInMemory("tbh", 3 * heads, part * heads) for part in range(3)]
    func = attention(
        tokens, dim, heads, batch=batch, bias="bq", bias_dtype="float32",
        operands=[*places, HeadsInMemory("bth")],
    )  # fmt: skip
    o = np.full((batch, tokens, heads, dim), np.nan, np.float16)
    found = run(func, [qkv, qkv, qkv, bias, o], "sm_90a")[-1].astype(float)
    q, k, v = np.split(qkv.astype(float).transpose(1, 2, 0, 3), 3, axis=1)
    logits = q @ k.swapaxes(2, 3) / math.sqrt(dim) + bias
    weights = np.exp(logits - np.where(np.isinf(logits), 0, logits).max(axis=3, keepdims=True))
    exact = weights / np.maximum(weights.sum(axis=3, keepdims=True), 1e-30) @ v
    assert not found[1, 5].any()
    bound = np.abs(exact).max() * float(np.finfo(np.float16).eps)
    assert np.abs(found - exact.swapaxes(1, 2)).max() <= 2 * bound
