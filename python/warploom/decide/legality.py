"""Whether a kernel for a problem can have a config: one question for the problems of all families.

Whoever draws configs asks before a kernel is made of them: what no kernel can have fails late, in a
pass, in the compiler or on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warploom.decide.candidates import LEAST_STAGES, most_stages
from warploom.decide.config import Config
from warploom.decide.families.attention import (
    AttentionProblem,
    deepest_attention,
    why_not_attention,
)
from warploom.decide.families.block_scaled import (
    BlockScaledProblem,
    deepest_block_scaled,
    why_not_block_scaled,
)
from warploom.decide.families.grouped_problem import (
    GroupedBlockScaledProblem,
    GroupedProblem,
    deepest_grouped,
    why_not_grouped,
)
from warploom.decide.families.quantised import (
    QuantisedProblem,
    deepest_quantised,
    why_not_quantised,
)
from warploom.decide.problem import GemmProblem


@dataclass(frozen=True)
class Legality:
    """What a family says of its configs.

    Attributes
    ----------
    why_not : callable
        Why no kernel for a problem can have a config; None if a kernel can.
    deepest : callable
        A config with as many stages as fit and help; None if no kernel has its other choices.
    """

    why_not: Callable[[Any, Config], str | None]
    deepest: Callable[[Any, Config], Config | None]


def _deepest_gemm(problem: GemmProblem, config: Config) -> Config | None:
    stages = most_stages(config, problem) // config.slice_k * config.slice_k
    if stages < LEAST_STAGES:
        return None
    found = config.replace(stages=stages)
    return found if found.why_not(problem) is None else None


_GROUPED = Legality(why_not_grouped, deepest_grouped)
#: By the class of the problem.
LEGALITY: dict[type, Legality] = {
    AttentionProblem: Legality(why_not_attention, deepest_attention),
    BlockScaledProblem: Legality(why_not_block_scaled, deepest_block_scaled),
    GemmProblem: Legality(lambda problem, config: config.why_not(problem), _deepest_gemm),
    GroupedBlockScaledProblem: _GROUPED,
    GroupedProblem: _GROUPED,
    QuantisedProblem: Legality(why_not_quantised, deepest_quantised),
}


def why_not(problem: Any, config: Config) -> str | None:
    """Why no kernel for a problem can have a config, as a sentence; None if a kernel can.

    Parameters
    ----------
    problem : GemmProblem, QuantisedProblem, ...
        Of a class in :data:`LEGALITY`.
    config : Config

    Examples
    --------
    >>> from warploom.decide.families.quantised import QuantisedProblem
    >>> why_not(QuantisedProblem(16, 4096, 4096), Config(16, 192, 64, 4, consumers=3, swap_ab=True))
    'tile_k = 64: it must divide k 4096, be a multiple of the 128 weights that lie together, ...
    """
    return LEGALITY[type(problem)].why_not(problem, config)


def deepest(problem: Any, config: Config) -> Config | None:
    """A config with as many stages as fit and help, whatever it says of stages; of attention, with
    no more than it says.

    None if no kernel for the problem has its other choices.

    Examples
    --------
    >>> from warploom.decide.families.quantised import QuantisedProblem
    >>> config = Config(16, 64, 128, 1, consumers=1, swap_ab=True, slice_k=3)
    >>> deepest(QuantisedProblem(16, 4096, 4096), config).stages
    12
    """
    return LEGALITY[type(problem)].deepest(problem, config)
