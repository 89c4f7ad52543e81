"""What the lines of ``bench judge`` say: the choice's ratio to the best, and the model's errors."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warploom.errors import reading
from warploom_bench.judging.line import FINAL
from warploom_bench.report import geometric_mean

#: Configs that are slower than the best by more matter little to a choice.
NEAR = 1.3
#: An error of a prediction that counts as small.
_SMALL = 0.2


@dataclass
class Verdict:
    """The results for a case in a run.

    Attributes
    ----------
    family, group, case : str
        ``case`` is the shape as JSON.
    predicted, us : dict from str to float
        Microseconds by the config as JSON; of the final round where there are some.
    final : dict from str to list of float
        The samples of the final round.
    choice : str or None
        The model's choice, if it was measured.
    """

    family: str
    group: str
    case: str
    predicted: dict[str, float] = field(default_factory=dict)
    us: dict[str, float] = field(default_factory=dict)
    final: dict[str, list[float]] = field(default_factory=dict)
    choice: str | None = None

    @property
    def ratio(self) -> float | None:
        """The time of the best config in that of the choice; None without a final round."""
        if self.choice not in self.final:
            return None
        return best_to_first([
            self.final[self.choice],
            *(samples for config, samples in self.final.items() if config != self.choice),
        ])  # fmt: skip

    def errors(self, within: float = math.inf) -> list[float]:
        """``|predicted / measured - 1|`` of configs within so many times the best."""
        limit = within * min(self.us.values(), default=0.0)
        return [
            abs(self.predicted[config] / us - 1)
            for config, us in self.us.items()
            if us <= limit and config in self.predicted
        ]

    def add(self, line: dict[str, Any]) -> None:
        """Take a line of the case."""
        if line["us"] is None:
            return
        config = json.dumps(line["config"], sort_keys=True)
        if line["predicted"] is not None:
            self.predicted[config] = line["predicted"]
        if line["choice"]:
            self.choice = config
        if line["phase"] == FINAL:
            self.final[config] = line["samples"]
        if line["phase"] == FINAL or config not in self.final:
            self.us[config] = line["us"]


def best_to_first(samples: Sequence[Sequence[float]]) -> float:
    """The time of the best of several configs in that of the first, from interleaved samples.

    Every other sample selects the best, and the samples between judge it: medians of those alone
    are compared. Then the two halves change places, and the result is the geometric mean of both
    ratios. A config that noise made the fastest in one half has no advantage in the other, so equal
    configs have a ratio of 1 on average; it may exceed 1.

    Examples
    --------
    >>> best_to_first([[2.0, 2.0], [1.0, 1.0]])
    0.5
    >>> best_to_first([[2.0, 2.0], [1.0, 3.0]]) > 1  # fast by chance, and slow when judged
    True
    """
    ratios = []
    for selecting, judging in ((0, 1), (1, 0)):
        best = min(samples, key=lambda one, at=selecting: statistics.median(one[at::2]))
        ratios.append(
            statistics.median(best[judging::2]) / statistics.median(samples[0][judging::2])
        )
    return geometric_mean(ratios)


def verdicts(lines: Iterable[dict[str, Any]]) -> list[Verdict]:
    """A verdict for each case of each run; a line without a config begins a run."""
    found: dict[tuple[int, str, str], Verdict] = {}
    run = 0
    for line in lines:
        if "config" not in line:
            run += 1
            continue
        case = json.dumps(line["shape"], sort_keys=True)
        key = (run, line["family"], case)
        new = Verdict(line["family"], line["shape"]["group"], case)
        found.setdefault(key, new).add(line)
    return list(found.values())


def read_verdicts(files: Iterable[Path]) -> list[Verdict]:
    """The verdicts of files that ``bench judge`` has written.

    Raises
    ------
    WarploomError
        If a file has other lines.
    """
    found = []
    for file in files:
        with reading(file, "output of `bench judge`"):
            lines = [json.loads(text) for text in file.read_text(encoding="utf-8").splitlines()]
            found += verdicts(lines)
    return found


def tables(found: Sequence[Verdict]) -> Iterator[str]:
    """The lines of a table for each family, by group and of all its cases."""
    families: dict[str, list[Verdict]] = {}
    for verdict in found:
        families.setdefault(verdict.family, []).append(verdict)
    for family, mine in families.items():
        groups: dict[str, list[Verdict]] = {}
        for verdict in mine:
            groups.setdefault(verdict.group, []).append(verdict)
        width = max(map(len, [*groups, family, "all"])) + 2
        near, small = f"within {NEAR:g} of best", f"in {_SMALL:.0%}"
        yield (
            f"{family:{width}}{'judged':>8}{'configs':>9}{'choice to best':>16}{'worst':>8}"
            f"{near:>20}{small:>8}{'all errors':>12}{small:>8}"
        )
        for name, members in {**groups, "all": mine}.items():
            yield f"{name:{width}}{_row(members)}"


def _row(members: Sequence[Verdict]) -> str:
    """Cells of a group: a case of several runs counts once, with the mean of its ratios."""
    ratios: dict[str, list[float]] = {}
    for verdict in members:
        if (ratio := verdict.ratio) is not None:
            ratios.setdefault(verdict.case, []).append(ratio)
    means = [geometric_mean(of_case) for of_case in ratios.values()]
    configs = statistics.mean(len(verdict.us) for verdict in members)
    cases = len({verdict.case for verdict in members})
    judged = f"{len(means)}/{cases}"
    cells = f"{judged:>8}{configs:9.0f}"
    cells += f"{geometric_mean(means):16.3f}{min(means):8.3f}" if means else f"{'-':>16}{'-':>8}"
    for within, width in ((NEAR, 20), (math.inf, 12)):
        errors = [error for verdict in members for error in verdict.errors(within)]
        if errors:
            small = sum(error <= _SMALL for error in errors) / len(errors)
            cells += f"{statistics.median(errors):{width}.1%}{small:8.0%}"
        else:
            cells += f"{'-':>{width}}{'-':>8}"
    return cells
