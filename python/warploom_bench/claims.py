"""Claims about the results of benchmarks, as data: rows of runs and their goals."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from warploom.errors import reading
from warploom_bench.report import EXIT_RIGHT, EXIT_SLOW, EXIT_WRONG, geometric_mean, markdown_table

#: How a run ended, in the folder of its results.
ENDED = "ended.json"
#: A run that takes so many times its estimate, and at least so many seconds, hangs.
_PATIENCE, _LEAST_SECONDS = 3.0, 90.0


@dataclass(frozen=True)
class Claim:
    """A claim about the results of a run, with its goal.

    Attributes
    ----------
    label : str
    goal : float
        At least so much, or at most if ``take`` is a time.
    ours : tuple of str
        The first of these that a shape has; by default the first competitor.
    over : tuple of str
        The ratio is that to the fastest of these; by default of all that are not ours.
    take : str
        ``"mean"`` (geometric) or ``"worst"`` of the ratios, ``"copy"`` for the mean speed as a
        share of a device copy's, ``"tflops"`` for the mean of 10^12 operations a second, or the
        name of a call or process whose microseconds are meant.
    protocol : str
    where : dict
        Only shapes with these values, or with one of those in a list.
    """

    label: str
    goal: float
    ours: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    take: str = "mean"
    protocol: str = "burst"
    where: Mapping[str, Any] = field(default_factory=dict)

    def measured(self, results: Mapping[str, Any]) -> tuple[float, str] | None:
        """The value and its source; None if the results do not have it."""
        if "comparisons" not in results:
            seconds = _times(results).get(self.take)
            return None if seconds is None else (seconds * 1e6, "us")
        values: list[tuple[float, str]] = []
        for comparison in results["comparisons"]:
            value = self._value(comparison, results["environment"])
            if value is not None and self._is_meant(comparison["shape"]):
                values.append((value, comparison["text"]))
        if not values:
            return None
        worst, where = min(values)
        detail = f"{len(values)} shapes, worst {worst:.3f}: {where}"
        figures = [value for value, _ in values]
        return (worst if self.take == "worst" else geometric_mean(figures)), detail

    def _is_meant(self, shape: Mapping[str, Any]) -> bool:
        return all(
            shape.get(name) in (allowed if isinstance(allowed, list) else [allowed])
            for name, allowed in self.where.items()
        )

    def _value(self, comparison: Mapping[str, Any], environment: Mapping[str, Any]) -> float | None:
        medians = {
            entry["name"]: statistics.median(entry["seconds"][self.protocol])
            for entry in comparison["entries"]
            if self.protocol in entry["seconds"]
        }
        ours = next((name for name in self.ours or tuple(medians)[:1] if name in medians), None)
        if ours is None:
            return None
        if self.take == "copy":
            return comparison["bytes"] / medians[ours] / environment["copy_bytes_per_second"]
        if self.take == "tflops":
            return comparison["operations"] / medians[ours] * 1e-12
        known = {entry["name"] for entry in comparison["entries"]} - {ours, *self.ours}
        others = [medians[name] for name in self.over or known if name in medians]
        return min(others) / medians[ours] if others else None

    @property
    def is_time(self) -> bool:
        return self.take not in ("mean", "worst", "copy", "tflops")

    def is_met(self, value: float) -> bool:
        return value <= self.goal if self.is_time else value >= self.goal


def _times(results: Mapping[str, Any]) -> Mapping[str, float]:
    """Seconds by name: of calls, or of new processes from the end of their imports on."""
    if "rows" not in results:
        return results.get("seconds", {})
    return {
        name: sum(wall for stage, (wall, _) in stages.items() if stage != "import")
        for name, stages in results["rows"].items()
    }


@dataclass(frozen=True)
class Row:
    """A run of a benchmark.

    Attributes
    ----------
    name : str
        Of the folder of its results.
    minutes : float
        Estimate of its time on a GPU, with kernels that are compiled.
    command : tuple of str
        As after ``warploom bench``.
    claims : tuple of Claim
    """

    name: str
    minutes: float
    command: tuple[str, ...]
    claims: tuple[Claim, ...]

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Row:
        """From JSON."""
        claims = (
            Claim(**{k: tuple(v) if isinstance(v, list) else v for k, v in claim.items()})
            for claim in entry["claims"]
        )
        return cls(entry["name"], entry["minutes"], tuple(entry["command"]), tuple(claims))

    @property
    def seconds_at_most(self) -> float:
        """After which it hangs."""
        return max(_LEAST_SECONDS, _PATIENCE * 60 * self.minutes)

    def results(self, out: Path) -> dict[str, Any]:
        """Return the results that the run has written, perhaps partial; empty if there are none."""
        files = [f for f in sorted((out / self.name).glob("*.json")) if f.name != ENDED]
        return json.loads(files[0].read_text()) if files else {}

    def ended(self, out: Path) -> dict[str, Any] | None:
        """How it ended, if it has."""
        file = out / self.name / ENDED
        return json.loads(file.read_text()) if file.exists() else None


def load(file: Path | None = None) -> list[Row]:
    """The rows of a file, or those of the package."""
    path = file or resources.files("warploom_bench").joinpath("goals.json")
    with reading(path, "list of goals"):
        return [Row.of(entry) for entry in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def table(rows: Sequence[Row], out: Path) -> tuple[str, int]:
    """Return a table (claim, goal, measured value, met) and the exit status."""
    lines, status = [], EXIT_RIGHT
    for row in rows:
        results, ended = row.results(out), row.ended(out)
        if ended and ended["status"] not in (EXIT_RIGHT, EXIT_SLOW):
            status = EXIT_WRONG
        for claim in row.claims:
            measured = claim.measured(results) if results else None
            if measured is None or not claim.is_met(measured[0]):
                status = status or EXIT_SLOW
            lines.append([claim.label, _goal(claim), *_cells(claim, measured, ended)])
    return markdown_table(["claim", "goal", "measured", "met", "of"], lines), status


def _goal(claim: Claim) -> str:
    return f"{'<=' if claim.is_time else '>='} {claim.goal:g}"


def _cells(
    claim: Claim, measured: tuple[float, str] | None, ended: Mapping[str, Any] | None
) -> list[str]:
    reason = "" if ended is None else ended["reason"]
    if measured is None:
        return ["-", "FAILED" if reason else "not measured", reason]
    value, detail = measured
    part = "" if ended else "a part of the run: "
    met = "yes" if claim.is_met(value) else "NO"
    return [f"{value:.3f}", met, f"{part}{detail}" + (f"; {reason}" if reason else "")]
