"""A line of the output of ``bench judge``: a measurement of a config."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from warploom.decide.config import Config
from warploom.meta_schedule.measure import Measurement
from warploom_bench.judging.case import Case

#: The phase of the lines of the final round; those of a search are ``round 1``, ``round 2``, ...
FINAL = "final"


@dataclass(frozen=True)
class JudgeLine:
    """A measurement of a config; microseconds, and MHz.

    Attributes
    ----------
    family : str
    shape : dict
        Of the case; ``group`` is in it.
    config : dict
    choice : bool
        Whether it is the model's choice for the case.
    phase : str
        The round of the search, or :data:`FINAL`.
    predicted : float or None
    us : float or None
        The median of ``samples``; None if there is no time.
    samples : list of float
        In the order in which they were taken. Those of the final round of a case are interleaved:
        sample i of each config belongs to the same moment.
    clock : int or None
    error : str
        Why there is no time; empty if there is one.
    """

    family: str
    shape: dict[str, Any]
    config: dict[str, int]
    choice: bool
    phase: str
    predicted: float | None
    us: float | None
    samples: list[float]
    clock: int | None
    error: str

    @classmethod
    def of(
        cls, case: Case, config: Config, phase: str, measurement: Measurement | None, error: str
    ) -> JudgeLine:
        """The line of a measurement, or of the error in its place."""
        samples = [second * 1e6 for second in measurement.seconds] if measurement else []
        return cls(
            case.family, dict(case.shape), config.values(), config == case.liked[0], phase,
            case.predict(config), statistics.median(samples) if samples else None, samples,
            measurement.clock if measurement else None, error,
        )  # fmt: skip
