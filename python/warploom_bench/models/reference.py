"""What a language model computes, in numpy and float64: all tokens of a sequence at once."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from warploom_bench.decoder import GROUP, ZERO
from warploom_bench.models.linears import FP8_LARGEST
from warploom_bench.models.sizes import LanguageSizes


class Reference:
    """A model of small sizes.

    Parameters
    ----------
    sizes : LanguageSizes
    parameters : Mapping of str to ndarray
        By name.
    """

    def __init__(self, sizes: LanguageSizes, parameters: Mapping[str, np.ndarray]) -> None:
        self.sizes, self.parameters = sizes, parameters

    def logits(self, ids: np.ndarray) -> np.ndarray:
        """Logits ``[vocabulary]`` behind the last of the tokens ``[n]``."""
        x = self._number("embedding.weight")[ids]
        for layer in (f"layers.{i}." for i in range(self.sizes.layers)):
            y = self._norm(x, layer + "attention_norm")
            attend = self._latent if self.sizes.latent else self._grouped
            x = x + attend(y, layer + "attention.")
            y = self._norm(x, layer + "mlp_norm")
            x = x + (self._experts if self.sizes.experts else self._mlp)(y, layer + "mlp.")
        return self._linear(self._norm(x[-1:], "norm"), "head")[0]

    def _number(self, name: str) -> np.ndarray:
        return self.parameters[name].astype(np.float64)

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * self._number(name + ".weight")

    def _linear(self, x: np.ndarray, name: str) -> np.ndarray:
        own = self.parameters
        inner = name + ".inner" if name + ".inner" + _KIND[self.sizes.weights] in own else name
        if self.sizes.weights == "int4":
            y = x @ _unpacked(own[inner + ".words"], own[inner + ".scales"]).T
        elif self.sizes.weights == "fp8":
            scale = self._number(inner + ".x_scale")
            narrow = np.clip(x / scale, -FP8_LARGEST, FP8_LARGEST)
            narrow = narrow.astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
            scale = scale * self._number(inner + ".scale")
            y = narrow @ self._number(inner + ".weight").T * scale
        else:
            y = x @ self._number(inner + ".weight").T
        return y + self._number(name + ".bias") if name + ".bias" in own else y

    def _rotated(self, x: np.ndarray) -> np.ndarray:
        """Heads ``[n, heads, d]`` turned by their positions."""
        low, high = np.split(x, 2, -1)
        half = low.shape[-1]
        speeds = self.sizes.theta ** (-np.arange(half) / half)
        angles = (np.arange(len(x))[:, None] * speeds)[:, None]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)

    def _grouped(self, x: np.ndarray, name: str) -> np.ndarray:
        one = self.sizes
        qkv = self._linear(x, name + "qkv").reshape(len(x), -1, one.head_dim)
        q, k, v = np.split(qkv, [one.heads, one.heads + one.kv_heads], 1)
        k, v = (np.repeat(each, one.heads // one.kv_heads, 1) for each in (self._rotated(k), v))
        return self._linear(_attention(self._rotated(q), k, v), name + "out")

    def _latent(self, x: np.ndarray, name: str) -> np.ndarray:
        one = self.sizes
        q = self._linear(x, name + "query").reshape(len(x), one.heads, one.query_dim)
        vector, key = np.split(self._linear(x, name + "compress"), [one.latent], -1)
        vector = self._norm(vector, name + "norm")
        k, v = (
            np.einsum("nl,hdl->nhd", vector, self._number(f"{name}expand_{part}"))
            for part in ("keys", "values")
        )
        turned = np.repeat(self._rotated(key[:, None]), one.heads, 1)
        q = np.concatenate([q[..., : one.head_dim], self._rotated(q[..., one.head_dim :])], -1)
        return self._linear(_attention(q, np.concatenate([k, turned], -1), v), name + "out")

    def _mlp(self, x: np.ndarray, name: str) -> np.ndarray:
        return self._linear(_swiglu(self._linear(x, name + "gate_up")), name + "down")

    def _experts(self, x: np.ndarray, name: str) -> np.ndarray:
        logits = x @ self._number(name + "router.weight").T
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        chosen = np.argsort(-shares, -1)[:, : self.sizes.choices]
        out = np.zeros_like(x)
        wide, narrow = (self._number(f"{name}{part}.weight") for part in ("gate_up", "down"))
        for row, its in enumerate(chosen):
            for e in its:
                share = shares[row, e] / shares[row, its].sum()
                out[row] += share * (_swiglu(x[row] @ wide[e].T) @ narrow[e].T)
        return out


#: Name of a parameter that each linear layer has, by the kind of its weights.
_KIND = {"float16": ".weight", "int4": ".words", "fp8": ".weight"}


def _swiglu(x: np.ndarray) -> np.ndarray:
    gate, up = np.split(x, 2, -1)
    return gate / (1 + np.exp(-gate)) * up


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention of heads ``[n, heads, d]``."""
    scores = np.einsum("ihd,jhd->hij", q, k) * q.shape[-1] ** -0.5
    scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", scores, v).reshape(len(q), -1)


def _unpacked(words: np.ndarray, scales: np.ndarray) -> np.ndarray:
    fields = words[..., None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
    numbers = fields.reshape(len(words), -1).astype(np.float64) - ZERO
    return numbers * np.repeat(scales.astype(np.float64), GROUP, 1)
