"""The result of ``bench tuning``: ratios of each choice to the best, as JSON and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from warploom.decide.config import Config
from warploom.decide.problem import GemmProblem
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule.progress import short
from warploom_bench.report import geometric_mean, markdown_table

#: Compared configs: name -> how it was chosen.
CHOICES = {
    "model": "by the analytic model alone",
    "default": "the package's choice without a trial: its database, or the model",
    "tuned": "the best of a search",
}


@dataclass(frozen=True)
class Searched:
    """A search for all GEMMs together.

    Attributes
    ----------
    config : dict from GemmProblem to sequence of Config
        The measurements of each, the fastest first.
    trials : int
        How many were measured, or failed.
    failed : int
    seconds : float
        From the first to the last thing that the search did.
    complaints : tuple of str
        Its mistakes with faults.
    """

    config: Mapping[GemmProblem, Sequence[Config]]
    trials: int
    failed: int
    seconds: float
    complaints: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Trials a second."""
        return self.trials / self.seconds


@dataclass(frozen=True)
class Row:
    """The measurements of one GEMM, side by side; times in microseconds.

    Attributes
    ----------
    shape : dict
    candidates : int
        How many the best was chosen from.
    us : dict from str to float
        Medians: of each of :data:`CHOICES`, and of the ``"best"``.
    config : dict from str to dict
        By the same names.
    samples : dict from str to list of float
    """

    shape: dict[str, Any]
    candidates: int
    us: dict[str, float] = field(default_factory=dict)
    config: dict[str, dict[str, int]] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, name: str) -> float | None:
        """How fast a choice is, in parts of the best; None if it failed."""
        return self.us["best"] / self.us[name] if name in self.us else None


def means(rows: Sequence[Row]) -> dict[str, float]:
    """Geometric means of the ratios, by choice."""
    means_of = {name: [row.ratio(name) for row in rows] for name in CHOICES}
    return {
        name: geometric_mean([ratio for ratio in ratios if ratio is not None])
        for name, ratios in means_of.items()
        if any(ratios)
    }


def report(rows: Sequence[Row], searched: Searched, trials: int, head: Mapping[str, Any]) -> str:
    """The result as Markdown."""

    def cell(value: float | None, digits: int) -> str:
        return "failed" if value is None else f"{value:.{digits}f}"

    table = markdown_table(
        ["shape MxNxK", "candidates", "best us", *CHOICES, "best config", "tuned config"],
        [
            [
                GemmShape(**row.shape), row.candidates, f"{row.us['best']:.2f}",
                *(cell(row.ratio(name), 3) for name in CHOICES),
                *(short(Config.of(row.config[name])) if name in row.config else ""
                  for name in ("best", "tuned")),
            ]
            for row in rows
        ],
    )  # fmt: skip
    lines = [
        f"- date: {head['date']}",
        f"- command: `{head['command']}`",
        f"- GPU: {', '.join(f'{key} {value}' for key, value in head['gpu'].items()) or 'unknown'}",
        f"- versions: {', '.join(f'{key} {value}' for key, value in head['versions'].items())}",
        f"- the search: {searched.trials} trials ({trials} a GEMM), {searched.failed} of them "
        f"failed, {searched.seconds:.0f} s, {searched.rate:.1f} trials a second",
        "- ratios: the time of the best in parts of that of each choice; burst, interleaved",
        *(f"- {name}: {text}; geometric mean {means(rows).get(name, float('nan')):.4f}"
          for name, text in CHOICES.items()),
    ]  # fmt: skip
    return "\n".join([*lines, "", table]) + "\n"


def write(
    rows: Sequence[Row], searched: Searched, trials: int, head: Mapping[str, Any], path: Path
) -> None:
    """Write the result as JSON and as Markdown, to a path without its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "environment": dict(head),
        "trials_a_product": trials,
        "search": {"trials": searched.trials, "failed": searched.failed,
                   "seconds": searched.seconds, "trials_per_second": searched.rate},
        "geometric_means": means(rows),
        "rows": [asdict(row) for row in rows],
    }  # fmt: skip
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(report(rows, searched, trials, head), encoding="utf-8")
