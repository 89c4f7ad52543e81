"""Protocols that time competing kernels fairly, and the statistics they give.

The protocols only talk to a :class:`Timer`, so that they can be tested with a fake clock. They
never run one competitor after another: every round samples all of them, in a rotating order, so
that clock and temperature drifts hit all alike.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

#: Runs a kernel once on the input set with this number. Sets rotate, so that none stays in the L2.
Launch = Callable[[int], object]


class Timer(Protocol):
    """The interface of a device for measurements."""

    def idle(self, seconds: float) -> None:
        """Wait until the device has nothing to do, then leave it alone for ``seconds``."""

    def elapsed(self, warm: Callable[[], object], timed: Callable[[], object]) -> float:
        """Seconds of device time of ``timed``, enqueued right behind ``warm``."""

    def conditions(self) -> tuple[float | None, float | None]:
        """The device's clock in MHz and its power in W right now; None if unknown."""


@dataclass(frozen=True)
class Statistics:
    """Seconds of one kernel execution, over several samples.

    Attributes
    ----------
    samples : tuple of float
    mhz, watts : tuple of float
        The device's clock and power after each sample, where they are known.
    """

    samples: tuple[float, ...]
    mhz: tuple[float, ...] = ()
    watts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.samples or any(not s > 0 for s in self.samples):
            raise ValueError(f"Samples must be positive times, got {self.samples}.")

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def min(self) -> float:
        return min(self.samples)

    @property
    def max(self) -> float:
        return max(self.samples)


@dataclass(frozen=True)
class Sampling:
    """How samples are taken.

    Attributes
    ----------
    name : str
        ``"burst"`` or ``"sustained"``.
    rounds : int
        Samples of each competitor.
    idle_seconds : float
        Pause before each sample, in which a throttled device recovers its clock.
    launches : int
        Executions in one sample, whose time is divided by their number.
    warm_launches : int
        Executions right before a sample; they also hide the host's cost of the first timed one.
    """

    name: str
    rounds: int
    idle_seconds: float
    launches: int
    warm_launches: int

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.launches < 1 or self.warm_launches < 0:
            raise ValueError(f"Sampling needs at least one round and one launch, got {self}.")


def burst(rounds: int = 15) -> Sampling:
    """Return the sampling at full clock: 50 ms idle and one warm launch before each sample."""
    return Sampling("burst", rounds, idle_seconds=0.05, launches=1, warm_launches=1)


def sustained(seconds_per_launch: float, rounds: int = 5, seconds: float = 0.2) -> Sampling:
    """Back-to-back executions that fill ``seconds`` a sample, as much again to warm up."""
    launches = max(1, round(seconds / seconds_per_launch))
    return Sampling(
        "sustained", rounds, idle_seconds=0.0, launches=launches, warm_launches=launches
    )


def measure(
    competitors: Mapping[str, Launch],
    timer: Timer,
    sampling: Sampling,
    input_sets: int,
    executions: int = 1,
) -> dict[str, Statistics]:
    """Sample every competitor ``sampling.rounds`` times, interleaved.

    Parameters
    ----------
    competitors : mapping from name to Launch
    timer : Timer
    sampling : Sampling
    input_sets : int
        How many input sets a ``Launch`` accepts; successive launches use successive sets.
    executions : int
        Kernel executions of one ``Launch``, more than one for a CUDA graph.

    Returns
    -------
    dict
        Seconds of one execution for each competitor, in the order of ``competitors``.
    """
    names = list(competitors)
    samples: dict[str, list[float]] = {name: [] for name in names}
    conditions: dict[str, list[tuple[float | None, float | None]]] = {name: [] for name in names}
    # One rotation for all: a competitor never reads the operands that the previous one just read.
    rotation = itertools.cycle(range(input_sets))

    def repeat(name: str, count: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(count):
                competitors[name](next(rotation))

        return run

    for number in range(sampling.rounds):
        for name in rotated(names, number):
            timer.idle(sampling.idle_seconds)
            warm = repeat(name, sampling.warm_launches)
            seconds = timer.elapsed(warm, repeat(name, sampling.launches))
            samples[name].append(seconds / (sampling.launches * executions))
            conditions[name].append(timer.conditions())
    return {
        name: Statistics(
            tuple(samples[name]),
            *(tuple(value for value in each if value is not None)
              for each in zip(*conditions[name], strict=True)),
        )
        for name in names
    }  # fmt: skip


def rotated(names: Sequence[str], by: int) -> list[str]:
    """``names`` starting at position ``by``, cyclically."""
    start = by % len(names)
    return [*names[start:], *names[:start]]


def host_cost(
    launch: Launch,
    wait: Callable[[], object],
    launches: int = 50,
    rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Median seconds that the host spends in one call of ``launch``.

    Few enough launches that the device's queue never fills, and ``wait`` (for the device) before
    each round but outside the measured time.
    """
    costs = []
    for _ in range(rounds):
        wait()
        start = clock()
        for _ in range(launches):
            launch(0)
        costs.append((clock() - start) / launches)
    wait()
    return statistics.median(costs)
