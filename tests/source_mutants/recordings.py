"""Mutants that one quick test is known to kill: each run of the tests takes some of them.

They guard the tests, not the package: a test that no longer sees what it saw has gone blind. The
identity of a function's text is recorded with its mutants. If it changes they are out of date, and
``python -m tests.source_mutants --keep LOG`` records others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tests.source_mutants.mutation import SourceMutant, mutants
from tests.source_mutants.trial import PACKAGE, judge

FILE = Path(__file__).with_suffix(".jsonl")
#: Seconds that a judgement of a recorded mutant took, at most.
QUICK = 25.0
#: What hypothesis says of an example; another run may not find it.
_CHANCE = "Falsifying example"


@dataclass(frozen=True)
class Recorded:
    """A mutant, and the test that kills it."""

    key: tuple[str, ...]
    digest: str
    test: str

    def find(self) -> SourceMutant | None:
        """The mutant in the package, or None if the function's text is another now."""
        found = _by_key(self.key[0]).get(self.key)
        return found if found is not None and found.digest == self.digest else None

    def __str__(self) -> str:
        module, function, _, old, new, which = self.key
        return f"{module} {function} {old} becomes {new} {which}"


@cache
def _by_key(module: str) -> dict[tuple[str, ...], SourceMutant]:
    if not (PACKAGE / module).exists():
        return {}
    return {one.key: one for one in mutants(PACKAGE, module)}


def read() -> list[Recorded]:
    """All that are recorded."""
    rows = map(json.loads, FILE.read_text().splitlines())
    return [Recorded(tuple(row["key"]), row["digest"], row["test"]) for row in rows]


def write(recorded: Iterable[Recorded]) -> None:
    """Replace what is recorded."""
    ordered = sorted({one.key: one for one in recorded}.values(), key=lambda one: one.key)
    FILE.write_text("".join(json.dumps(asdict(one)) + "\n" for one in ordered))


def keep(log: Path) -> list[Recorded]:
    """Of the mutants that a log of the command says are killed, those that are so for certain.

    Their test alone kills them, with random data of other seeds, and without help of hypothesis.
    """
    found = []
    for row in map(json.loads, log.read_text().splitlines()):
        one = Recorded(tuple(row["key"]), row["digest"], row["by"])
        mutant = one.find()
        if mutant is None or row["state"] != "killed" or row["seconds"] > QUICK or not one.test:
            continue
        verdicts = [judge(mutant, [one.test], WARPLOOM_TEST_SEED=str(seed)) for seed in (1, 2)]
        if all(v.state == "killed" and _CHANCE not in v.output for v in verdicts):
            found.append(one)
    return found
