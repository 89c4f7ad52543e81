"""A picture of a benchmark: the ratio of every shape, group by group."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from warploom_bench.report import Comparison, geometric_mean

#: Inches of a bar, and of everything around the bars.
_BAR, _FRAME = 0.22, 1.4


def plot_ratios(comparisons: Sequence[Comparison], file: Path) -> Path | None:
    """Draw a bar for each shape and each of its competitors but the one ratios refer to.

    Returns
    -------
    Path or None
        The PNG file; None where matplotlib is not installed.
    """
    try:
        figure_module = importlib.import_module("matplotlib.figure")
    except ImportError:
        return None
    protocol, reference = comparisons[0].protocols[0], comparisons[0].entries[1].name
    names = list(dict.fromkeys(
        e.name for c in comparisons for i, e in enumerate(c.entries) if i != 1
    ))  # fmt: skip
    height = _FRAME + _BAR * len(comparisons) * max(1, len(names)) * 0.8
    figure = figure_module.Figure(figsize=(9, height), layout="constrained")
    axes = figure.subplots()
    share = 0.8 / len(names)
    for number, name in enumerate(names):
        places, ratios = [], []
        for place, comparison in enumerate(comparisons):
            for entry in comparison.entries:
                if entry.name == name:
                    places.append(place + number * share)
                    ratios.append(comparison.ratio(entry, protocol))
        axes.barh(places, ratios, share, label=f"{name}: {geometric_mean(ratios):.3f}")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(comparisons)), [f"{c.shape.group}: {c.shape}" for c in comparisons])
    axes.invert_yaxis()
    axes.set_xlabel(f"speed relative to {reference}, {protocol}")
    axes.legend(title="geometric means", fontsize="small")
    figure.savefig(file, dpi=120)
    return file
