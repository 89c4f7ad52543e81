"""Results of a benchmark as data, as JSON and as Markdown tables."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from warploom.timing import Statistics
from warploom_bench.check import ELEMENT_FACTOR, Deviation

EXIT_RIGHT, EXIT_WRONG, EXIT_SLOW = 0, 1, 2
#: Operations a byte below which memory bounds a kernel: an H200 has 989 TFLOP/s and about 4 TB/s.
_BALANCE = 250
#: Heads of the columns of a table of shapes.
_COLUMNS = (
    "kernel", "median us", "min-max us", "TFLOP/s", "ratio", "error", "worst element", "host us"
)  # fmt: skip
_MEMORY_COLUMNS = ("GB/s", "of a copy")
_CONDITION_COLUMNS = ("MHz", "W")


class Shape(Protocol):
    """A measured shape; ``str()`` is its cell in a table.

    It may have ``bytes``: how many are read and written at least.
    """

    #: Head of that column.
    HEADER: ClassVar[str]
    group: str
    target: float | None

    @property
    def operations(self) -> int:
        """Multiplications and additions."""


@dataclass(frozen=True)
class Entry:
    """A competitor on one shape.

    Attributes
    ----------
    name : str
    times : dict of str to Statistics
        By protocol.
    deviation : Deviation
        The worst of all checks of its results.
    allowed_error : float
        Bound of the relative error.
    host_seconds : float
        Time of the host for one call.
    """

    name: str
    times: dict[str, Statistics]
    deviation: Deviation
    allowed_error: float
    host_seconds: float

    @property
    def is_right(self) -> bool:
        """False also if an element was not written."""
        return self.deviation.is_within(self.allowed_error)


@dataclass(frozen=True)
class Comparison:
    """All competitors on one shape: ours first, then the library that ratios refer to.

    ``absent`` says of others why they are not there.
    """

    shape: Shape
    entries: tuple[Entry, ...]
    absent: Mapping[str, str] = field(default_factory=dict)

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


def is_memory_bound(shape: Shape) -> bool:
    """Whether the bytes of a shape take longer than its operations."""
    moved = getattr(shape, "bytes", None)
    return moved is not None and shape.operations < _BALANCE * moved


def _shape_table(comparisons: Sequence[Comparison], protocol: str, copy: float | None) -> str:
    """``copy``: bytes a second of a device copy, for the columns of shapes bound by memory."""
    memory = copy is not None and any(is_memory_bound(c.shape) for c in comparisons)
    conditions = any(e.times[protocol].mhz for c in comparisons for e in c.entries)
    header = [comparisons[0].shape.HEADER, *_COLUMNS]
    header += _MEMORY_COLUMNS if memory else ()
    header += _CONDITION_COLUMNS if conditions else ()
    rows = []
    for comparison in comparisons:
        for entry in comparison.entries:
            row = _shape_row(comparison, entry, protocol)
            if memory:
                row += _memory_cells(comparison.shape, entry.times[protocol].median, copy)
            if conditions:
                times = entry.times[protocol]
                row += [f"{statistics.median(readings):.0f}" if readings else ""
                        for readings in (times.mhz, times.watts)]  # fmt: skip
            rows.append(row)
    return markdown_table(header, rows)


def _shape_row(comparison: Comparison, entry: Entry, protocol: str) -> list[str]:
    times = entry.times[protocol]
    return [
        str(comparison.shape),
        entry.name,
        f"{times.median * 1e6:.1f}",
        f"{times.min * 1e6:.1f}-{times.max * 1e6:.1f}",
        f"{comparison.shape.operations / times.median / 1e12:.1f}",
        f"{comparison.ratio(entry, protocol):.3f}",
        f"{entry.deviation.relative:.1e}" if entry.is_right else f"WRONG {entry.deviation}",
        f"{entry.deviation.element:.1e}",
        f"{entry.host_seconds * 1e6:.1f}",
    ]


def _memory_cells(shape: Shape, seconds: float, copy: float) -> list[str]:
    if not is_memory_bound(shape):
        return ["", ""]
    speed = shape.bytes / seconds
    return [f"{speed / 1e9:.0f}", f"{speed / copy:.2f}"]


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
    gpu, copy = environment["gpu"], environment.get("copy_bytes_per_second")
    lines = [
        f"- date: {environment['date']}",
        f"- command: `{environment['command']}`",
        f"- GPU: {', '.join(f'{key} {value}' for key, value in gpu.items()) or 'unknown'}",
        f"- versions: {', '.join(f'{k} {v}' for k, v in environment['versions'].items())}",
    ]
    if copy is not None:
        lines.append(f"- a device copy reads and writes {copy / 1e9:.0f} GB/s")
    lines += [f"- {reason}" for reason in absences(comparisons)]
    for protocol in dict.fromkeys(
        name for comparison in comparisons for name in comparison.protocols
    ):
        of_protocol = [c for c in comparisons if protocol in c.protocols]
        groups = markdown_table(
            ["group", "geometric mean", "worst", "worst shape", "below target"],
            _group_rows(of_protocol, protocol),
        )
        shapes = _shape_table(of_protocol, protocol, copy)
        lines += ["", f"## {protocol}", "", shapes, "", groups]
    return "\n".join(lines) + "\n"


def absences(comparisons: Iterable[Comparison]) -> list[str]:
    """A line for each competitor that was left out for a reason, with the shapes."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for comparison in comparisons:
        for name, reason in comparison.absent.items():
            reasons.setdefault((name, reason), []).append(str(comparison.shape))
    return [
        f"{name} is left out ({shapes[0]}"
        + (f" and {len(shapes) - 1} others" if len(shapes) > 1 else "")
        + f"): {reason}"
        for (name, reason), shapes in reasons.items()
    ]


def progress(comparison: Comparison) -> str:
    """A line on the screen for a shape."""
    ours, protocol = comparison.entries[0], comparison.protocols[0]
    wrong = [f"{e.name} {e.deviation}" for e in comparison.entries if not e.is_right]
    right = f", WRONG: {', '.join(wrong)}" if wrong else ""
    others = ", ".join(
        f"{e.name} {e.times[protocol].median * 1e6:.1f} us" for e in comparison.entries
    )
    ratio = comparison.ratio(ours, protocol)
    return f"{comparison.shape}: {ratio:.3f} of {comparison.entries[1].name} ({others}){right}"


def exit_status(comparisons: Sequence[Comparison]) -> int:
    """Wrong results outweigh missed targets."""
    if not all(entry.is_right for c in comparisons for entry in c.entries):
        return EXIT_WRONG
    return EXIT_SLOW if any(c.misses_target for c in comparisons) else EXIT_RIGHT


def as_json(comparisons: Sequence[Comparison], environment: dict) -> dict:
    """All samples, in seconds."""
    return {
        "environment": environment,
        "comparisons": [
            {
                "shape": vars(c.shape),
                "text": str(c.shape),
                "operations": c.shape.operations,
                "bytes": getattr(c.shape, "bytes", None),
                "entries": [
                    {
                        "name": e.name,
                        "error": e.deviation.relative,
                        "element_error": e.deviation.element,
                        "allowed_error": e.allowed_error,
                        "allowed_element_error": ELEMENT_FACTOR * e.allowed_error,
                        "host_seconds": e.host_seconds,
                        "seconds": {name: list(t.samples) for name, t in e.times.items()},
                        "mhz": {name: list(t.mhz) for name, t in e.times.items()},
                        "watts": {name: list(t.watts) for name, t in e.times.items()},
                    }
                    for e in c.entries
                ],
                "absent": dict(c.absent),
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
