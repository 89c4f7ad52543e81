"""The best legal configs of a problem, by the model of costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from warploom.decide.candidates import (
    LARGE_CLUSTERS,
    candidates,
    fits_at_once,
    has_neighbours,
    most_stages,
)
from warploom.decide.config import Config
from warploom.decide.machine import Machine
from warploom.decide.machines import machine_for
from warploom.decide.model import predict
from warploom.decide.problem import GemmProblem
from warploom.errors import IllegalCombination
from warploom.tile.choices import REDUCING_CLUSTERS

Known = Callable[[GemmProblem], Config | None]

#: Numbers of rows up to which a kernel may be chosen when it is launched.
ROW_LIMITS = (16, 32, 64, 128, 256, 512, 1024)
#: Another kernel costs code and compile time.
_WORTH_A_KERNEL = 1.05
#: Candidates of which the model tries variants, and changes that make a variant of one.
_VARIED = 48
_VARIANTS: tuple[dict[str, Any], ...] = (
    *({"cluster_m": down, "cluster_n": across} for down, across in LARGE_CLUSTERS),
    *({"split_k": parts, "reduce_through": "cluster"} for parts in REDUCING_CLUSTERS),
    {"persistent": False}, {"specialise": False}, {"persistent": False, "specialise": False},
    {"stream_k": True}, {"store_columns": 32},
)  # fmt: skip


def ranked(
    problem: GemmProblem, count: int = 64, machine: Machine | None = None
) -> tuple[tuple[float, Config], ...]:
    """The best candidates, with the predicted microseconds, the fastest first.

    The microseconds are those without policies and prefetches of the L2 cache: what these gain is
    less than the model errs between two tiles, so rules give them to tiles
    (:mod:`warploom.decide.candidates`).

    Parameters
    ----------
    problem : GemmProblem
    count : int
        At most so many.
    machine : Machine, optional
        The GPU; by default that of the current target, and without a target an H200.
    """
    return _ranked(problem, count, machine or machine_for())


@lru_cache(maxsize=256)
def _ranked(
    problem: GemmProblem, count: int, machine: Machine
) -> tuple[tuple[float, Config], ...]:

    def rated(configs: Iterable[Config]) -> list[tuple[float, Config]]:
        return [(_time(problem, config, machine), config) for config in configs]

    # Of equal candidates the first: fewer parts, no cluster, the smaller tile.
    usual = sorted(rated(candidates(problem, machine)), key=lambda pair: pair[0])
    other = rated(
        variant for _, config in usual[:_VARIED] for variant in _variants(problem, config, machine)
    )
    return tuple(sorted([*usual, *other], key=lambda pair: pair[0])[:count])


def _variants(
    problem: GemmProblem, config: Config, machine: Machine
) -> Iterator[Config]:
    """Legal configs that share, store or launch the tiles of a candidate in another way."""
    for change in _VARIANTS:
        if "split_k" in change and (config.cluster_m * config.cluster_n > 1 or config.split_k > 1):
            continue
        variant = replace(config, **change, stages=1)
        stages = most_stages(variant, problem) // variant.slice_k * variant.slice_k
        if stages < 2 or not has_neighbours(problem, variant):
            continue
        variant = replace(variant, stages=stages)
        large = (variant.cluster_m, variant.cluster_n) in LARGE_CLUSTERS
        if large and not fits_at_once(problem, variant, machine):
            continue
        if variant.why_not(problem) is None:
            yield variant


def choose_gemm(problem: GemmProblem, machine: Machine) -> Config:
    """The config that the model predicts the shortest time for.

    Raises
    ------
    IllegalCombination
        If none are legal.
    """
    rated = ranked(problem, machine=machine)
    if not rated:
        raise IllegalCombination(f"There is no legal config for {problem}.")
    return rated[0][1]


def choose_by_rows(
    problem: GemmProblem, machine: Machine | None = None, known: Known | None = None
) -> list[tuple[int | None, Config]]:
    """Configs for several numbers of rows, each with the largest number it is for.

    One pair, of None, where the number of rows is known. A number of rows gets a config of its own
    where they are known, or predicted to gain something.

    Parameters
    ----------
    problem : GemmProblem
    machine : Machine, optional
        The GPU; by default that of the current target, and without a target an H200.
    known : function, optional
        From a problem to the config that was measured for it, or None; it goes before predictions.

    Raises
    ------
    IllegalCombination
        If none are legal.
    """
    known, machine = known or (lambda _: None), machine or machine_for()
    current = known(problem) or choose_gemm(problem, machine)
    configs: list[tuple[int | None, Config]] = [(None, current)]
    for limit in reversed(ROW_LIMITS) if problem.m is None else ():
        fixed = replace(problem, m=limit)
        measured = known(fixed)
        best = measured or choose_gemm(fixed, machine)
        gain = _time(fixed, current, machine) / _time(fixed, best, machine)
        if measured != current if measured else gain > _WORTH_A_KERNEL:
            current = best
            configs.insert(0, (limit, best))
    return configs


def _time(problem: GemmProblem, config: Config, machine: Machine) -> float:
    return predict(problem, config, machine).without_policies
