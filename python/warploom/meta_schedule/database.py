"""Databases in TVM's own format: opened, read, merged.

A database is a folder with the two files of TVM's ``JSONDatabase``. TVM appends to them; here they
are only ever replaced as a whole.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import tvm_ffi
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import Database, JSONDatabase, TuningRecord, Workload
from tvm.target import Target

from warploom.decide.config import Config
from warploom.errors import WarploomError
from warploom.meta_schedule.estimates import is_estimate
from warploom.meta_schedule.files import replace_file
from warploom.meta_schedule.journal import read_journal
from warploom.meta_schedule.originals import key_of
from warploom.meta_schedule.records import FAILED_SECONDS, median, records_of, trace_of
from warploom.meta_schedule.saved_database import RECORDS, WORKLOADS, SavedDatabase
from warploom.meta_schedule.tables import (
    Tables,
    all_damages,
    damages,
    load,
    read_tables,
    refuse,
)


def is_database(folder: str | Path) -> bool:
    """Whether a folder has a file of a database."""
    return any(Path(folder, name).exists() for name in (RECORDS, WORKLOADS))


def open_database(folder: str | Path) -> Database:
    """TVM's database of a folder, to search and to write; made if it is absent.

    The last line of a file that a killed process has not finished is removed.

    Raises
    ------
    WarploomError
        If a line is damaged; the message names it, and `warploom tune db repair` mends it.

    Examples
    --------
    >>> database = wms.open_database("work_dir")  # doctest: +SKIP
    >>> ms.tune_tir(mod, target, "work_dir", 64, space=wms.Space(),
    ...             database=database)  # doctest: +SKIP
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tables = read_tables(folder)
    _require_whole(tables)
    for name in (WORKLOADS, RECORDS):
        drop_unfinished(folder / name)
        if not (folder / name).exists():
            (folder / name).touch()
    try:
        return SavedDatabase(folder)
    except Exception as error:
        raise _unreadable(tables, error) from error


def read_database(folder: str | Path) -> Database:
    """TVM's database of a folder as it is now, in memory; the files are not written.

    A last line that is not finished is left out: another process may be writing it.

    Raises
    ------
    WarploomError
        If a line is damaged; the message names it, and `warploom tune db repair` mends it.
    """
    tables = read_tables(folder)
    _require_whole(tables)
    try:
        return load(tables.workloads, tables.records)
    except Exception as error:
        raise _unreadable(tables, error) from error


def _require_whole(tables: Tables) -> None:
    damaged = damages(tables)
    if damaged:
        raise refuse(tables.folder, damaged)


def _unreadable(tables: Tables, error: Exception) -> Exception:
    """The error for tables that TVM has not read; its own if they are not the reason."""
    damaged = all_damages(tables)
    return refuse(tables.folder, damaged) if damaged else error


def drop_unfinished(path: Path) -> bool:
    """Remove the last line of a file if the process that wrote it was killed before its end."""
    if not path.exists():
        return False
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    last = content[len(whole) :]
    if not last:
        return False
    try:
        json.loads(last)
        fixed = content + b"\n"
    except ValueError:
        fixed = whole
    replace_file(path, fixed)
    return True


def workloads_of(folder: str | Path) -> list[IRModule]:
    """The functions of a database, also those without a record."""
    return [Workload.from_json(line.value()).mod for line in read_tables(folder).workloads]


def merge(sources: Sequence[str | Path], destination: str | Path, best: int = 0) -> int:
    """Write the records of several databases into one, each once; returns how many it has.

    Parameters
    ----------
    sources : sequence of path
    destination : path
        A folder; its records are kept, if it is not named as a source.
    best : int
        Keep only that many records of each workload and target, the fastest; 0 keeps all.

    Raises
    ------
    WarploomError
        If measured times and estimates would come together.

    Examples
    --------
    >>> wms.merge(["first", "second"], "all", best=1)  # doctest: +SKIP
    """
    folders = [*dict.fromkeys(Path(folder) for folder in (destination, *sources))]
    stock = [
        record
        for folder in folders
        if is_database(folder)
        for record in read_database(folder).get_all_tuning_records()
    ]
    kinds = {is_estimate(record.target) for record in stock if record.target is not None}
    if len(kinds) > 1:
        raise WarploomError(
            "Estimates and measured times cannot be in one database; merge them separately."
        )
    unique = {json.dumps(record.as_json(), default=str): record for record in stock}
    kept = _fastest(unique.values(), best) if best else list(unique.values())
    write_database(kept, destination)
    return len(kept)


def _fastest(stock: Iterable[TuningRecord], best: int) -> list[TuningRecord]:
    groups: dict[tuple[int, str], list[TuningRecord]] = {}
    for record in stock:
        key = (tvm_ffi.structural_hash(record.workload.mod), str(record.target))
        groups.setdefault(key, []).append(record)
    return [
        record
        for group in groups.values()
        for record in sorted(group, key=median)[:best]
        if median(record) < FAILED_SECONDS
    ]


def write_database(stock: Sequence[TuningRecord], destination: str | Path) -> None:
    """Replace a database; a reader sees the old one or the new one, and never neither."""
    destination = Path(destination)
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent) as folder:
        made = JSONDatabase(work_dir=folder)
        for record in stock:
            workload = made.commit_workload(record.workload.mod)
            made.commit_tuning_record(
                TuningRecord(
                    record.trace, workload, record.run_secs, record.target, record.args_info
                )
            )
        new = {name: Path(folder, name) for name in (WORKLOADS, RECORDS)}
        contents = {name: p.read_bytes() if p.exists() else b"" for name, p in new.items()}
    # Between the two, records would refer to other workloads: without any, a reader finds nothing.
    replace_file(destination / RECORDS, b"")
    replace_file(destination / WORKLOADS, contents[WORKLOADS])
    replace_file(destination / RECORDS, contents[RECORDS])


def recover(work_dir: str | Path, target: Target) -> int:
    """Add the records of its journal that a database lacks; returns how many.

    A run that was killed has lost the trials of its last batch from the database, but not from the
    journal.

    Examples
    --------
    >>> wms.recover("work_dir", target)  # doctest: +SKIP
    """
    database = open_database(work_dir)
    known = {(key_of(r.stock.workload.mod), str(r.config)) for r in records_of(database)}
    mods = {key_of(mod): mod for mod in workloads_of(work_dir)}
    added = 0
    for entry in read_journal(work_dir):
        mod = mods.get(entry.workload)
        if mod is None or not entry.samples or not entry.config:
            continue
        try:
            config = Config.of(entry.config)
            trace = trace_of(mod, config)
        except WarploomError:  # no config of this version: the journal may be older
            continue
        if (entry.workload, str(config)) in known:
            continue
        known.add((entry.workload, str(config)))
        seconds = [microseconds * 1e-6 for microseconds in entry.samples]
        workload = database.commit_workload(mod)
        database.commit_tuning_record(TuningRecord(trace, workload, seconds, target, None))
        added += 1
    return added
