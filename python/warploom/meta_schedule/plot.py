"""``warploom tune plot DIR``: pictures and a table of a search, from its journal."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from warploom.command_line import Parser
from warploom.errors import WarploomError
from warploom.meta_schedule.journal import Entry, read_journal, write_csv
from warploom.pictures import MISSING, Dot, Picture, Words, write
from warploom.pictures.calibration import calibration
from warploom.pictures.chart import Axis, Frame
from warploom.pictures.palette import GREY, SERIES
from warploom.pictures.shapes import LARGE, fitted

#: Pixels: of the picture, and of the charts in it.
_WIDTH, _TOP, _SIDE = 1040, 92, 400


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


def draw(entries: Sequence[Entry]) -> Picture:
    """The speed found so far against trials, and predicted against measured times.

    Parameters
    ----------
    entries : sequence of Entry
        Of one search, in order.
    """
    groups = by_problem(entries)
    colours = {name: SERIES[place % len(SERIES)] for place, name in enumerate(groups)}
    made = Picture(_WIDTH, 0, "a search")
    failed = sum(entry.us is None for entry in entries)
    words = f"{len(entries)} trials of {len(groups)} kernels, {failed} of them failed"
    made.add(Words(16, 22, "How the search went", size=LARGE, bold=True))
    made.add(Words(16, 43, words, GREY))
    _progress(made, groups, colours)
    _calibration(made, groups, colours)
    top = _TOP + _SIDE + 66.0
    for name, mine in groups.items():
        best = best_so_far(mine)[-1]
        found = f"{best:.4g} us" if math.isfinite(best) else "nothing found"
        made.add(Dot(24, top, 5, colours[name]))
        made.add(Words(36, top, fitted(f"{name}: {found} after {len(mine)} trials", _WIDTH - 60)))
        top += 20
    made.height = top + 6
    return made


def _progress(
    made: Picture, groups: Mapping[str, Sequence[Entry]], colours: Mapping[str, str]
) -> None:
    most = max(map(len, groups.values()))
    frame = Frame(
        66, _TOP, _SIDE + 60, _SIDE, Axis("trials", 1, max(most, 2)),
        Axis("speed of the best kernel so far", 0, 105, unit="%"),
    )  # fmt: skip
    frame.draw(made, "Found so far, as a share of the best in the end")
    for name, mine in groups.items():
        best = best_so_far(mine)
        made.extend(frame.steps([100 * best[-1] / time for time in best], colours[name]))


def _calibration(
    made: Picture, groups: Mapping[str, Sequence[Entry]], colours: Mapping[str, str]
) -> None:
    points = [
        (entry.us, entry.predicted, colours[name])
        for name, mine in groups.items() for entry in mine if entry.us and entry.predicted
    ]  # fmt: skip
    calibration(made, (_WIDTH - _SIDE - 24, _TOP, _SIDE, _SIDE), points,
                "Predicted and measured times")  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Write a table and pictures, ``tuning.csv``, ``.svg`` and ``.png``, into a search's folder."""
    parser = Parser(
        prog="warploom tune plot",
        description="Draw best-so-far against trials and predicted against measured times: a "
        "table, an SVG and, where matplotlib is installed, a PNG.",
    )
    parser.add_argument("folder", type=Path, help="work directory of a search")
    options = parser.parse_args(arguments)
    entries = read_journal(options.folder)
    if not entries:
        raise WarploomError(f"{options.folder} has no trials of a search that measured.")
    write_csv(entries, options.folder / "tuning.csv")
    print(options.folder / "tuning.csv")
    picture = draw(entries)
    write(picture, options.folder / "tuning.svg")
    print(options.folder / "tuning.svg")
    if importlib.util.find_spec("matplotlib") is None:
        print(MISSING)
        return 0
    write(picture, options.folder / "tuning.png")
    print(options.folder / "tuning.png")
    return 0
