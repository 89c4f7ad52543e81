"""Ratios of an earlier run as a floor for those of this one."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from warploom.errors import reading
from warploom_bench.report import Comparison


def regressions(comparisons: Sequence[Comparison], file: Path, tolerance: float) -> list[str]:
    """A sentence for each shape whose ratio is lower than in an earlier run.

    Parameters
    ----------
    comparisons : sequence of Comparison
    file : Path
        JSON of the earlier run. Shapes that it lacks are no regressions.
    tolerance : float
        How much lower a ratio may be, as a fraction of the earlier one.

    Raises
    ------
    WarploomError
        If the file has no comparisons.
    """
    with reading(file, "result of a benchmark"):
        before = {
            _key(comparison["shape"]): _ratio(comparison)
            for comparison in json.loads(file.read_text())["comparisons"]
        }
    lines = []
    for comparison in comparisons:
        earlier = before.get(_key(vars(comparison.shape)))
        ratio = comparison.ratio(comparison.entries[0], comparison.protocols[0])
        if earlier is not None and ratio < earlier * (1 - tolerance):
            lines.append(
                f"{comparison.shape}: {ratio:.3f} of {comparison.entries[1].name}, "
                f"and {earlier:.3f} before"
            )
    return lines


def _key(shape: dict) -> str:
    """A shape without the fields that do not change a measurement."""
    kept = {name: value for name, value in shape.items() if name not in ("group", "target")}
    return json.dumps(kept, sort_keys=True)


def _ratio(comparison: dict) -> float:
    """Ours and the library's are the first two, and the first protocol counts."""
    ours, library = (
        statistics.median(next(iter(entry["seconds"].values())))
        for entry in comparison["entries"][:2]
    )
    return library / ours
