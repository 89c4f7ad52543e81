"""GEMMs as cases of a search."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from warploom.decide.config import Config
from warploom.decide.model import predict
from warploom.decide.ranking import ranked
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule import Builder
from warploom_bench.candidates import GemmCandidates
from warploom_bench.neighbours import neighbours

#: Configs that the model likes, whose tiles a search may take.
_LIKED = 60


class GemmCase:
    """A GEMM of a suite: see :class:`warploom_bench.judging.case.Case`."""

    family = "gemm"

    def __init__(self, shape: GemmShape) -> None:
        self._candidates = GemmCandidates(shape)
        self.shape = dict(vars(shape))
        self.arguments = self._candidates.arguments
        self.liked = [config for _, config in ranked(self._candidates.problem, _LIKED)]

    def __str__(self) -> str:
        return str(self._candidates.shape)

    def neighbours(
        self, near: Sequence[Config], count: int, seen: set[Config], rng: random.Random
    ) -> list[Config]:
        """Legal configs with one or two choices drawn anew."""
        return neighbours(self._candidates.problem, near, self.liked, count, seen, rng)

    def predict(self, config: Config) -> float:
        """Microseconds by the model of GEMMs."""
        return predict(self._candidates.problem, config).total

    def submit(self, config: Config, builder: Builder, target: Any) -> Future[str]:
        """Have a config compiled, once."""
        return self._candidates.submit(config, builder, target)
