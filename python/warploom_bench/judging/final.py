"""The final round: the choice and the fastest configs of each case, measured again side by side.

The least of many noisy times is less than the time of any config. So the times of a search only say
which configs are worth a second measurement, whose samples :mod:`warploom_bench.judging.verdict`
divides into those that select the best and those that judge it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Any

from warploom.decide.config import Config
from warploom.errors import WarploomError
from warploom.meta_schedule import Builder, Runner
from warploom.meta_schedule.artifact import read_facts
from warploom_bench.judging.lanes import in_lanes
from warploom_bench.judging.line import FINAL, JudgeLine
from warploom_bench.judging.search import Search

#: Configs that compete with the choice, of so many that may make equal kernels.
_RIVALS, _LOOKED_AT = 4, 12
#: Interleaved samples of each config in a repetition: two that select, and two that judge.
_SAMPLES = 4
#: Seconds of a case, about; and the part of a run that the final round may take.
_SECONDS, _MOST_PART = 3.0, 0.4
#: A case with the libraries of its finalists.
_Wanted = tuple[Search, dict[Config, str]]


def reserve(cases: int, seconds: float) -> float:
    """Seconds of a run that are left to the final round of so many cases."""
    return min(_SECONDS * cases, _MOST_PART * seconds)


def finalists(search: Search, builder: Builder, target: Any) -> dict[Config, str]:
    """The configs that are measured again, with their libraries: the choice first.

    Configs that make the same kernel are one. There are none if the choice has no time.
    """
    if search.choice not in search.times:
        return {}
    found: dict[str, tuple[Config, str]] = {}
    for config in dict.fromkeys([search.choice, *search.fastest(_LOOKED_AT)]):
        library = search.case.submit(config, builder, target).result()
        found.setdefault(read_facts(library).kernel, (config, library))
        if len(found) > _RIVALS:
            break
    return dict(found.values())


def run_final(
    searches: Sequence[Search], repetitions: int, builder: Builder, runners: Sequence[Runner],
    target: Any, until: float,
) -> Iterator[list[JudgeLine]]:  # fmt: skip
    """The lines of each case, until a moment of ``time.monotonic``."""
    wanted: list[list[_Wanted]] = [[] for _ in runners]
    for search in searches:
        if configs := finalists(search, builder, target):
            wanted[search.gpu].append((search, configs))
    lanes = [
        _compared(of_gpu, runner, repetitions, until)
        for of_gpu, runner in zip(wanted, runners, strict=True)
    ]
    for search, configs, measured in in_lanes(lanes):
        yield _lines(search, configs, measured)


def _compared(
    wanted: Sequence[_Wanted], runner: Runner, repetitions: int, until: float
) -> Iterator[tuple[Search, list[Config], Future[Any]]]:
    """Cases of one runner with their measurements, in order."""
    running: deque[tuple[Search, list[Config], Future[Any]]] = deque()
    for search, configs in wanted:
        if time.monotonic() > until:
            break
        measured = runner.compare(
            list(configs.values()), "cuda", search.case.arguments, _SAMPLES * repetitions
        )
        running.append((search, list(configs), measured))
        while len(running) > len(runner.pool.workers):
            yield _ended(running.popleft())
    while running:
        yield _ended(running.popleft())


def _ended(
    one: tuple[Search, list[Config], Future[Any]]
) -> tuple[Search, list[Config], Future[Any]]:
    """The same, once its measurement has ended."""
    wait([one[2]])
    return one


def _lines(search: Search, configs: Sequence[Config], future: Future[Any]) -> list[JudgeLine]:
    """The lines of a case; a process that was lost takes all of them with it."""
    try:
        measured = [(None, one.wrong) if one.wrong else (one, "") for one in future.result()]
    except WarploomError as error:
        measured = [(None, str(error))] * len(configs)
    return [
        JudgeLine.of(search.case, config, FINAL, *result)
        for config, result in zip(configs, measured, strict=True)
    ]
