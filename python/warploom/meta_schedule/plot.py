"""``warploom tune plot DIR``: pictures and a table of a search, from its journal."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warploom import plotting
from warploom.command_line import Parser
from warploom.errors import WarploomError
from warploom.meta_schedule.journal import Entry, read_journal, write_csv


def best_so_far(entries: Sequence[Entry]) -> list[float]:
    """The least microseconds of the trials up to each; infinity before the first success."""
    best, times = math.inf, []
    for entry in entries:
        best = min(best, entry.us if entry.us is not None else math.inf)
        times.append(best)
    return times


def by_problem(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Trials of each GEMM, in order."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.problem or entry.workload, []).append(entry)
    return groups


def draw(entries: Sequence[Entry], pyplot: Any) -> Any:
    """Best so far against trials, and predicted against measured times.

    Parameters
    ----------
    entries : sequence of Entry
    pyplot : module
        ``matplotlib.pyplot``.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5))
    for name, mine in by_problem(entries).items():
        best = best_so_far(mine)
        last = best[-1]
        left.plot(range(1, len(best) + 1), [last / time for time in best], label=name)
        pairs = [(entry.us, entry.predicted) for entry in mine if entry.us and entry.predicted]
        right.scatter([us for us, _ in pairs], [said for _, said in pairs], s=8, label=name)
    left.set(xlabel="trials", ylabel="best found / best so far", ylim=(0, 1.05))
    right.set(xlabel="measured us", ylabel="predicted us", xscale="log", yscale="log")
    low, high = (limit(right.get_xlim() + right.get_ylim()) for limit in (min, max))
    right.plot([low, high], [low, high], color="grey", linewidth=0.8)
    left.legend(fontsize="x-small")
    figure.tight_layout()
    return figure


def main(arguments: Sequence[str]) -> int:
    """Write ``tuning.png`` and ``tuning.csv`` into the folder of a search."""
    parser = Parser(
        prog="warploom tune plot",
        description="Draw best-so-far against trials and predicted against measured times; "
        "without matplotlib, only the table is written.",
    )
    parser.add_argument("folder", type=Path, help="work directory of a search")
    options = parser.parse_args(arguments)
    entries = read_journal(options.folder)
    if not entries:
        raise WarploomError(f"{options.folder} has no trials of a search that measured.")
    write_csv(entries, options.folder / "tuning.csv")
    print(options.folder / "tuning.csv")
    if importlib.util.find_spec("matplotlib") is None:
        print(plotting.MISSING)
        return 0
    figure = draw(entries, plotting.pyplot())
    figure.savefig(options.folder / "tuning.png", dpi=120)
    print(options.folder / "tuning.png")
    return 0
