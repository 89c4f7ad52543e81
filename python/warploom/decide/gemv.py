"""Configs of GEMVs for a problem: see :mod:`warploom.decide.gemv_rules`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from warploom.decide.config import Config
from warploom.decide.gemv_rules import loads_x_ahead, step_of, why_no_gemv
from warploom.decide.machine import Machine
from warploom.decide.model import predict
from warploom.decide.problem import GemmProblem
from warploom.intrin.mma_sync import MMA_N

#: Up to so many rows a GEMV reads weights once.
GEMV_ROWS = MMA_N
#: Columns of a CTA, steps that a warp loads ahead, warpgroups that share K, CTAs of an SM.
_COLUMNS, _STAGES, _GROUPS = (16, 32, 64), (1, 2, 4, 7), (2, 1, 3)
_CTAS = (8, 6, 4, 3, 2, 1)


def gemv_configs(problem: GemmProblem) -> Iterator[Config]:
    """The legal configs of a problem of few rows; none if its number is unknown or larger.

    Of configs that differ in nothing but the CTAs of an SM that they are compiled for, two: with
    the most CTAs that registers suffice for, and with the most that leave some to load X ahead.
    """
    if problem.m is None or problem.m > GEMV_ROWS or why_no_gemv(problem) is not None:
        return
    steps = (problem.k or 0) // step_of(problem)
    for columns, stages, groups in product(_COLUMNS, _STAGES, _GROUPS):
        base = Config(
            MMA_N, columns, step_of(problem), stages, consumers=1, slice_k=groups, swap_ab=True,
            persistent=False, specialise=False, gemv=True,
        )  # fmt: skip
        if stages > 1 and 4 * groups * (stages // 2) >= steps:
            continue  # half of the registers would do
        fitting = [base.replace(ctas_per_sm=ctas) for ctas in _CTAS]
        fitting = [one for one in fitting if one.why_not(problem) is None]
        ahead = [one for one in fitting if loads_x_ahead(one, problem)]
        yield from dict.fromkeys([*fitting[:1], *ahead[:1]])


def is_beaten(problem: GemmProblem, config: Config, machine: Machine) -> bool:
    """Whether a GEMV is predicted to be faster than a config that a search has found.

    Searches draw no GEMVs, so what they have measured says nothing of them.
    """
    if config.gemv:
        return False
    times = [predict(problem, one, machine).total for one in gemv_configs(problem)]
    return bool(times) and min(times) < predict(problem, config, machine).total
