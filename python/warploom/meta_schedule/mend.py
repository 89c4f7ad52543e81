"""Mends a damaged database: lines that TVM can read stay, other lines go to a file beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warploom.meta_schedule.files import only_writer, replace_file
from warploom.meta_schedule.saved_database import RECORDS, WORKLOADS
from warploom.meta_schedule.tables import (
    Damage,
    Line,
    Tables,
    damages,
    load,
    read_tables,
    rejected,
    workload_damages,
)

#: The file with the lines that were dropped, each with its file, number and reason.
DROPPED = "warploom_dropped.jsonl"


@dataclass(frozen=True)
class Mended:
    """How many lines of a database are kept, and how many were dropped."""

    workloads: int
    records: int
    dropped: int


def mend(folder: str | Path) -> Mended:
    """Rewrite a database without its damaged lines, which are added to ``warploom_dropped.jsonl``.

    Records of a damaged workload are dropped as well, since it is unknown what they were measured
    for. Two files that were swapped are swapped again. A database without damage is left alone.

    Raises
    ------
    WarploomError
        If a search writes to the folder.
    """
    folder = Path(folder)
    with only_writer(folder):
        read = read_tables(folder)
        tables = _unswapped(read)
        workloads, records, dropped = _sorted_out(tables)
        if dropped or tables is not read:
            _append(folder / DROPPED, dropped)
            replace_file(folder / RECORDS, b"")  # else it would refer to other workloads
            replace_file(folder / WORKLOADS, _content(workloads))
            replace_file(folder / RECORDS, _content(records))
    return Mended(len(workloads), len(records), len(dropped))


def _unswapped(tables: Tables) -> Tables:
    """The tables with their files swapped, if all lines are right then."""
    other = replace(
        tables,
        workloads=tuple(replace(record, file=WORKLOADS) for record in tables.records),
        records=tuple(replace(workload, file=RECORDS) for workload in tables.workloads),
    )
    has_lines = bool(tables.workloads or tables.records)
    return other if has_lines and damages(tables) and not damages(other) else tables


def _sorted_out(tables: Tables) -> tuple[list[Line], list[Line], list[Damage]]:
    """The workloads and records to keep, numbered anew, and the dropped lines."""
    dropped = [Damage(line, "it was not finished") for line in tables.unfinished]
    bad = {damage.line.number: damage for damage in workload_damages(tables.workloads)}
    whole = [line for line in tables.workloads if line.number not in bad]
    bad |= {damage.line.number: damage for damage in rejected(whole, lambda some: load(some, ()))}
    kept = [line for line in tables.workloads if line.number not in bad]
    dropped += bad.values()

    places = {line.text: place for place, line in enumerate(kept)}
    # Of two equal workloads one is kept, for the records of both.
    numbers = [places.get(line.text) for line in tables.workloads]
    wrong = {
        damage.line.number: damage for damage in damages(tables) if damage.line.file == RECORDS
    }
    records = []
    for line in tables.records:
        if line.number in wrong:
            dropped.append(wrong[line.number])
            continue
        before = line.value()[0]
        place = numbers[before]
        if place is None:
            dropped.append(Damage(line, f"line {before + 1} of {WORKLOADS} is damaged"))
        else:
            rest = line.text[line.text.index(b",") :]
            records.append(replace(line, text=b"[%d" % place + rest))
    unread = rejected(records, lambda some: load(kept, some))
    texts = {line.number: line for line in tables.records}
    dropped += [replace(damage, line=texts[damage.line.number]) for damage in unread]
    without = {damage.line.number for damage in unread}
    return kept, [line for line in records if line.number not in without], dropped


def _content(lines: Sequence[Line]) -> bytes:
    return b"".join(line.text + b"\n" for line in lines)


def _append(path: Path, dropped: Iterable[Damage]) -> None:
    rows = [
        {
            "file": damage.line.file,
            "line": damage.line.number,
            "reason": damage.reason,
            "text": damage.line.text.decode(errors="backslashreplace"),
        }
        for damage in dropped
    ]
    before = path.read_bytes() if path.exists() else b""
    if rows:
        replace_file(path, before + "".join(json.dumps(row) + "\n" for row in rows).encode())
