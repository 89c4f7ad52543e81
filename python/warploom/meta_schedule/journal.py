"""A line for each trial, written the moment that it is known.

TVM's database gets the trials of a batch together. What a run that was killed had measured since
the last batch is only here, and :func:`warploom.meta_schedule.records.recover` takes it from here.
"""

from __future__ import annotations

import csv
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

from warploom.decide.old_records import with_new_key
from warploom.errors import NotSaved
from warploom.meta_schedule.artifact import Facts
from warploom.meta_schedule.measure import Measurement

#: The file in a work directory.
NAME = "warploom_trials.jsonl"


@dataclass(frozen=True)
class Entry:
    """A trial; times in microseconds.

    Attributes
    ----------
    time : float
        Seconds since 1970.
    workload, problem : str
        See :class:`Facts`.
    config : dict or None
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
    config: dict[str, Any] | None
    predicted: float | None
    us: float | None
    samples: list[float]
    clock: int | None
    error: str


class Journal:
    """A listener of :class:`warploom.meta_schedule.Runner` that writes into a work directory.

    Examples
    --------
    >>> runner = wms.Runner(listener=wms.Journal("work_dir"))  # doctest: +SKIP
    """

    def __init__(self, work_dir: str | Path) -> None:
        self.path = Path(work_dir, NAME)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()

    def __call__(self, facts: Facts, measurement: Measurement | None, error: str) -> None:
        samples = [second * 1e6 for second in measurement.seconds] if measurement else []
        entry = Entry(
            time.time(),
            facts.workload,
            facts.problem,
            facts.config,
            facts.predicted,
            sorted(samples)[len(samples) // 2] if samples else None,
            samples,
            measurement.clock if measurement else None,
            error,
        )
        line = json.dumps(asdict(entry)).encode() + b"\n"
        try:
            with self._lock, self.path.open("ab+", buffering=0) as file:
                _append(file, line)
        except OSError as error:
            raise NotSaved.of(self.path, error) from error


def _append(file: BinaryIO, line: bytes) -> None:
    """Add a line, behind the end of one that a killed writer has not finished."""
    end = file.seek(0, os.SEEK_END)
    if end:
        file.seek(end - 1)
        if file.read(1) != b"\n":
            line = b"\n" + line
    while line:  # a disk that becomes full takes a part of it, and refuses the next write
        line = line[file.write(line) :]


def read_journal(work_dir: str | Path) -> list[Entry]:
    """All trials of a work directory; lines that are no trials are left out."""
    return list(_entries(Path(work_dir, NAME)))


def _entries(path: Path) -> Iterator[Entry]:
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        entry = _entry(line)
        if entry is not None:
            yield entry


def _entry(line: bytes) -> Entry | None:
    """The trial of a line; None if a field is absent, unknown or of another type."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):  # also bytes that are no UTF-8
        return None
    values = with_new_key(values)
    if not isinstance(values, dict) or values.keys() != _FIELDS.keys():
        return None
    if not all(_FIELDS[name](value) for name, value in values.items()):
        return None
    return Entry(**values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_time(value: Any) -> bool:
    """A number that a clock can show; ``True`` is an ``int`` of Python, and no number here."""
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _is_integer(value: Any) -> bool:
    return type(value) is int


def _is_config(value: Any) -> bool:
    """Decisions: integers, and for tile programs words, numbers, None and lists of them as well."""
    return isinstance(value, dict) and all(map(_is_decision, value.values()))


def _is_decision(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) > 0 and all(map(_is_decision, value))
    return value is None or isinstance(value, (int, float, str))


def _is_samples(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_time, value))


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


#: Types of each field of a line.
_FIELDS: dict[str, Callable[[Any], bool]] = {
    "time": _is_time,
    "workload": _is_text,
    "problem": _is_text,
    "config": _or_none(_is_config),
    "predicted": _or_none(_is_time),
    "us": _or_none(_is_time),
    "samples": _is_samples,
    "clock": _or_none(_is_integer),
    "error": _is_text,
}


def write_csv(entries: list[Entry], path: Path) -> None:
    """The same as a table for spreadsheets, with a column for each choice."""
    names = sorted({name for entry in entries for name in entry.config or ()})
    plain = [field.name for field in fields(Entry) if field.name not in ("config", "samples")]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*plain, *names])
        for entry in entries:
            mine = entry.config or {}
            writer.writerow(
                [*(getattr(entry, name) for name in plain), *(mine.get(name, "") for name in names)]
            )
