"""A search for the best config of a case: rounds of configs near to the fastest so far."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from threading import TIMEOUT_MAX
from typing import Any

from warploom.decide.config import Config
from warploom.errors import WarploomError
from warploom.meta_schedule import Builder, Runner
from warploom.meta_schedule.measure import Measurement
from warploom.meta_schedule.runner import outcome
from warploom_bench.judging.case import Case
from warploom_bench.judging.lanes import in_lanes
from warploom_bench.judging.line import JudgeLine

#: Configs of the first round that the model likes best, each of another tile.
_FIRST = 6
#: The fastest configs, near to which the next round looks.
_FASTEST = 4


class Search:
    """A case, and the times of its configs so far.

    Attributes
    ----------
    times : dict from Config to float
        Microseconds of one measurement each.
    gpu : int
        The place of the runner, of several, that measures all of its configs.
    """

    def __init__(self, case: Case, rng: random.Random, gpu: int = 0) -> None:
        self.case, self.rng, self.gpu = case, rng, gpu
        self.seen: set[Config] = set()
        self.times: dict[Config, float] = {}

    @property
    def choice(self) -> Config:
        """The model's choice."""
        return self.case.liked[0]

    def fastest(self, count: int) -> list[Config]:
        """So many configs with the shortest times."""
        return sorted(self.times, key=self.times.__getitem__)[:count]

    def next(self, count: int) -> list[Config]:
        """The configs of the next round."""
        if self.seen:
            near = self.fastest(_FASTEST)
            return self.case.neighbours(near, count, self.seen, self.rng) if near else []
        tiles: dict[Any, Config] = {}
        for config in self.case.liked:
            tiles.setdefault((config.tile_m, config.tile_n, config.swap_ab), config)
        first = list(tiles.values())[: min(_FIRST, count)]
        self.seen.update(first)
        return first + self.case.neighbours(first, count - len(first), self.seen, self.rng)

    def line(
        self, config: Config, phase: str, measurement: Measurement | None, error: str
    ) -> JudgeLine:
        """Note the time of a config, and return its line."""
        line = JudgeLine.of(self.case, config, phase, measurement, error)
        if line.us is not None:
            self.times[config] = line.us
        return line


#: A config of a search that is being compiled.
_Built = tuple[Search, Config, Future[str]]
#: What became of it: its measurement, or why there is none.
_Result = tuple[Search, Config, Measurement | None, str]


def run_round(
    searches: Sequence[Search], count: int, phase: str, builder: Builder,
    runners: Sequence[Runner], target: Any, until: float,
) -> Iterator[JudgeLine]:  # fmt: skip
    """Measure so many configs of each case, until a moment of ``time.monotonic``."""
    if time.monotonic() > until:
        return
    built = [
        (search, config, search.case.submit(config, builder, target))
        for search in searches
        for config in search.next(count)
    ]
    lanes = [
        _measured([one for one in built if one[0].gpu == gpu], runner, until)
        for gpu, runner in enumerate(runners)
    ]
    for search, config, measurement, error in in_lanes(lanes):
        yield search.line(config, phase, measurement, error)


def _measured(built: Sequence[_Built], runner: Runner, until: float) -> Iterator[_Result]:
    """The results of configs that one runner measures, in order."""
    running: deque[tuple[Search, Config, Future[Any]]] = deque()

    def finished() -> _Result:
        search, config, trial = running.popleft()
        return search, config, *outcome(trial)

    for search, config, library in built:
        left = until - time.monotonic()
        if left <= 0:
            library.cancel()
            continue
        try:
            path = library.result(min(left, TIMEOUT_MAX))
            trial = runner.submit(path, "cuda", search.case.arguments)
        except TimeoutError:
            library.cancel()
            continue
        except WarploomError as error:
            yield search, config, None, str(error)
            continue
        running.append((search, config, trial))
        while len(running) > len(runner.pool.workers):
            yield finished()
    while running:
        yield finished()
