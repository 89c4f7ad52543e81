"""Results of a benchmark as data, as JSON and as Markdown tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from warploom.bench.timing import Statistics


class Shape(Protocol):
    """What is measured; ``str()`` is its cell in a table."""

    #: Head of that column.
    HEADER: ClassVar[str]
    group: str
    target: float | None

    @property
    def operations(self) -> int:
        """Multiplications and additions."""


@dataclass(frozen=True)
class Entry:
    """One competitor on one shape.

    Attributes
    ----------
    name : str
    times : dict of str to Statistics
        By protocol.
    error, allowed_error : float
        Relative error of the result, and its bound.
    host_seconds : float
        What one call costs the host.
    """

    name: str
    times: dict[str, Statistics]
    error: float
    allowed_error: float
    host_seconds: float

    @property
    def is_right(self) -> bool:
        """False also if the error is NaN: an element was not written."""
        return self.error <= self.allowed_error


@dataclass(frozen=True)
class Comparison:
    """All competitors on one shape: ours first, then the library that ratios refer to."""

    shape: Shape
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        assert len(self.entries) >= 2
        assert len({tuple(entry.times) for entry in self.entries}) == 1, "same protocols for all"

    @property
    def protocols(self) -> tuple[str, ...]:
        return tuple(self.entries[0].times)

    def ratio(self, entry: Entry, protocol: str) -> float:
        """Speed of ``entry`` relative to the library: above 1 is faster."""
        reference = self.entries[1].times[protocol].median
        return reference / entry.times[protocol].median

    @property
    def misses_target(self) -> bool:
        """Whether ours is slower, in the first protocol, than the shape asks for."""
        target = self.shape.target
        return target is not None and self.ratio(self.entries[0], self.protocols[0]) < target


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table whose columns are also aligned as plain text."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in cells
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def _shape_rows(comparison: Comparison, protocol: str) -> list[list[str]]:
    rows = []
    for entry in comparison.entries:
        times = entry.times[protocol]
        rows.append(
            [
                str(comparison.shape),
                entry.name,
                f"{times.median * 1e6:.1f}",
                f"{times.min * 1e6:.1f}-{times.max * 1e6:.1f}",
                f"{comparison.shape.operations / times.median / 1e12:.1f}",
                f"{comparison.ratio(entry, protocol):.3f}",
                f"{entry.error:.1e}" if entry.is_right else f"WRONG {entry.error:.1e}",
                f"{entry.host_seconds * 1e6:.1f}",
            ]
        )
    return rows


def _group_rows(comparisons: Sequence[Comparison], protocol: str) -> list[list[str]]:
    groups: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault(comparison.shape.group, []).append(comparison)
    if len(groups) > 1:
        groups["all"] = list(comparisons)
    rows = []
    for group, members in groups.items():
        ratios = [c.ratio(c.entries[0], protocol) for c in members]
        worst = members[ratios.index(min(ratios))]
        missed = sum(c.misses_target for c in members)
        figures = [f"{geometric_mean(ratios):.3f}", f"{min(ratios):.3f}"]
        rows.append([group, *figures, str(worst.shape), f"{missed or 'none'}"])
    return rows


def markdown(comparisons: Sequence[Comparison], environment: dict) -> str:
    """The report: environment, and for each protocol a table of shapes and one of groups."""
    gpu = environment["gpu"]
    lines = [
        f"- date: {environment['date']}",
        f"- command: `{environment['command']}`",
        f"- GPU: {', '.join(f'{key} {value}' for key, value in gpu.items()) or 'unknown'}",
        f"- versions: {', '.join(f'{k} {v}' for k, v in environment['versions'].items())}",
    ]
    for protocol in comparisons[0].protocols:
        shapes = markdown_table(
            [
                comparisons[0].shape.HEADER,
                "kernel",
                "median us",
                "min-max us",
                "TFLOP/s",
                "ratio",
                "error",
                "host us",
            ],
            [row for c in comparisons for row in _shape_rows(c, protocol)],
        )
        groups = markdown_table(
            ["group", "geometric mean", "worst", "worst shape", "below target"],
            _group_rows(comparisons, protocol),
        )
        lines += ["", f"## {protocol}", "", shapes, "", groups]
    return "\n".join(lines) + "\n"


def as_json(comparisons: Sequence[Comparison], environment: dict) -> dict:
    """All samples, in seconds."""
    return {
        "environment": environment,
        "comparisons": [
            {
                "shape": vars(c.shape),
                "entries": [
                    {
                        "name": e.name,
                        "error": e.error,
                        "allowed_error": e.allowed_error,
                        "host_seconds": e.host_seconds,
                        "seconds": {name: list(t.samples) for name, t in e.times.items()},
                    }
                    for e in c.entries
                ],
            }
            for c in comparisons
        ],
    }


def write(comparisons: Sequence[Comparison], environment: dict, folder: Path, name: str) -> None:
    """Write ``name.json`` and ``name.md`` into ``folder``, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(as_json(comparisons, environment), indent=1)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(markdown(comparisons, environment), encoding="utf-8")
