"""A line for each trial, written the moment that it is known.

TVM's database gets the trials of a batch together. What a run that was killed had measured since
the last batch is only here, and :func:`warploom.meta_schedule.records.recover` takes it from here.
"""

from __future__ import annotations

import csv
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from warploom.meta_schedule.artifact import Facts
from warploom.meta_schedule.measure import Measurement

#: The file in a work directory.
NAME = "warploom_trials.jsonl"


@dataclass(frozen=True)
class Entry:
    """One trial; times in microseconds.

    Attributes
    ----------
    time : float
        Seconds since 1970.
    workload, problem : str
        See :class:`Facts`.
    knobs : dict or None
    predicted : float or None
    us : float or None
        Median of the samples; None if it failed.
    samples : list of float
    clock : int or None
        MHz.
    error : str
        Empty if it did not fail.
    """

    time: float
    workload: str
    problem: str
    knobs: dict[str, int] | None
    predicted: float | None
    us: float | None
    samples: list[float]
    clock: int | None
    error: str


class Journal:
    """A listener of :class:`warploom.meta_schedule.Runner` that writes into a work directory."""

    def __init__(self, work_dir: str | Path) -> None:
        self.path = Path(work_dir, NAME)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()

    def __call__(self, facts: Facts, found: Measurement | None, error: str) -> None:
        samples = [second * 1e6 for second in found.seconds] if found else []
        entry = Entry(
            time.time(),
            facts.workload,
            facts.problem,
            facts.knobs,
            facts.predicted,
            sorted(samples)[len(samples) // 2] if samples else None,
            samples,
            found.clock if found else None,
            error,
        )
        line = json.dumps(asdict(entry)) + "\n"
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(line)


def read_journal(work_dir: str | Path) -> list[Entry]:
    """All trials of a work directory; a line that was not finished is left out."""
    return list(_entries(Path(work_dir, NAME)))


def _entries(path: Path) -> Iterator[Entry]:
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            values: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        yield Entry(**values)


def write_csv(entries: list[Entry], path: Path) -> None:
    """The same as a table for spreadsheets, with a column for each knob."""
    knobs = sorted({name for entry in entries for name in entry.knobs or ()})
    plain = [field.name for field in fields(Entry) if field.name not in ("knobs", "samples")]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*plain, *knobs])
        for entry in entries:
            mine = entry.knobs or {}
            writer.writerow(
                [*(getattr(entry, name) for name in plain), *(mine.get(one, "") for one in knobs)]
            )
