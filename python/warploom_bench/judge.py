"""``python -m warploom_bench judge``: the model's choice compared with the best config of a search.

Each GEMM is searched in rounds: first the configs that the model likes and some near to them, then
configs near to the fastest ones, with one or two choices changed at random. Random shapes of a seed
that nothing was fitted to (``--suite unseen:SEED:COUNT``) say how good the model is elsewhere.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TextIO

from warploom.command_line import Parser, duration, output_file, require_gpu
from warploom.decide.config import Config
from warploom.decide.model import predict
from warploom.decide.ranking import ranked
from warploom.errors import WarploomError
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule import Builder, Runner
from warploom.meta_schedule.runner import outcome
from warploom.target.tvm_target import default_target
from warploom_bench.candidates import GemmCandidates, Line
from warploom_bench.environment import environment
from warploom_bench.neighbours import neighbours
from warploom_bench.options import compiling_options, gemm_options, suite_options, wanted_shapes
from warploom_bench.report import geometric_mean

#: Configs of the first round that the model likes best, each of another tile.
_FIRST = 6
#: Configs that the model likes, whose tiles a search may take.
_TILES = 60
#: The fastest configs, near to which the next round looks.
_FASTEST = 4


class Search:
    """One GEMM, the model's choice for it, and the times of its configs so far."""

    def __init__(self, shape: GemmShape, rng: random.Random) -> None:
        self.candidates, self.rng = GemmCandidates(shape), rng
        problem = self.candidates.problem
        self.liked = [config for _, config in ranked(problem, _TILES)]
        self.choice = self.liked[0]
        self.seen: set[Config] = set()
        self.times: dict[Config, float] = {}

    def next(self, count: int) -> list[Config]:
        """The configs of the next round."""
        problem = self.candidates.problem
        if not self.seen:
            tiles: dict[Any, Config] = {}
            for config in self.liked:
                tiles.setdefault((config.tile_m, config.tile_n, config.swap_ab), config)
            first = list(tiles.values())[: min(_FIRST, count)]
            self.seen.update(first)
            more = count - len(first)
            return first + neighbours(problem, first, self.liked, more, self.seen, self.rng)
        fastest = sorted(self.times, key=self.times.__getitem__)[:_FASTEST]
        if not fastest:
            return []
        return neighbours(problem, fastest, self.liked, count, self.seen, self.rng)

    def ratio(self) -> float | None:
        """The time of the best config in that of the choice; None if the choice has no time."""
        chosen = self.times.get(self.choice)
        return None if chosen is None else min(self.times.values()) / chosen


def run_round(
    searches: Sequence[Search], count: int, builder: Builder, runner: Runner, target: Any,
    until: float,
) -> Iterator[Line]:  # fmt: skip
    """Measure so many configs of each GEMM, until a moment of ``time.monotonic``."""
    built = [
        (search, config, search.candidates.submit(config, builder, target))
        for search in searches
        for config in search.next(count)
    ]
    running: deque[tuple[Search, Config, Future[Any]]] = deque()
    for search, config, library in built:
        if time.monotonic() > until:
            library.cancel()
            continue
        try:
            trial = runner.submit(library.result(), "cuda", search.candidates.arguments)
        except WarploomError as error:
            yield _line(search, config, None, str(error))
            continue
        running.append((search, config, trial))
        while len(running) > len(runner.pool.workers):
            yield _finished(*running.popleft())
    for trial in running:
        yield _finished(*trial)


def _finished(search: Search, config: Config, trial: Future[Any]) -> Line:
    return _line(search, config, *outcome(trial))


def _line(search: Search, config: Config, measurement: Any, error: str) -> Line:
    samples = [second * 1e6 for second in measurement.seconds] if measurement else []
    us = sorted(samples)[len(samples) // 2] if samples else None
    if us is not None:
        search.times[config] = us
    predicted = predict(search.candidates.problem, config).total
    clock = measurement.clock if measurement else None
    shape = {**vars(search.candidates.shape)}
    return Line(shape, config.values(), predicted, us, samples, clock, error)


def table(searches: Sequence[Search]) -> Iterator[str]:
    """Lines of a table: by group, and of all GEMMs, the choice's ratio to the best."""
    groups: dict[str, list[float]] = {}
    for search in searches:
        ratio = search.ratio()
        if ratio is not None:
            groups.setdefault(search.candidates.shape.group, []).append(ratio)
            groups.setdefault("all", []).append(ratio)
    groups["all"] = groups.pop("all", [])
    yield f"{'group':12}{'GEMMs':>6}{'choice to best':>16}{'worst':>8}"
    for name, ratios in groups.items():
        if ratios:
            mean = geometric_mean(ratios)
            yield f"{name:12}{len(ratios):6}{mean:16.3f}{min(ratios):8.3f}"


def _rounds(text: str) -> tuple[int, ...]:
    counts = tuple(int(part) for part in text.split(",") if part.isdecimal())
    if not counts or min(counts) < 1 or len(counts) != len(text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r}: write counts of configs, such as 16,14,10")
    return counts


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is 0 unless a result was wrong."""
    parser = Parser(
        prog="warploom bench judge", description=__doc__,
        parents=[suite_options("unseen:1:30"), gemm_options(), compiling_options()],
    )  # fmt: skip
    parser.add_argument("--minutes", type=duration, default=8.0, help="wall time (default: 8)")
    parser.add_argument(
        "--rounds", type=_rounds, default=(16, 14, 10), metavar="COUNTS",
        help="configs of each GEMM in each round (default: 16,14,10)",
    )  # fmt: skip
    parser.add_argument("--out", type=output_file, default=Path("judge.jsonl"),
                        help="file to append to (default: %(default)s)")  # fmt: skip
    options = parser.parse_args(arguments)
    require_gpu("benchmarks measure one")
    until = time.monotonic() + 60 * options.minutes
    rng = random.Random(options.suite)
    searches = [Search(shape, rng) for shape in dict.fromkeys(wanted_shapes(options))]
    rng.shuffle(searches)  # a run that ends early has measured all groups alike
    builder, runner = Builder(options.workers), Runner(options.device or (0,))
    target, _ = default_target()
    with options.out.open("a") as file:
        file.write(json.dumps(environment(["judge", *arguments])) + "\n")
        wrong = sum(
            _measured(file, run_round(searches, count, builder, runner, target, until))
            for count in options.rounds
        )
    builder.close()
    runner.close()
    print("\n".join(table(searches)))
    return 1 if wrong else 0


def _measured(file: TextIO, lines: Iterator[Line]) -> int:
    """Write lines as they come; how many results were wrong."""
    wrong = 0
    for line in lines:
        file.write(json.dumps(vars(line)) + "\n")
        file.flush()
        wrong += "is wrong" in line.error
    return wrong
