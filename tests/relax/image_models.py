"""Models of images and sounds as PyTorch users write them, and their route to Relax."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import tvm
from torch import nn
from torch.nn import functional as F
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Bottleneck(nn.Module):
    """ResNet: stem, pooling, a block with a strided shortcut, and a classifier."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        sizes = [(3, 2 * width, 7, 2), (2 * width, width, 1, 1), (width, width, 3, 2),
                 (width, 4 * width, 1, 1), (2 * width, 4 * width, 1, 2)]  # fmt: skip
        self.convolutions = nn.ModuleList(
            nn.Conv2d(c, k, taps, stride, taps // 2, bias=False) for c, k, taps, stride in sizes
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(size[1]) for size in sizes)
        for norm in self.norms:
            for values, low in ((norm.weight, 0.5), (norm.running_var, 0.5), (norm.bias, -0.5)):
                values.data.uniform_(low, low + 1)
        self.head = nn.Linear(4 * width, 16, bias=False)

    def forward(self, x):
        def layer(number, x):
            return self.norms[number](self.convolutions[number](x))

        x = F.max_pool2d(layer(0, x).relu(), 3, 2, 1)
        y = layer(3, layer(2, layer(1, x).relu()).relu())
        y = (y + layer(4, x)).relu()
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


class ConvNext(nn.Module):
    """Stem, a block of a depthwise convolution and pointwise layers, and a smaller image."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem, self.smaller = nn.Conv2d(3, width, 4, 4), nn.Conv2d(width, 2 * width, 2, 2)
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.rand(width, 1, 1))

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)
        return self.smaller(x + y * self.scale)


class WhisperStem(nn.Module):
    """Two convolutions of a line, of which one takes every other place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(80, 64, 3, padding=1), nn.Conv1d(64, 64, 3, 2, 1)

    def forward(self, x):
        return F.gelu(self.second(F.gelu(self.first(x)))).permute(0, 2, 1)


class PatchEmbedding(nn.Module):
    """ViT: squares of an image become tokens."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.patches, self.linear = nn.Conv2d(3, 64, side, side), nn.Linear(64, 64)

    def forward(self, x):
        return self.linear(self.patches(x).flatten(2).transpose(1, 2))


class UnetBlock(nn.Module):
    """Group norms, SiLU, the embedding of a time, an image that skips layers, and a shortcut."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norms = nn.ModuleList((nn.GroupNorm(4, width), nn.GroupNorm(4, 2 * width)))
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(2 * width, width, 3, padding=2, dilation=2)
        self.time, self.shortcut = nn.Linear(32, width), nn.Conv2d(2 * width, width, 1)

    def forward(self, x, time, skip):
        h = self.first(F.silu(self.norms[0](x))) + self.time(time)[:, :, None, None]
        h = torch.cat((h, skip), 1)
        return self.second(F.silu(self.norms[1](h))) + self.shortcut(h)


#: Name -> the model, shapes of its inputs, and its convolutions and matmuls on tensor cores.
MODELS: dict[str, tuple[Callable[[], nn.Module], list[tuple[int, ...]], int]] = {
    "ResNet bottleneck": (Bottleneck, [(2, 3, 32, 32)], 6),
    "ConvNeXt block": (ConvNext, [(1, 3, 32, 32)], 4),
    "Whisper stem": (WhisperStem, [(1, 80, 41)], 2),
    "ViT, 16": (lambda: PatchEmbedding(16), [(2, 3, 32, 48)], 2),
    "ViT, 14": (lambda: PatchEmbedding(14), [(1, 3, 30, 42)], 2),
    "U-Net block": (UnetBlock, [(1, 64, 7, 9), (1, 32), (1, 64, 7, 9)], 4),
}


def exported(
    made: nn.Module, shapes: list[tuple[int, ...]], dtype: str = "float16"
) -> tuple[tvm.IRModule, list[np.ndarray], np.ndarray]:
    """A model in mixed precision, random inputs, and what it computes in float64."""
    made, inputs = made.eval(), [torch.randn(shape) for shape in shapes]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # within torch.export
        module = from_exported_program(torch.export.export(made, tuple(inputs)))
        wanted: Any = made.double()(*(one.double() for one in inputs))
    module = relax.transform.DecomposeOpsForInference("main")(module)
    module = relax.transform.ToMixedPrecision(dtype)(module)
    return module, [one.numpy() for one in inputs], wanted.numpy()
