"""A family of tile programs: what a search asks of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm.tirx import PrimFunc

from warploom.decide import choose
from warploom.decide.config import Config
from warploom.decide.legality import deepest
from warploom.decide.machine import Machine
from warploom.meta_schedule.measure import Argument
from warploom_bench.judging.changes import Change


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
        """A config with as many stages as fit; None if no kernel has its other choices."""
        return deepest(self.problem(shape), config)
