"""A family of tile programs: what a search asks of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tvm.tirx import PrimFunc

from warploom.decide import choose
from warploom.decide.config import Config
from warploom.decide.machine import Machine
from warploom.meta_schedule.measure import Argument
from warploom.target import SM90A
from warploom_bench.judging.changes import Change

#: Bytes of shared memory for barriers, and for what the places of tiles lose to their alignment.
_SPARE_BYTES = 3 * 1024
_MOST_STAGES = 12


@dataclass(frozen=True)
class Family:
    """A kind of tile program.

    Attributes
    ----------
    name : str
    drawn : callable
        The random cases of a suite ``unseen:SEED:COUNT``.
    problem : callable
        The problem of a case, as :func:`warploom.decide.choose` takes it.
    module : module
        Of the family in :mod:`warploom.decide.families`: what the model likes is what its function
        ``NAME_configs`` lists, by the microseconds that its function ``predicted`` says.
    program : callable
        The tile program of a case with a config.
    arguments : callable
        Shapes and dtypes of its tensors, the result last.
    changes : tuple of mapping
        What a search changes.
    stages : callable
        As many stages of a config as fit; 0 if the case has no kernel of the config.
    reference : callable
        What the program computes, as a function in S-TIR; None where numpy computes it.
    apart : bool
        As of :func:`warploom_bench.judging.references.build`.
    result : callable, optional
        Some of the result, from all tensors, where there is no ``reference``.
    given : callable
        Tensors whose contents matter, by their positions.
    """

    name: str
    drawn: Callable[[str], list[Any]]
    problem: Callable[[Any], Any]
    module: Any
    program: Callable[[Any, Config], PrimFunc]
    arguments: Callable[[Any], tuple[Argument, ...]]
    changes: tuple[Change, ...]
    stages: Callable[[Any, Config], int]
    reference: Callable[[Any], PrimFunc] | None = None
    apart: bool = False
    result: Callable[[Any, list[np.ndarray]], np.ndarray] | None = None
    given: Callable[[Any], Mapping[int, np.ndarray]] = field(default=lambda shape: {})

    def liked(self, shape: Any, machine: Machine) -> list[Config]:
        """The choice, and the configs that the family lists, in order."""
        problem = self.problem(shape)
        listed = getattr(self.module, f"{self.name.replace('-', '_')}_configs", None)
        others: Sequence[Config] = listed(problem, machine) if listed else ()
        return list(dict.fromkeys([choose(problem, machine), *others]))

    def predicted(self, shape: Any, config: Config, machine: Machine) -> float:
        """The microseconds of a config, as the family predicts them."""
        return self.module.predicted(self.problem(shape), config, machine)

    def fitted(self, shape: Any, config: Config) -> Config | None:
        """A config with as many stages as fit; None if there is no place for two."""
        stages = self.stages(shape, config)
        return replace(config, stages=stages) if stages >= 2 else None


def stages_that_fit(step_bytes: int, other_bytes: int, ctas_per_sm: int = 1) -> int:
    """As many stages of so many bytes as fit beside others of shared memory."""
    left = SM90A.shared_bytes_of_each(ctas_per_sm) - _SPARE_BYTES - other_bytes
    return max(0, min(_MOST_STAGES, left // step_bytes))
