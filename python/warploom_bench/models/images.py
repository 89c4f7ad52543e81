"""Models of images in PyTorch: ResNet-50, ConvNeXt-T, and a block of Stable Diffusion's U-Net."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import fuse_conv_bn_eval


class ConvNorm(nn.Sequential):
    """A convolution with batch norm, and a ReLU behind it."""

    def __init__(self, c: int, k: int, taps: int, stride: int = 1, relu: bool = True) -> None:
        layers = [nn.Conv2d(c, k, taps, stride, taps // 2, bias=False), nn.BatchNorm2d(k)]
        super().__init__(*layers, *([nn.ReLU()] if relu else []))

    def fold(self) -> None:
        """Let the convolution do what the norm does, as for inference."""
        self[0], self[1] = fuse_conv_bn_eval(self[0], self[1]), nn.Identity()


class Bottleneck(nn.Module):
    """Convolutions of 1, 3 x 3 and 1 pixels, around which the input goes."""

    def __init__(self, c: int, width: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            ConvNorm(c, width, 1), ConvNorm(width, width, 3, stride),
            ConvNorm(width, 4 * width, 1, relu=False),
        )  # fmt: skip
        same = c == 4 * width and stride == 1
        self.shortcut = nn.Identity() if same else ConvNorm(c, 4 * width, 1, stride, relu=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.inner(x) + self.shortcut(x)).relu()


class ResNet(nn.Module):
    """ResNet-50 (v1.5) for ``[n, 3, 224, 224]``, or with other blocks."""

    def __init__(self, blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(ConvNorm(3, width, 7, 2), nn.MaxPool2d(3, 2, 1))
        made, c = [], width
        for stage, count in enumerate(blocks):
            for number in range(count):
                stride = 2 if stage and not number else 1
                made.append(Bottleneck(c, width << stage, stride))
                c = 4 * width << stage
        self.blocks, self.head = nn.Sequential(*made), nn.Linear(c, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.stem(x))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class ConvNextBlock(nn.Module):
    """A depthwise convolution, a norm and two pointwise layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(0.1 * torch.ones(width, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.down(functional.gelu(self.up(y))).permute(0, 3, 1, 2)
        return x + y * self.scale


class ChannelNorm(nn.LayerNorm):
    """A layer norm of the channels of ``[n, c, h, w]``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """ConvNeXt-T for ``[n, 3, 224, 224]``, or with other blocks."""

    def __init__(self, blocks: Sequence[int] = (3, 3, 9, 3), width: int = 96) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), ChannelNorm(width, eps=1e-6)]
        for stage, count in enumerate(blocks):
            c = width << stage
            if stage:
                layers += [ChannelNorm(c // 2, eps=1e-6), nn.Conv2d(c // 2, c, 2, 2)]
            layers += [ConvNextBlock(c) for _ in range(count)]
        self.layers, self.norm = nn.Sequential(*layers), nn.LayerNorm(c, eps=1e-6)
        self.head = nn.Linear(c, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(x).mean((2, 3))))


class TimedResnet(nn.Module):
    """Two convolutions with group norms, to which the embedding of a time is added."""

    def __init__(self, c: int, k: int, time: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList((nn.GroupNorm(32, c), nn.GroupNorm(32, k)))
        self.first, self.second = nn.Conv2d(c, k, 3, padding=1), nn.Conv2d(k, k, 3, padding=1)
        self.time = nn.Linear(time, k)
        self.shortcut = nn.Conv2d(c, k, 1) if c != k else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.first(functional.silu(self.norms[0](x)))
        h = h + self.time(functional.silu(time))[:, :, None, None]
        return self.second(functional.silu(self.norms[1](h))) + self.shortcut(x)


class Crossed(nn.Module):
    """Attention of pixels to pixels or to words."""

    def __init__(self, width: int, heads: int, words: int) -> None:
        super().__init__()
        self.heads, self.query = heads, nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(words, width, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            linear(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear, tokens in ((self.query, x), (self.key, words), (self.value, words))
        )
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).flatten(2))


class UnetBlock(nn.Module):
    """A block of Stable Diffusion 1.5's U-Net: a ResNet block, then a transformer over its pixels.

    Images ``[n, width, h, w]``, embedded times ``[n, 4 * width]``, words ``[n, 77, words]``. By
    default the block at 64 x 64 pixels.
    """

    def __init__(self, width: int = 320, heads: int = 8, words: int = 768) -> None:
        super().__init__()
        self.resnet, self.norm = TimedResnet(width, width, 4 * width), nn.GroupNorm(32, width)
        self.enter, self.leave = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.crossed = Crossed(width, heads, width), Crossed(width, heads, words)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, time: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        x = self.resnet(x, time)
        y = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        z = self.norms[0](y)
        y = y + self.own(z, z)
        y = y + self.crossed(self.norms[1](y), words)
        value, gate = self.up(self.norms[2](y)).chunk(2, -1)
        y = y + self.down(value * functional.gelu(gate))
        return x + self.leave(y.transpose(1, 2).unflatten(2, x.shape[2:]))
