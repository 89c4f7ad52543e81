"""Measurements: what is measured, in which unit, by which probes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warploom_bench.machine.probe import Probe

if TYPE_CHECKING:
    from warploom_bench.machine.rig import Rig

#: What a measurement yields: a case, such as ``"n=64"``, and its samples.
Samples = Iterator[tuple[str, Sequence[float]]]


@dataclass(frozen=True)
class Measurement:
    """Something that a GPU does, and how long it takes.

    Attributes
    ----------
    name : str
        Of the option ``--only``.
    unit : str
        Of all its readings; cycles are those of an SM.
    what : str
        One line.
    probes : tuple of Probe
    run : callable
        ``(rig) -> (case, samples), ...``. It checks what the probes computed.
    """

    name: str
    unit: str
    what: str
    probes: tuple[Probe, ...]
    run: Callable[[Rig], Samples]

    def __post_init__(self) -> None:
        assert self.name and self.unit and self.what and self.probes


@dataclass(frozen=True)
class Reading:
    """A value with its spread.

    Attributes
    ----------
    name, case : str
        The measurement, and which of its cases.
    value : float
        The median of the samples.
    unit : str
    spread : float
        Between the quartiles of the samples, in the same unit.
    samples : int
    command : str
        What measures it again.
    """

    name: str
    case: str
    value: float
    unit: str
    spread: float
    samples: int
    command: str

    @property
    def key(self) -> str:
        """Name and case."""
        return f"{self.name} {self.case}".strip()


def readings(measurement: Measurement, rig: Rig) -> list[Reading]:
    """Run a measurement."""
    found = []
    for case, samples in measurement.run(rig):
        values = [float(one) for one in samples]
        quarters = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        found.append(
            Reading(
                measurement.name, case, statistics.median(values), measurement.unit,
                quarters[2] - quarters[0], len(values),
                f"warploom bench machine --only {measurement.name}",
            )
        )  # fmt: skip
    assert found and len({one.case for one in found}) == len(found), measurement.name
    return found
