"""The two files of a database, checked line by line before TVM reads them.

TVM trusts its files: an empty line or a ``null`` in the wrong place ends the process with a
segmentation fault, and every other damage raises an error that names neither file nor line. The
rules here keep TVM's reader from crashing; other lines that it rejects are found by
letting it read halves of a file.

A line of workloads is ``[hash, module]``, two strings. A line of records is ``[number, [trace,
seconds, target, arguments]]`` with the number of a line of workloads; a trace is ``[instructions,
decisions]``, an instruction ``[kind, inputs, attributes, outputs]``, and a decision ``[number of
instruction, value]``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm.s_tir.meta_schedule.database import Database, JSONDatabase

from warploom.errors import WarploomError
from warploom.meta_schedule.saved_database import RECORDS, WORKLOADS

#: Bytes of a damaged line that a message shows.
_SHOWN = 40
#: Instructions whose attributes may be ``null``.
_WITH_NULL = ("TransformLayout",)


@dataclass(frozen=True)
class Line:
    """A line of one of the files.

    Attributes
    ----------
    file : str
        Name of the file.
    number : int
        The first line has 1.
    text : bytes
        Without the line break.
    """

    file: str
    number: int
    text: bytes

    def value(self) -> Any:
        """The JSON value; raises ``ValueError`` if there is none."""
        return json.loads(self.text.decode())


@dataclass(frozen=True)
class Damage:
    """A line that TVM must not read, and why."""

    line: Line
    reason: str


@dataclass(frozen=True)
class Tables:
    """The lines of a database.

    Attributes
    ----------
    folder : Path
    workloads, records : tuple of Line
        Lines that end with a line break, or are whole without one.
    unfinished : tuple of Line
        Last lines that a killed process, or one that still writes, has not finished.
    """

    folder: Path
    workloads: tuple[Line, ...]
    records: tuple[Line, ...]
    unfinished: tuple[Line, ...]


def read_tables(folder: str | Path) -> Tables:
    """The lines of both files; an absent file has none."""
    folder = Path(folder)
    # A search writes a workload before its records: read later, none of theirs is missing.
    records, rest = _lines(folder, RECORDS)
    workloads, more = _lines(folder, WORKLOADS)
    return Tables(folder, workloads, records, (*more, *rest))


def _lines(folder: Path, name: str) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
    path = folder / name
    if not path.exists():
        return (), ()
    *whole, last = path.read_bytes().split(b"\n")
    lines = tuple(Line(name, number, text) for number, text in enumerate(whole, 1))
    if not last:
        return lines, ()
    end = Line(name, len(whole) + 1, last)
    return (lines, (end,)) if _is_unfinished(end) else ((*lines, end), ())


def _is_unfinished(line: Line) -> bool:
    try:
        line.value()
    except (ValueError, RecursionError):
        return True
    return False


def damages(tables: Tables) -> list[Damage]:
    """Return the lines that TVM's reader would crash on or misread."""
    result = [*workload_damages(tables.workloads)]
    numbers = len(tables.workloads)
    lost = not numbers and not (tables.folder / WORKLOADS).exists()
    for line in tables.records:
        reason = _why_no_record(line, numbers)
        if reason:
            result.append(Damage(line, f"{WORKLOADS} is lost" if lost else reason))
    return result


def workload_damages(lines: Sequence[Line]) -> list[Damage]:
    """Lines that are no workloads, or are there twice: TVM would count them once."""
    result, first = [], dict[bytes, int]()
    for line in lines:
        reason = _why_no_workload(line)
        if line.text in first:
            reason = f"it is the same as line {first[line.text]}"
        first.setdefault(line.text, line.number)
        if reason:
            result.append(Damage(line, reason))
    return result


def _why_no_workload(line: Line) -> str:
    value, reason = _value(line)
    if reason:
        return reason
    if not _is_list(value, 2) or not all(isinstance(text, str) for text in value):
        return "a workload is a hash and a module"
    return ""


def _why_no_record(line: Line, workloads: int) -> str:
    value, reason = _value(line)
    if reason:
        return reason
    if not _is_list(value, 2) or not _is_list(value[1], 4) or type(value[0]) is not int:
        return "a record is the number of a workload, and a list of four"
    if not 0 <= value[0] < workloads:
        return f"it is of workload {value[0]}, and {WORKLOADS} has {workloads}"
    trace, seconds, _, arguments = value[1]
    if not _is_trace(trace):
        return "its trace is none"
    if not all(type(value) in (int, float) for value in _list_of(seconds)):
        return "its times are no numbers"
    if _has_null(_list_of(arguments)):
        return "an argument has no dtype or no shape"
    return ""


def _list_of(value: Any) -> list[Any]:
    """A list that may be absent; TVM rejects anything else itself."""
    return [] if value is None else value if isinstance(value, list) else [value]


def _is_trace(value: Any) -> bool:
    """Whether instructions and decisions have their forms, and decisions their instructions."""
    if not _is_list(value, 2) or not all(map(_is_list, value)):
        return False
    instructions, decisions = value
    for instruction in instructions:
        if (
            not _is_list(instruction, 4)
            or not isinstance(instruction[0], str)
            or not all(map(_is_list, instruction[1:]))
        ):
            return False
        if _has_null(instruction[3]) or (
            instruction[0] not in _WITH_NULL and _has_null(instruction[2])
        ):
            return False
    return all(
        _is_list(decision, 2)
        and type(decision[0]) is int
        and 0 <= decision[0] < len(instructions)
        and not _has_null(decision[1])
        for decision in decisions
    )


def _is_list(value: Any, length: int | None = None) -> bool:
    return isinstance(value, list) and length in (None, len(value))


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return value is None or (isinstance(value, list) and any(map(_has_null, value)))


def _value(line: Line) -> tuple[Any, str]:
    """The value of a line, or why it has none."""
    if not line.text.strip():
        return None, "the line is empty"
    try:
        return line.value(), ""
    except UnicodeDecodeError:
        return None, "it is no UTF-8"
    except (ValueError, RecursionError):
        return None, "it is no JSON"


def load(workloads: Sequence[Line], records: Sequence[Line]) -> Database:
    """TVM's database of lines, in memory: records that are added to it are written nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in ((WORKLOADS, workloads), (RECORDS, records)):
            Path(folder, name).write_bytes(b"".join(line.text + b"\n" for line in lines))
        return JSONDatabase(work_dir=folder)


def rejected(lines: Sequence[Line], read: Callable[[Sequence[Line]], object]) -> list[Damage]:
    """The lines that ``read`` raises for, found by halves."""
    try:
        read(lines)
    except Exception:
        if len(lines) == 1:
            return [Damage(lines[0], "TVM cannot read it")]
        middle = len(lines) // 2
        return [*rejected(lines[:middle], read), *rejected(lines[middle:], read)]
    return []


def all_damages(tables: Tables) -> list[Damage]:
    """Every line that TVM cannot read."""
    result = damages(tables)
    if result:
        return result
    return rejected(tables.workloads, lambda some: load(some, ())) or rejected(
        tables.records, lambda some: load(tables.workloads, some)
    )


def refuse(folder: Path, damages: Sequence[Damage]) -> WarploomError:
    """The error for a damaged database: file, line, the damage, and the command that mends it."""
    first = damages[0]
    text = first.line.text.decode(errors="backslashreplace")
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    others = f" ({len(damages)} lines are damaged)" if len(damages) > 1 else ""
    return WarploomError(
        f"{folder / first.line.file}, line {first.line.number}, is damaged: {first.reason}: "
        f"{shown!r}{others}; run `warploom tune db repair {folder}`."
    )
