"""Models of Relax's ``nn.Module``, and what they compute, in numpy and float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns float8 and bfloat16)
import numpy as np
import tvm
from tvm.relax.frontend import nn

from warploom_bench.decoder import GROUP, ZERO, DecoderConfig
from warploom_bench.resnet import ResnetConfig

#: A block whose heads are as wide as they need to be, and everything else small.
SMALL = {"hidden": 128, "intermediate": 192, "heads": 4, "kv_heads": 2, "head_dim": 64,
         "positions": 64}  # fmt: skip
#: Half as wide as Llama 3 8B.
HALF = {"hidden": 2048, "intermediate": 7168, "heads": 16, "kv_heads": 4, "positions": 256}


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
            made = rng.uniform(0.1, 0.3, shape) * (shape[1] * GROUP) ** -0.5
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
    """What :class:`warploom_bench.decoder.Decoder` computes."""

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


def convolution(x: np.ndarray, weight: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """A convolution of images ``[n, h, w, c]`` with filters ``[o, h, w, c]``."""
    edge = (padding, padding)
    padded = np.pad(x.astype(np.float64), ((0, 0), edge, edge, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[1:3], (1, 2))
    windows = windows[:, ::stride, ::stride]
    return np.einsum("nhwcyx,oyxc->nhwo", windows, weight.astype(np.float64), optimize=True)


def resnet_parameters(
    rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]], dtype: str
) -> dict[str, np.ndarray]:
    """Random parameters of a stage of ResNet, by name."""
    return {
        name: (rng.standard_normal(shape) * (np.prod(shape[1:]) / 2) ** -0.5).astype(dtype)
        for name, shape in shapes.items()
    }


def resnet_stage(
    config: ResnetConfig, x: np.ndarray, parameters: Mapping[str, np.ndarray]
) -> np.ndarray:
    """What :class:`warploom_bench.resnet.Stage` computes."""

    def layer(x: np.ndarray, name: str) -> np.ndarray:
        _, taps, _, stride, _ = config.layers[name]
        made = convolution(x, parameters[f"{name}.weight"], stride, taps // 2)
        return made + parameters[f"{name}.bias"].astype(np.float64)

    x = x.astype(np.float64)
    for number in range(config.blocks):
        block = f"blocks.{number}."
        h = np.maximum(layer(x, block + "reduce"), 0)
        h = np.maximum(layer(h, block + "spread"), 0)
        shortcut = layer(x, block + "project") if block + "project" in config.layers else x
        x = np.maximum(layer(h, block + "expand") + shortcut, 0)
    return x


def exported(model: nn.Module, shape: list[Any], dtype: str) -> tvm.IRModule:
    """A model with ``forward(x, *parameters)``."""
    return model.export_tvm({"forward": {"x": nn.spec.Tensor(shape, dtype)}})[0]
