"""The progress of a search, for its user: tasks, trials a second, best times, time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from warploom.decide.config import Config
from warploom.language.tuning.space import text_of
from warploom.meta_schedule.artifact import Facts
from warploom.meta_schedule.measure import Listener, Measurement


@dataclass
class _Task:
    """The progress of one task; times in microseconds."""

    trials: int = 0
    failed: int = 0
    best: float | None = None
    predicted: float | None = None
    config: str = ""


class Progress:
    """A listener of :class:`warploom.meta_schedule.Runner` with a view, inside of ``with``.

    Parameters
    ----------
    total : int
        Trials that the search may take.
    console : rich.console.Console, optional
        Where the view is; one that is no terminal gets it once, at the end.
    clock : callable
        Seconds.

    Examples
    --------
    >>> with wms.Progress(64) as progress:  # doctest: +SKIP
    ...     runner = wms.Runner(listener=progress)
    ...     ms.tune_tir(mod, target, "work_dir", 64, space=wms.Space(), runner=runner)
    """

    def __init__(
        self,
        total: int,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self._clock = total, clock
        self._start = clock()
        self._tasks: dict[str, _Task] = {}
        self._lock = threading.Lock()
        self._live = Live(console=console or Console(stderr=True), refresh_per_second=2,
                          get_renderable=self.table)  # fmt: skip

    def __enter__(self) -> Progress:
        self._live.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        self._live.__exit__(*problem)
        if not self._live.console.is_terminal:
            self._live.console.line()

    def __call__(self, facts: Facts, measurement: Measurement | None, error: str) -> None:
        with self._lock:
            task = self._tasks.setdefault(facts.problem or facts.workload, _Task())
            task.trials += 1
            if measurement is None:
                task.failed += 1
                return
            us = sorted(measurement.seconds)[len(measurement.seconds) // 2] * 1e6
            if task.best is None or us < task.best:
                task.best, task.predicted = us, facts.predicted
                task.config = decisions(facts)

    @property
    def trials(self) -> int:
        """Trials of all tasks so far."""
        return sum(task.trials for task in self._tasks.values())

    @property
    def rate(self) -> float:
        """Trials a second."""
        return self.trials / max(1e-9, self._clock() - self._start)

    @property
    def seconds_left(self) -> float | None:
        """As long as the search goes on as it did; None before the first trial."""
        return (self.total - self.trials) / self.rate if self.trials else None

    def table(self) -> Table:
        """The view."""
        left = self.seconds_left
        eta = "" if left is None else f", {left:.0f} s left at most"
        table = Table(title=f"{self.trials} of {self.total} trials, {self.rate:.1f} a second{eta}")
        table.add_column("function", overflow="fold")
        for name in ("trials", "failed", "best us", "model says"):
            table.add_column(name, justify="right")
        table.add_column("best config", overflow="fold")
        with self._lock:
            for name, task in self._tasks.items():
                table.add_row(
                    name, str(task.trials), str(task.failed), _number(task.best),
                    _number(task.predicted), task.config,
                )  # fmt: skip
        return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def decisions(facts: Facts) -> str:
    """The decisions of a candidate; empty for functions that have none of ours."""
    if facts.config is None:
        return ""
    if facts.is_program:
        return text_of({n: v for n, v in facts.config.items() if not n.startswith("@")})
    return short(Config.of(facts.config))


def short(config: Config) -> str:
    """The tile, and the fields that differ from the defaults of :class:`Config`."""
    default = Config().values()
    rest = [
        f"{name}={value}"
        for name, value in config.values().items()
        if not name.startswith("tile_") and value != default[name]
    ]
    return " ".join([f"{config.tile_m}x{config.tile_n}x{config.tile_k}", *rest])


def several(*listeners: Listener) -> Listener:
    """Return a listener that tells all of these listeners."""

    def tell(facts: Facts, measurement: Measurement | None, error: str) -> None:
        for listener in listeners:
            listener(facts, measurement, error)

    return tell
