"""Fits the constants of the analytic model to measured candidates.

A search by coordinates: each constant in turn is tried a little larger and a little smaller, and
the step shrinks when nothing helps any more. The loss is the part that matters to a choice: how
much slower the model's choice is than the best, and how differently it errs for the candidates of
one GEMM; how far it is off for all of them counts less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from warploom.decide.config import Config
from warploom.decide.machine import Machine
from warploom.decide.model import predict
from warploom.decide.problem import GemmProblem
from warploom_bench.measured import NEAR, Candidate, by_problem

#: Constants that are counted, not fitted.
FIXED = ("gpu",)
#: Factors of the first and the last step.
_FIRST_STEP, _LAST_STEP = 1.3, 1.01
#: Weights of a choice's loss, of the spread within a GEMM, and of the error of all together.
_CHOICE, _SPREAD, _OFFSET = 1.0, 0.7, 0.15


@dataclass(frozen=True)
class GemmTimes:
    """Candidates of a GEMM with microseconds; those of the best."""

    problem: GemmProblem
    best: float
    candidates: tuple[tuple[Config, float], ...]


def by_gemm(candidates: Sequence[Candidate]) -> list[GemmTimes]:
    """Candidates by GEMM."""
    groups = []
    for problem, mine in by_problem(candidates).items():
        timed = tuple((candidate.config, candidate.us) for candidate in mine)
        groups.append(GemmTimes(problem, min(us for _, us in timed), timed))
    return groups


def loss(measured: Sequence[GemmTimes], machine: Machine) -> float:
    """How bad a machine's constants are; 0 is perfect."""
    total = 0.0
    for gemm in measured:
        rated = [
            (predict(gemm.problem, config, machine).total, us) for config, us in gemm.candidates
        ]
        # Much slower ones matter only if they are chosen.
        near = [pair for pair in rated if pair[1] <= NEAR * gemm.best]
        errors = [math.log(predicted / us) for predicted, us in near]
        mean = sum(errors) / len(errors)
        spread = math.sqrt(sum((error - mean) ** 2 for error in errors) / len(errors))
        chosen = min(rated)[1]
        total += _CHOICE * math.log(chosen / gemm.best) + _SPREAD * spread + _OFFSET * abs(mean)
    return total / len(measured)


def fit(measured: Sequence[GemmTimes], start: Machine, rounds: int = 12) -> Machine:
    """The machine whose predictions fit best.

    Parameters
    ----------
    measured : sequence of GemmTimes
    start : Machine
        Where the search begins.
    rounds : int
        Passes over all constants at most.
    """
    names = [field.name for field in fields(Machine) if field.name not in FIXED]
    best, least, step = start, loss(measured, start), _FIRST_STEP
    for _ in range(rounds):
        before = least
        for name in names:
            for factor in (step, 1 / step):
                tried = replace(best, **{name: getattr(best, name) * factor})
                tried_loss = loss(measured, tried)
                if tried_loss < least:
                    best, least = tried, tried_loss
                    break
        if least > before * 0.995:
            step = math.sqrt(step)
            if step < _LAST_STEP:
                break
    return best


def described(machine: Machine) -> str:
    """The constants as the source of :class:`Machine` has them."""
    values = ((field.name, getattr(machine, field.name)) for field in fields(Machine))
    return "\n".join(
        f"{name}: float = {float(f'{value:.3g}'):g}" for name, value in values if name not in FIXED
    )
