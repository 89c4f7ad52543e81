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
    streams_weights,
    with_caching,
)
from warploom.decide.config import Config
from warploom.decide.gemv import GEMV_ROWS, gemv_configs
from warploom.decide.gemv_rules import why_no_gemv
from warploom.decide.machine import Machine
from warploom.decide.machines import machine_for
from warploom.decide.model import predict
from warploom.decide.problem import GemmProblem
from warploom.errors import IllegalCombination
from warploom.tile.choices import REDUCING_CLUSTERS

Known = Callable[[GemmProblem], Config | None]

#: Numbers of rows up to which a kernel may be chosen when it is launched.
ROW_LIMITS = (16, 32, 64, 128, 256, 512, 1024)
#: How much longer than with its best config a number of rows may take, by the model, to share a
#: kernel with more rows: another kernel costs a second of compilation. Results are in
#: ``warploom_bench/results/2026-11-26-build-times.md``.
SHARED_LOSS = 1.05
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

    Tiles and clusters decide which policies and prefetches of the L2 cache a candidate has
    (:func:`~warploom.decide.candidates.with_caching`), and the microseconds are those with them.

    Parameters
    ----------
    problem : GemmProblem
    count : int
        At most so many.
    machine : Machine, optional
        The GPU; by default that of the current target, and without a target an H200.
    """
    return _ranked(problem, count, machine or machine_for(), problem.finish)


@lru_cache(maxsize=256)
def _ranked(
    problem: GemmProblem, count: int, machine: Machine, _: tuple[float, ...]
) -> tuple[tuple[float, Config], ...]:
    # Problems of other epilogues may be equal; the last argument tells them apart.

    def rated(configs: Iterable[Config]) -> list[tuple[float, Config]]:
        return [(_time(problem, config, machine), config) for config in configs]

    # Of equal candidates the first: fewer parts, no cluster, the smaller tile.
    usual = sorted(rated(candidates(problem, machine)), key=lambda pair: pair[0])
    other = rated(
        variant for _, config in usual[:_VARIED] for variant in _variants(problem, config, machine)
    )
    if streams_weights(problem):  # stream-K may be the only good way to share a good tile
        other += rated(
            variant for _, config in usual[_VARIED:] if config.split_k == config.ctas_per_sm == 1
            for variant in _variants(problem, config, machine, ({"stream_k": True},))
        )
    other += rated(gemv_configs(problem))
    found: dict[Config, float] = {}
    for time, config in (*usual, *other):  # variants of several configs may be the same
        found.setdefault(config, time)
    pairs = ((time, config) for config, time in found.items())
    return tuple(sorted(pairs, key=lambda pair: pair[0])[:count])


def _variants(
    problem: GemmProblem, config: Config, machine: Machine,
    changes: Iterable[dict[str, Any]] = _VARIANTS,
) -> Iterator[Config]:  # fmt: skip
    """Legal configs that share, store or launch the tiles of a candidate in another way."""
    for change in changes:
        if "split_k" in change and (config.cluster_m * config.cluster_n > 1 or config.split_k > 1):
            continue
        variant = with_caching(problem, config.replace(**change, stages=1), machine)
        stages = most_stages(variant, problem) // variant.slice_k * variant.slice_k
        if stages < 2 or not has_neighbours(problem, variant):
            continue
        variant = variant.replace(stages=stages)
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

    One pair, of None, where the number of rows is known. Otherwise the fewest configs with which no
    number of :data:`ROW_LIMITS` takes :data:`SHARED_LOSS` times as long as with its own best
    config, by the model. Larger numbers have their best config.

    Parameters
    ----------
    problem : GemmProblem
    machine : Machine, optional
        The GPU; by default that of the current target, and without a target an H200.
    known : function, optional
        From a problem to the config that was measured for it, or None; it goes before predictions,
        and is not replaced by that of other numbers of rows.

    Raises
    ------
    IllegalCombination
        If none are legal.
    """
    machine = machine or machine_for()
    if known is None:
        return list(_predicted_by_rows(problem, machine, SHARED_LOSS, problem.finish))
    return _by_rows(problem, machine, known)


@lru_cache(maxsize=256)
def _predicted_by_rows(
    problem: GemmProblem, machine: Machine, *_: Any
) -> tuple[tuple[int | None, Config], ...]:
    # A model asks for the same GEMM in each of its layers. The third argument is that of `_good`,
    # the last tells problems apart that are equal but for their epilogues.
    return tuple(_by_rows(problem, machine, lambda _: None))


def _by_rows(
    problem: GemmProblem, machine: Machine, known: Known
) -> list[tuple[int | None, Config]]:
    config = known(problem) or choose_gemm(problem, machine)
    left = [replace(problem, m=limit) for limit in _limits(problem)] if problem.m is None else []
    configs: list[tuple[int | None, Config]] = [(None, config)]
    left = left[: -_served(config, left, machine, known) or None]
    while left:
        possible = _good(left[-1], machine, known)
        runs = [(_served(config, left, machine, known), config) for config in possible]
        # Of equally long runs the first: it is the best for the largest number of rows.
        length, config = max(runs, key=lambda run: run[0])
        configs.insert(0, (left[-1].m, config))
        left = left[:-length]
    return configs


def _limits(problem: GemmProblem) -> tuple[int, ...]:
    """Numbers of rows up to which a kernel may be chosen: of a GEMV, too, where there is one."""
    return ROW_LIMITS if why_no_gemv(problem) else (GEMV_ROWS, *ROW_LIMITS)


def _good(problem: GemmProblem, machine: Machine, known: Known) -> list[Config]:
    """The configs that may be chosen for a number of rows: the measured one, or good ones."""
    if measured := known(problem):
        return [measured]
    rated = ranked(problem, machine=machine)
    if not rated:
        raise IllegalCombination(f"There is no legal config for {problem}.")
    return [config for time, config in rated if time <= rated[0][0] * SHARED_LOSS]


def _served(
    config: Config, problems: list[GemmProblem], machine: Machine, known: Known
) -> int:
    """How many of the last problems, from the last on, a config is good enough for."""
    count = 0
    for problem in reversed(problems):
        measured = known(problem)
        if measured is not None:
            suits = measured == config
        else:
            best = _time(problem, choose_gemm(problem, machine), machine)
            suits = _time(problem, config, machine) <= best * SHARED_LOSS
        if not suits:
            break
        count += 1
    return count


def _time(problem: GemmProblem, config: Config, machine: Machine) -> float:
    return predict(problem, config, machine).total
