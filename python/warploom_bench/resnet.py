"""A stage of ResNet, written with Relax's ``nn.Module``: images ``[n, h, w, c]`` all the way.

Norms are folded into the weights, as they are for inference.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.frontend import nn


@dataclass(frozen=True)
class ResnetConfig:
    """Sizes of a stage; those of the first one of ResNet-50 by default.

    Attributes
    ----------
    images : int
    size : int
        Rows, and columns, of the images that come in.
    channels : int
        Of the images that come in.
    width : int
        Channels inside of a block; four times as many leave it.
    blocks : int
    stride : int
        Of the first block, which also widens the images.
    dtype : str
        ``"float16"`` or ``"bfloat16"``.
    """

    images: int = 32
    size: int = 56
    channels: int = 64
    width: int = 64
    blocks: int = 3
    stride: int = 1
    dtype: str = "float16"

    def __str__(self) -> str:
        return (
            f"{self.blocks} blocks of {self.width}, {self.images}x{self.size}x{self.size}x"
            f"{self.channels} {self.dtype}"
        )

    @property
    def layers(self) -> dict[str, tuple[int, int, int, int, int]]:
        """Name -> (filters, taps along a side, channels, stride, rows and columns that come in)."""
        wide, side, convolutions = 4 * self.width, -(-self.size // self.stride), {}
        for number in range(self.blocks):
            first = number == 0
            before = self.channels if first else wide
            stride, size = (self.stride, self.size) if first else (1, side)
            block = f"blocks.{number}."
            convolutions[block + "reduce"] = self.width, 1, before, 1, size
            convolutions[block + "spread"] = self.width, 3, self.width, stride, size
            convolutions[block + "expand"] = wide, 1, self.width, 1, side
            if first:
                convolutions[block + "project"] = wide, 1, before, stride, size
        return convolutions

    @property
    def operations(self) -> int:
        """Multiplications and additions of all convolutions."""
        return sum(
            2 * self.images * (-(-size // stride)) ** 2 * filters * taps * taps * channels
            for filters, taps, channels, stride, size in self.layers.values()
        )


class Convolution(nn.Module):
    """A convolution that keeps the size but for its stride, with a bias."""

    def __init__(self, filters: int, taps: int, channels: int, stride: int, dtype: str) -> None:
        self.weight = nn.Parameter((filters, taps, taps, channels), dtype)
        self.bias = nn.Parameter((filters,), dtype)
        self.taps, self.stride = taps, stride

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        made = relax.op.nn.conv2d(
            x._expr, self.weight._expr, strides=self.stride, padding=self.taps // 2,
            data_layout="NHWC", kernel_layout="OHWI",
        )  # fmt: skip
        return nn.op.wrap_nested(made, "conv2d") + self.bias


class Bottleneck(nn.Module):
    """Convolutions of 1, 3 x 3 and 1 pixels; the input is added, projected if sizes differ."""

    def __init__(self, config: ResnetConfig, number: int) -> None:
        for name, (filters, taps, channels, stride, _) in config.layers.items():
            block, _, own = name.rpartition(".")
            if block == f"blocks.{number}":
                setattr(self, own, Convolution(filters, taps, channels, stride, config.dtype))

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        h = nn.op.relu(self.spread(nn.op.relu(self.reduce(x))))
        shortcut = self.project(x) if hasattr(self, "project") else x
        return nn.op.relu(self.expand(h) + shortcut)


class Stage(nn.Module):
    """Blocks one after the other."""

    def __init__(self, config: ResnetConfig) -> None:
        self.blocks = nn.ModuleList([Bottleneck(config, n) for n in range(config.blocks)])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.blocks(x)


def stage_module(
    config: ResnetConfig, images: int | str | None = None
) -> tuple[tvm.IRModule, dict[str, tuple[int, ...]]]:
    """The stage as a module with ``forward(x, *parameters)``.

    Parameters
    ----------
    config : ResnetConfig
    images : int or str, optional
        Their number, or the name of one that is known at run time; by default the config's.

    Returns
    -------
    (IRModule, dict)
        The second is the shapes of the parameters by name, in their order.
    """
    shape = [config.images if images is None else images, config.size, config.size, config.channels]
    spec = {"forward": {"x": nn.spec.Tensor(shape, config.dtype)}}
    module, parameters = Stage(config).export_tvm(spec)
    shapes = {name: tuple(int(e) for e in parameter.shape) for name, parameter in parameters}
    return module, shapes
