"""A file of GEMMs whose configs were measured side by side and judged: a line for each, at once.

``warploom bench records`` writes it and goes on with it; ``warploom tune db ship`` takes its
records. The first line is that of a file of records (:mod:`package_records`) and says ``judged``;
another line is either

    {"record": {...}, "default_us": 12.9, "measured": 6}

with the record of :mod:`record_lines`, or ``{"problem": {...}, "error": "why there is none"}``. A
last line that a killed process has not finished does not count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warploom.decide.problem import GemmProblem
from warploom.errors import NotSaved, WarploomError
from warploom.meta_schedule.package_records import NO_RECORD, checked_header, header
from warploom.meta_schedule.record_lines import (
    as_text,
    problem_line,
    problem_of_line,
    record_line,
    record_of,
)
from warploom.meta_schedule.records import Record


@dataclass(frozen=True)
class Judged:
    """A GEMM that was measured.

    Attributes
    ----------
    problem : GemmProblem
    record : Record or None
        The config to use: the winner, or the model's own choice if nothing is faster.
    default_us : float
        Microseconds of the model's choice; 0 if there is no record.
    measured : int
        Configs that were right and timed.
    error : str
        Why there is no record.
    """

    problem: GemmProblem
    record: Record | None
    default_us: float = 0.0
    measured: int = 0
    error: str = ""

    def line(self) -> dict[str, Any]:
        """As the file has it."""
        if self.record is None:
            return {"problem": problem_line(self.problem), "error": self.error}
        default_us = round(self.default_us, 2)
        return {
            "record": record_line(self.record), "default_us": default_us, "measured": self.measured
        }  # fmt: skip


@dataclass(frozen=True)
class JudgedFile:
    """The contents of such a file.

    Attributes
    ----------
    gpu : str
        The GPU that was measured.
    entries : tuple of Judged
    """

    gpu: str
    entries: tuple[Judged, ...]


def is_judged(path: str | Path) -> bool:
    """Whether a file begins as those do that :class:`Journal` writes."""
    try:
        with Path(path).open("rb") as file:
            line = json.loads(file.readline())
    except (OSError, ValueError):
        return False
    return isinstance(line, dict) and line.get("judged") is True


def read_judged(path: str | Path) -> JudgedFile:
    """The GEMMs of a file, of several lines of one the last.

    Raises
    ------
    WarploomError
        If it cannot be read, is of another version, or if a line but the last is damaged.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise WarploomError(f"{path} cannot be read: {error.strerror}.") from None
    entries: dict[GemmProblem, Judged] = {}
    arch = gpu = ""
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text) if text else None
            if number == 1:
                arch, gpu = checked_header(line or {})
            elif line is not None:
                entry = _entry(line, arch, gpu)
                entries[entry.problem] = entry
        except NO_RECORD as error:
            if number == len(lines) > 1:  # without a line break
                break
            reason = f"{error}" if isinstance(error, ValueError) else f"it has no {error}"
            raise WarploomError(f"{path}, line {number}: {reason}") from None
    return JudgedFile(gpu, tuple(entries.values()))


def _entry(line: Mapping[str, Any], arch: str, gpu: str) -> Judged:
    if "record" in line:
        record = record_of(line["record"], arch, gpu)
        return Judged(record.problem, record, float(line["default_us"]), int(line["measured"]))
    return Judged(problem_of_line(line["problem"]), None, error=str(line["error"]))


class Journal:
    """Appends to such a file, and knows what it has already.

    Parameters
    ----------
    path : path
        A new file, or that of an earlier run on the same GPU with the same versions.
    gpu : str
        The GPU that is measured.

    Raises
    ------
    WarploomError
        If the file is of another GPU or version, or damaged.
    """

    def __init__(self, path: str | Path, gpu: str) -> None:
        self.path = Path(path)
        self.known: dict[GemmProblem, Judged] = {}
        if self.path.exists() and self.path.stat().st_size:
            earlier = read_judged(self.path)
            if earlier.gpu != gpu:
                raise WarploomError(
                    f"{self.path} was measured on an {earlier.gpu}, and this is an {gpu}; give "
                    "another --out."
                )
            self.known = {entry.problem: entry for entry in earlier.entries}
            self._drop_unfinished()
        else:
            self._append(as_text({**header(gpu), "judged": True}))

    def add(self, entry: Judged) -> None:
        """Write a GEMM.

        Raises
        ------
        NotSaved
            If the file does not take it.
        """
        self.known[entry.problem] = entry
        self._append(as_text(entry.line()))

    def _append(self, text: str) -> None:
        try:
            with self.path.open("ab", buffering=0) as file:
                file.write(text.encode() + b"\n")
        except OSError as error:
            raise NotSaved.of(self.path, error) from error

    def _drop_unfinished(self) -> None:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with self.path.open("rb+") as file:
                file.truncate(whole)
