"""Results of whole models: times, errors and shares of the roofline, as JSON and Markdown."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from warploom_bench.models.roofline import Work
from warploom_bench.report import markdown_table

MEASURED, LEFT_OUT, FAILED = "measured", "left out", "failed"
_HEADER = (
    "row", "ours ms", "host ms", "device ms", "rival ms", "ratio", "roofline ms", "of roofline",
    "error", "rival's error",
)  # fmt: skip


@dataclass
class Runner:
    """How a competitor did.

    Attributes
    ----------
    wall, host : list of float
        Milliseconds of each sample: until the result is there, and until the calls have returned.
    device : float, optional
        Milliseconds of all kernels of a step, by the profiler; None where there is none.
    kernels : dict
        Milliseconds and launches of a step, by kernel.
    error : float, optional
        Relative, against float32; None where it was not compared.
    """

    wall: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)
    device: float | None = None
    kernels: dict[str, tuple[float, float]] = field(default_factory=dict)
    error: float | None = None

    @property
    def median(self) -> float:
        """Of the wall time, in ms; NaN without samples."""
        return statistics.median(self.wall) if self.wall else math.nan

    def read_kernels(self, kernels: Mapping[str, tuple[float, float]]) -> None:
        """Take over what the profiler says."""
        self.kernels = dict(sorted(kernels.items(), key=lambda item: -item[1][0]))
        self.device = sum(ms for ms, _ in kernels.values()) if kernels else None


@dataclass
class Result:
    """A row, measured or not.

    Attributes
    ----------
    model, row : str
    status, reason : str
        :data:`MEASURED`, :data:`LEFT_OUT` or :data:`FAILED`, and why.
    ours, rival, stock : Runner
    rival_name : str
        What PyTorch runs.
    allowed : float
        Bound of the relative error of ours.
    work : dict
        ``bytes`` and ``flops`` of the roofline.
    bandwidth, peak : float
        Bytes a second of a device copy, measured in the same process, and float16 FLOPs a second.
    notes : list of str
    """

    model: str
    row: str
    status: str = MEASURED
    reason: str = ""
    ours: Runner = field(default_factory=Runner)
    rival: Runner = field(default_factory=Runner)
    stock: Runner = field(default_factory=Runner)
    rival_name: str = ""
    allowed: float = 0.0
    work: dict[str, float] = field(default_factory=dict)
    bandwidth: float = 0.0
    peak: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def is_wrong(self) -> bool:
        """Whether the row failed, or ours is further off than allowed, or a number at all."""
        if self.status == FAILED:
            return True
        error = self.ours.error
        return self.status == MEASURED and error is not None and not error <= self.allowed

    @property
    def roofline(self) -> float:
        """The least time in ms; NaN where it is not known."""
        if not self.work or not self.bandwidth:
            return math.nan
        return 1e3 * Work(**self.work).seconds(self.bandwidth, self.peak)

    def save(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        beside.replace(path)


def load(path: Path) -> Result:
    """A result that :meth:`Result.save` wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for name in ("ours", "rival", "stock"):
        content[name] = Runner(**content[name])
    return Result(**content)


def line(result: Result) -> list[str]:
    """The cells of a row's line."""
    if result.status != MEASURED:
        return [result.row, result.status, *[""] * (len(_HEADER) - 2)]
    ours, rival = result.ours, result.rival
    host = statistics.median(ours.host) if ours.host else math.nan
    error = "" if ours.error is None else f"{ours.error:.1e}"
    return [
        result.row, _number(ours.median), _number(host), _number(ours.device),
        _number(rival.median), _number(rival.median / ours.median),
        _number(result.roofline), _share(result.roofline / ours.median),
        f"WRONG {error}" if result.is_wrong else error,
        "" if rival.error is None else f"{rival.error:.1e}",
    ]  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.3f}"


def _share(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.0%}"


def markdown(results: Sequence[Result], environment: Mapping[str, Any]) -> str:
    """The report: environment, the table of rows, and what is to be said of rows."""
    gpu, measured = environment["gpu"], [one for one in results if one.bandwidth]
    lines = [
        f"- date: {environment['date']}",
        f"- command: `{environment['command']}`",
        f"- GPU: {', '.join(f'{key} {value}' for key, value in gpu.items()) or 'unknown'}",
        f"- versions: {', '.join(f'{k} {v}' for k, v in environment['versions'].items())}",
    ]
    if measured:
        last = measured[-1]
        lines.append(
            f"- roofline: a device copy reads and writes {last.bandwidth / 1e9:.0f} GB/s; float16 "
            f"peak {last.peak / 1e12:.0f} TFLOP/s"
        )
    for one in results:
        lines += [f"- {one.row}: {one.status}: {one.reason}"] if one.reason else []
        lines += [f"- {one.row}: the rival is {one.rival_name}"] if one.rival_name else []
        lines += [f"- {one.row}: {note}" for note in one.notes]
        if one.stock.wall:
            lines.append(f"- {one.row}: TVM alone takes {one.stock.median:.3f} ms")
    return "\n".join([*lines, "", markdown_table(_HEADER, map(line, results)), ""])


def by_kernel(runner: Runner, most: int = 24) -> str:
    """A table of the kernels that take longest: milliseconds, share, launches, us of a launch."""
    total = sum(ms for ms, _ in runner.kernels.values())
    rows = [
        (name[:100], f"{ms:.4f}", _share(ms / total), f"{count:g}", f"{1e3 * ms / count:.1f}")
        for name, (ms, count) in list(runner.kernels.items())[:most]
    ]
    return markdown_table(("kernel", "ms", "share", "launches", "us each"), rows)


def write(
    results: Sequence[Result], environment: Mapping[str, Any], folder: Path, name: str
) -> None:
    """Write ``name.json`` and ``name.md`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"environment": environment, "rows": [asdict(one) for one in results]}
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(markdown(results, environment), encoding="utf-8")
