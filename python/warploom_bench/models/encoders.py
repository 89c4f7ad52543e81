"""Encoders in PyTorch, as their users write them: ViT-L/16, BERT-large, Whisper large-v3's."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class EncoderLayer(nn.Module):
    """Self-attention and an MLP, with norms before them (ViT, Whisper) or behind them (BERT)."""

    def __init__(self, width: int, heads: int, first: bool) -> None:
        super().__init__()
        self.heads, self.first = heads, first
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _mlp(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.first:
            x = x + self._attend(self.norms[0](x))
            return x + self._mlp(self.norms[1](x))
        x = self.norms[0](x + self._attend(x))
        return self.norms[1](x + self._mlp(x))


def _layers(width: int, heads: int, layers: int, first: bool = True) -> nn.Sequential:
    return nn.Sequential(*(EncoderLayer(width, heads, first) for _ in range(layers)))


class VisionTransformer(nn.Module):
    """ViT-L/16 for ``[n, 3, 224, 224]``."""

    def __init__(
        self, width: int = 1024, heads: int = 16, layers: int = 24, size: int = 224
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // 16) ** 2 + 1, width))
        self.layers, self.norm = _layers(width, heads, layers), nn.LayerNorm(width)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class Bert(nn.Module):
    """BERT-large for token ids ``[n, 384]``, up to its last layer."""

    def __init__(
        self, width: int = 1024, heads: int = 16, layers: int = 24, tokens: int = 384,
        vocabulary: int = 30522,
    ) -> None:  # fmt: skip
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(0.1 * torch.randn(tokens, width))
        self.norm, self.layers = nn.LayerNorm(width), _layers(width, heads, layers, first=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layers(self.norm(self.words(ids) + self.places))


class WhisperEncoder(nn.Module):
    """The encoder of Whisper large-v3 for spectrograms ``[n, 128, 3000]`` (30 s)."""

    def __init__(
        self, width: int = 1280, heads: int = 20, layers: int = 32, bands: int = 128,
        frames: int = 3000,
    ) -> None:  # fmt: skip
        super().__init__()
        self.first = nn.Conv1d(bands, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, 2, 1)
        self.places = nn.Parameter(0.1 * torch.randn(frames // 2, width))
        self.layers, self.norm = _layers(width, heads, layers), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(x))))
        return self.norm(self.layers(x.transpose(1, 2) + self.places))
