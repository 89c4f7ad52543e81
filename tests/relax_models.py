"""Models of Relax's ``nn.Module``, and what they compute, in numpy and float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns float8 and bfloat16)
import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

from warploom.bench.decoder import GROUP, ZERO, DecoderConfig

#: A block whose heads are as wide as they need to be, and everything else small.
SMALL = {"hidden": 128, "intermediate": 192, "heads": 4, "kv_heads": 2, "head_dim": 64,
         "positions": 64}  # fmt: skip


def decoder_parameters(
    rng: np.random.Generator, shapes: Mapping[str, tuple[tuple[int, ...], str]]
) -> dict[str, np.ndarray]:
    """Random parameters of a decoder block, by name."""
    found = {}
    for name, (shape, dtype) in shapes.items():
        if name == "rotations":
            angles = np.arange(shape[1])[:, None] * 100.0 ** (-np.arange(shape[2]) / shape[2])
            made = np.stack((np.cos(angles), np.sin(angles)))
        elif name.endswith("words"):
            made = rng.integers(0, 2**32, shape, np.uint32)
        elif name.endswith("scales"):
            made = rng.uniform(0.01, 0.03, shape)
        elif len(shape) == 1:
            made = 1 + 0.1 * rng.standard_normal(shape)
        else:
            made = rng.standard_normal(shape) * shape[1] ** -0.5
        found[name] = made.astype(str(dtype))
    return found


def dequantise(words: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Weights of 4 bits as float64 ``(outputs, inputs)``."""
    fields = words[:, :, None] >> np.arange(0, 32, 4).astype(np.uint32) & 15
    weights = fields.reshape(len(words), -1).astype(np.float64) - ZERO
    return weights * np.repeat(scales.astype(np.float64), GROUP, 1)


def decoder(
    config: DecoderConfig, x: np.ndarray, parameters: Mapping[str, np.ndarray]
) -> np.ndarray:
    """What :class:`warploom.bench.decoder.Decoder` computes."""

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        if config.quantised:
            return x @ dequantise(parameters[f"{name}.words"], parameters[f"{name}.scales"]).T
        return x @ parameters[f"{name}.weight"].astype(np.float64).T

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        scale = np.sqrt((x * x).mean(1, keepdims=True) + config.epsilon)
        return x / scale * parameters[name].astype(np.float64)

    def rotated(heads: np.ndarray) -> np.ndarray:
        cos, sin = np.tile(parameters["rotations"][:, : len(x), None], 2).astype(np.float64)
        low, high = np.split(heads, 2, 2)
        return heads * cos + np.concatenate((-high, low), 2) * sin

    x = x.astype(np.float64)
    heads = linear(norm(x, "attention_norm"), "qkv").reshape(len(x), -1, config.head_dim)
    q, k, v = np.split(heads, [config.heads, config.heads + config.kv_heads], 1)
    k, v = (np.repeat(one, config.heads // config.kv_heads, 1) for one in (rotated(k), v))
    scores = np.einsum("ihd,jhd->hij", rotated(q), k) * config.head_dim**-0.5
    scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    weights /= weights.sum(2, keepdims=True)
    h = linear(np.einsum("hij,jhd->ihd", weights, v).reshape(len(x), -1), "out") + x
    gate, up = np.split(linear(norm(h, "mlp_norm"), "gate_up"), 2, 1)
    return linear(gate / (1 + np.exp(-gate)) * up, "down") + h


class Float8Mlp(nn.Module):
    """Two projections of e4m3 operands, with a scale for each of them."""

    KIND, SCALE = "float8_e4m3fn", 1 / 64

    def __init__(self, hidden: int = 128, wide: int = 256) -> None:
        self.up = nn.Parameter((wide, hidden), self.KIND)
        self.down = nn.Parameter((hidden, wide), self.KIND)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """From e4m3 ``(rows, hidden)`` to float16."""
        h = self._project(x, self.up)
        return nn.op.astype(self._project(nn.op.astype(nn.op.relu(h), self.KIND), self.down),
                            "float16")  # fmt: skip

    def _project(self, x: nn.Tensor, weight: nn.Tensor) -> nn.Tensor:
        product = nn.op.matmul(x, nn.op.permute_dims(weight), out_dtype="float32")
        return product * nn.Tensor.from_scalar(self.SCALE, "float32")

    @classmethod
    def expected(cls, x: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
        x, wide, narrow = (one.astype(np.float64) for one in (x, up, down))
        h = np.maximum(x @ wide.T * cls.SCALE, 0).astype(up.dtype).astype(np.float64)
        return h @ narrow.T * cls.SCALE


class Bottleneck(nn.Module):
    """A block of ResNet, NHWC: 1x1, 3x3 and 1x1 convolutions, and what comes in is added."""

    def __init__(self, channels: int = 128, inner: int = 64) -> None:
        self.reduce = nn.Parameter((inner, 1, 1, channels), "float16")
        self.spread = nn.Parameter((inner, 3, 3, inner), "float16")
        self.expand = nn.Parameter((channels, 1, 1, inner), "float16")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        h = nn.op.relu(_conv(x, self.reduce))
        h = nn.op.relu(_conv(h, self.spread, 1))
        return nn.op.relu(_conv(h, self.expand) + x)

    @staticmethod
    def expected(x: np.ndarray, *weights: np.ndarray) -> np.ndarray:
        x = x.astype(np.float64)
        reduce, spread, expand = (one.astype(np.float64) for one in weights)
        h = np.maximum(np.einsum("nhwc,oc->nhwo", x, reduce[:, 0, 0]), 0)
        padded = np.pad(h, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
        h = np.maximum(np.einsum("nhwcyx,oyxc->nhwo", windows, spread), 0)
        return np.maximum(np.einsum("nhwc,oc->nhwo", h, expand[:, 0, 0]) + x, 0)


def _conv(x: nn.Tensor, weight: nn.Tensor, padding: int = 0) -> nn.Tensor:
    made = relax.op.nn.conv2d(
        x._expr, weight._expr, padding=padding, data_layout="NHWC", kernel_layout="OHWI"
    )
    return nn.op.wrap_nested(made, "conv2d")


def exported(model: nn.Module, shape: list[Any], dtype: str) -> tvm.IRModule:
    """A model with ``forward(x, *parameters)``."""
    return model.export_tvm({"forward": {"x": nn.spec.Tensor(shape, dtype)}})[0]
