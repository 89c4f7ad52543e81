"""Which tests judge a mutant: those that execute the changed statement, cheap ones first."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.shared.paths import ROOT, TESTS
from tests.source_mutants import coverage
from tests.source_mutants.mutation import SourceMutant

#: Rooms and files whose tests know what a kernel does: of the compiler, and of its tables.
WATCHED = (
    *("emulator/mutants", "gemm", "intrin", "kernels", "language", "layout", "lower", "messages"),
    *("meta_schedule", "ops", "profile", "programs", "rows", "runtime/test_launch", "schedulers"),
    *("target", "tile", "top/test_fallback", "top/test_schedule", "whole/test_no_silent_cliff"),
    *("whole/test_stock_programs",),
)
#: They watch other processes for minutes.
UNWATCHED = ("fleet", "processes", "watchdog")
#: Seconds of tests that a mutant has to survive, as they were recorded.
BUDGET = 80.0
#: The part of them for the cheapest tests; what remains is drawn.
_CHEAP = 0.3


@dataclass(frozen=True)
class Judge:
    """A test, and what it took when it was recorded, in seconds."""

    name: str
    seconds: float

    @property
    def file(self) -> str:
        """The file that it is in."""
        return self.name.partition("::")[0]


class Coverage:
    """Which tests execute which lines."""

    def __init__(self, folder: Path) -> None:
        self.by_line: dict[tuple[str, int], list[Judge]] = defaultdict(list)
        self.by_module: dict[str, list[Judge]] = defaultdict(list)
        for path in sorted(folder.glob("*.jsonl")):
            for row in path.read_text().splitlines():
                self._add(json.loads(row))

    def _add(self, row: dict) -> None:
        name, bracket, parameters = row["test"].partition("[")
        # pytest finds no test by name whose parameters have the separator of names.
        judge = Judge(name if "::" in parameters else name + bracket + parameters, row["seconds"])
        for module, lines in row["lines"].items():
            self.by_module[module].append(judge)
            for line in lines:
                self.by_line[module, line].append(judge)

    def reaching(self, mutant: SourceMutant) -> list[Judge]:
        """Tests that execute the statement; where only imports do, those of the module."""
        if not mutant.function:
            return self.by_module.get(mutant.module, [])  # one test happened to import it first
        lines = range(mutant.first, mutant.last + 1)
        found = {one: None for n in lines for one in self.by_line.get((mutant.module, n), ())}
        return list(found) or self.by_module.get(mutant.module, [])

    def judges(self, mutant: SourceMutant, budget: float = BUDGET) -> list[str]:
        """Names of tests that together take about ``budget`` seconds, in the order to run them."""
        reaching = sorted(self.reaching(mutant), key=lambda one: (one.seconds, one.name))
        chosen, rest, spent = [], [], 0.0
        for one in reaching:
            if spent + one.seconds <= budget * _CHEAP:
                chosen.append(one)
                spent += one.seconds
            else:
                rest.append(one)
        for one in _from_every_file(rest, mutant):
            if spent and spent + one.seconds > budget:
                break
            chosen.append(one)
            spent += one.seconds
        return [one.name for one in chosen]


def _from_every_file(judges: Sequence[Judge], mutant: SourceMutant) -> list[Judge]:
    """The tests in a random order, in which those of each file come in turn.

    Files named after the mutant's package come first.
    """
    rng = random.Random("/".join(mutant.key))
    package = mutant.module.partition("/")[0]
    files: dict[str, list[Judge]] = defaultdict(list)
    for one in judges:
        files[one.file].append(one)
    for some in files.values():
        rng.shuffle(some)
    names = list(files)
    rng.shuffle(names)
    names.sort(key=lambda name: package not in name)
    longest = max(map(len, files.values()), default=0)
    return [files[name][i] for i in range(longest) for name in names if i < len(files[name])]


def watched() -> list[str]:
    """The files whose tests are recorded."""
    files = (path.relative_to(TESTS) for path in sorted(TESTS.rglob("test_*.py")))
    return [
        f"tests/{file}" for file in files
        if any(file.is_relative_to(one) or file == Path(f"{one}.py") for one in WATCHED)
        and not any(one in file.name for one in UNWATCHED)
    ]  # fmt: skip


def record(folder: Path, files: Iterable[str], processes: int) -> None:
    """Execute tests and write which lines they execute; takes half an hour."""
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", coverage.__name__),
        *("-m", "not slow and not long", "--every-case", "-n", str(processes), *files),
    ]
    environ = {**os.environ, coverage.FOLDER: str(folder), "WARPLOOM_EMULATOR": "1"}
    subprocess.run(command, cwd=ROOT, env=environ, check=False)
