"""Random legal configs of a GEMM, of everything that can be chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from warploom.decide.candidates import candidates
from warploom.decide.config import Config
from warploom.decide.problem import GemmProblem
from warploom.errors import IllegalCombination

#: Values of each choice that candidates may not have.
_CHOICES: dict[str, tuple[Any, ...]] = {
    "cluster_m": (1, 2, 4), "cluster_n": (1, 2, 4), "group": (1, 2, 8, 32), "split_k": (1, 2, 3, 4),
    "ctas_per_sm": (1, 2, 3), "slice_k": (1, 2, 3), "reduce_through": ("workspace", "cluster"),
    "stream_k": (False, True), "specialise": (True, False), "persistent": (True, False),
    "store_columns": (64, 32, 16), "store_buffers": (2, 1, 4), "sms": (0, 128),
    "ping_pong": (False, True), "l2_policy": (0, 1, 2), "stages": (2, 3, 4),
    "prefetch_l2": (False, True), "pdl": (True, False),
}  # fmt: skip


def random_configs(problem: GemmProblem, rng: np.random.Generator, count: int) -> Iterator[Config]:
    """So many legal configs, each a candidate with a few choices changed."""
    found = list(candidates(problem))
    while count:
        config = found[rng.integers(len(found))]
        for name in rng.choice(list(_CHOICES), rng.integers(4), replace=False):
            values = _CHOICES[name]
            config = replace(config, **{str(name): values[rng.integers(len(values))]})
        if not config.persistent:  # such a grid has no order of its own
            config = replace(config, group=Config().group)
        try:
            legal = config.why_not(problem) is None
        except IllegalCombination:
            legal = False
        if legal:
            count -= 1
            yield config
