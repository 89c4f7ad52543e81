"""The kernel that a search is for, as the search sees it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from warploom.decide.config import Config
from warploom.meta_schedule import Builder
from warploom.meta_schedule.measure import Argument


class Case(Protocol):
    """A kernel of fixed sizes with its configs.

    Attributes
    ----------
    family : str
        The kind of the kernel, such as ``"gemm"``.
    shape : mapping from str to object
        The sizes by name, for JSON; ``group`` is that of the summary.
    arguments : tuple of (shape, dtype)
        The tensors that the kernel takes.
    liked : sequence of Config
        What the model likes, the choice first.
    """

    family: str
    shape: Mapping[str, Any]
    arguments: tuple[Argument, ...]
    liked: Sequence[Config]

    def neighbours(
        self, near: Sequence[Config], count: int, seen: set[Config], rng: random.Random
    ) -> list[Config]:
        """Up to ``count`` configs near to others, none of them ``seen``; these are added to it."""

    def predict(self, config: Config) -> float | None:
        """The microseconds that the model predicts; None if it has no price for the kernel."""

    def submit(self, config: Config, builder: Builder, target: Any) -> Future[str]:
        """Have a config compiled, once; the future's result is the path of its library."""
