"""The rows that are measured of each model: what runs, with which batch and how many tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warploom_bench.models.sizes import LANGUAGE

PREFILL, DECODE, ATTENTION, FORWARD = KINDS = ("prefill", "decode", "attention", "forward")
#: Tokens of prefills and of contexts, and sequences of decode steps.
TOKENS, SEQUENCES = (512, 2048, 8192), (1, 8, 64, 256)
#: Tokens of all sequences together from which decode attention is measured alone.
_MANY = 1 << 16
#: Batches of the models that PyTorch exports.
BATCHES: dict[str, tuple[int, ...]] = {
    "resnet-50": (1, 64),
    "convnext": (1, 64),
    "vit-l-16": (1, 64),
    "bert-large": (1, 64),
    "whisper-encoder": (1, 8),
    "sd-unet-block": (2, 16),
}
MODELS = (*LANGUAGE, *BATCHES)


@dataclass(frozen=True)
class Row:
    """One measurement of a model.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`. ``attention`` is that of decode steps, alone.
    batch : int
        Sequences or images.
    tokens : int
        New ones of a prefill, those in the cache otherwise; 0 where the model has no such number.
    """

    kind: str
    batch: int
    tokens: int = 0

    def __str__(self) -> str:
        if self.kind == PREFILL:
            return f"{PREFILL}-{self.tokens}"
        return f"{self.kind}-{self.batch}" + (f"x{self.tokens}" if self.tokens else "")


def rows_of(model: str) -> Iterator[Row]:
    """The rows of a model, those that are asked for most first."""
    if model in BATCHES:
        yield from (Row(FORWARD, batch) for batch in BATCHES[model])
        return
    yield from (Row(PREFILL, 1, tokens) for tokens in TOKENS)
    yield from (Row(DECODE, batch, tokens) for tokens in TOKENS for batch in SEQUENCES)
    if not LANGUAGE[model].latent:
        pairs = ((batch, tokens) for tokens in (*TOKENS, 65536) for batch in SEQUENCES)
        yield from (Row(ATTENTION, *pair) for pair in pairs if _MANY <= pair[0] * pair[1] < 1 << 20)
