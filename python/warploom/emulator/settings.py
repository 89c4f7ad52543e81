"""Settings of the emulator: checks, the order of asynchronous operations, counters."""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warploom.emulator import binding
from warploom.errors import IllegalCombination
from warploom.runtime.emulator_libraries import MOST_SMS

#: Strategies by which the next warp and the next completion are chosen.
SCHEDULES = ("random", "round-robin", "late", "early", "far-ahead")


@dataclass(frozen=True)
class Settings:
    """The settings of the launches of one run.

    Attributes
    ----------
    checks : bool
        Whether races, missing fences, uninitialised reads and misuse are looked for.
    seed : int
        Equal seeds give equal schedules.
    schedule : str
        One of :data:`SCHEDULES`.
    report : bool
        Whether instructions, bytes, bank conflicts and waits are counted.
    explore : int
        Number of schedules that every launch is executed under; 0 and 1 mean one.
    exhaustive : int
        Bound of a systematic search through all schedules; 0 does none.
    sms : int
        Multiprocessors of the emulated devices, up to 1024; 0 for those that
        ``WARPLOOM_EMULATOR_SMS`` names, or else for those of an H200 and a B200.
    """

    checks: bool = True
    seed: int = 1
    schedule: str = "random"
    report: bool = False
    explore: int = 0
    exhaustive: int = 0
    sms: int = 0

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise IllegalCombination(
                f"The schedule is {self.schedule!r}; allowed are {', '.join(SCHEDULES)}."
            )
        for name in ("seed", "explore", "exhaustive", "sms"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or isinstance(value, bool):
                raise IllegalCombination(f"{name} is {value!r}; give an int.")
        if not 0 <= self.seed < 1 << 64:
            raise IllegalCombination(f"The seed is {self.seed}; allowed are 0 to 2**64 - 1.")
        if not 0 <= self.sms <= MOST_SMS:
            raise IllegalCombination(f"sms is {self.sms}; allowed are 0 to {MOST_SMS}.")
        if min(self.explore, self.exhaustive) < 0:
            raise IllegalCombination("explore and exhaustive are numbers of schedules, not < 0.")
        if max(self.explore, self.exhaustive) >= 1 << 63:
            raise IllegalCombination("explore and exhaustive are numbers of schedules below 2**63.")
        if self.explore > 1 and self.exhaustive:
            raise IllegalCombination("explore and exhaustive exclude each other; choose one.")


#: Warp switches at places where no warp has to wait, in a systematic search.
_PREEMPTIONS = 2


def from_environment(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of ``WARPLOOM_EMULATOR_SEED`` and ``WARPLOOM_EMULATOR_CHECK``."""
    return Settings(
        checks=environ.get("WARPLOOM_EMULATOR_CHECK") == "1",
        seed=int(environ.get("WARPLOOM_EMULATOR_SEED", "1"), 0),
    )


_current: Settings | None = None


def current() -> Settings:
    """The settings of later launches of this process."""
    return from_environment() if _current is None else _current


def apply(settings: Settings) -> None:
    """Make settings those of all later launches of this process."""
    global _current
    changed = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(Settings)
        if getattr(settings, field.name) != getattr(current(), field.name)
    }
    for name, value in changed.items():
        _SETTERS[name](value)
    _current = settings


#: Setting -> the function of the library that takes it.
_SETTERS: Mapping[str, Callable[[Any], None]] = {
    "checks": lambda on: binding.call("set_checks", int(on)),
    "seed": lambda seed: binding.call("set_seed", seed),
    "schedule": lambda name: binding.check(binding.call("set_schedule", name.encode())),
    "report": lambda on: binding.call("set_report", int(on)),
    "explore": lambda count: binding.call("set_explore", count if count > 1 else 0),
    "exhaustive": lambda count: binding.call("set_exhaustive", count, _PREEMPTIONS),
    "sms": lambda count: binding.check(binding.call("set_multiprocessors", count)),
}


@contextlib.contextmanager
def applied(settings: Settings) -> Iterator[None]:
    """Settings for a ``with`` block, without reports of earlier launches."""
    before = current()
    binding.call("clear_reports")
    if settings.report:
        binding.call("clear_launch_reports")
    apply(settings)
    try:
        yield
    finally:
        apply(before)
