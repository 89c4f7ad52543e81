"""Databases in TVM's own format: opened, repaired, merged.

A database is a folder with the two files of TVM's ``JSONDatabase``. TVM appends to them; here they
are only ever replaced as a whole.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import tvm_ffi
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import Database, JSONDatabase, TuningRecord, Workload
from tvm.target import Target

from warploom.errors import WarploomError
from warploom.gemm.knobs import GemmKnobs
from warploom.meta_schedule.estimates import is_estimate
from warploom.meta_schedule.journal import read_journal
from warploom.meta_schedule.originals import key_of
from warploom.meta_schedule.records import FAILED_SECONDS, median, records_of, trace_of

#: File names of ``JSONDatabase(work_dir=...)``.
WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


def open_database(folder: str | Path) -> Database:
    """TVM's database of a folder, made if it is absent, without a line that was not finished."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (WORKLOADS, RECORDS):
        repair(folder / name)
    return JSONDatabase(work_dir=str(folder))


def repair(path: Path) -> bool:
    """Remove the last line of a file if whoever wrote it was killed before its end."""
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


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that readers, and whoever comes after a crash, see the old one or the new."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.fchmod(handle, 0o644)  # others may read it, as if it had been opened
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(name, path)


def workloads_of(folder: str | Path) -> list[IRModule]:
    """The functions of a database, also those without a record."""
    path = Path(folder, WORKLOADS)
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Workload.from_json(json.loads(line)).mod for line in lines]


def merge(sources: Sequence[str | Path], destination: str | Path, best: int = 0) -> int:
    """Write the records of several databases into one, each once; returns how many it has.

    Parameters
    ----------
    sources : sequence of path
    destination : path
        A folder; what it has is kept, if it is not named as a source.
    best : int
        Keep only that many records of each workload and target, the fastest; 0 keeps all.

    Raises
    ------
    WarploomError
        If measured times and estimates would come together.
    """
    folders = [*dict.fromkeys(Path(one) for one in (destination, *sources))]
    stock = [
        one
        for folder in folders
        if (folder / RECORDS).exists()
        for one in open_database(folder).get_all_tuning_records()
    ]
    kinds = {is_estimate(one.target) for one in stock if one.target is not None}
    if len(kinds) > 1:
        raise WarploomError(
            "Estimates and measured times cannot be in one database; merge them separately."
        )
    unique = {json.dumps(one.as_json(), default=str): one for one in stock}
    kept = _fastest(unique.values(), best) if best else list(unique.values())
    write_database(kept, destination)
    return len(kept)


def _fastest(stock: Iterable[TuningRecord], best: int) -> list[TuningRecord]:
    groups: dict[tuple[int, str], list[TuningRecord]] = {}
    for one in stock:
        key = (tvm_ffi.structural_hash(one.workload.mod), str(one.target))
        groups.setdefault(key, []).append(one)
    return [
        one
        for group in groups.values()
        for one in sorted(group, key=median)[:best]
        if median(one) < FAILED_SECONDS
    ]


def write_database(stock: Sequence[TuningRecord], destination: str | Path) -> None:
    """Replace a database; a reader sees the old one or the new one, and never neither."""
    destination = Path(destination)
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent) as folder:
        made = JSONDatabase(work_dir=folder)
        for one in stock:
            workload = made.commit_workload(one.workload.mod)
            made.commit_tuning_record(
                TuningRecord(one.trace, workload, one.run_secs, one.target, one.args_info)
            )
        new = {name: Path(folder, name) for name in (WORKLOADS, RECORDS)}
        contents = {name: p.read_bytes() if p.exists() else b"" for name, p in new.items()}
    # Between the two, records would refer to other workloads: without any, a reader finds nothing.
    replace_file(destination / RECORDS, b"")
    replace_file(destination / WORKLOADS, contents[WORKLOADS])
    replace_file(destination / RECORDS, contents[RECORDS])


def recover(work_dir: str | Path, target: Target) -> int:
    """Add to a database what its journal has and it has not; returns how many records.

    A run that was killed has lost the trials of its last batch from the database, but not from the
    journal.
    """
    database = open_database(work_dir)
    known = {(key_of(r.stock.workload.mod), str(r.knobs)) for r in records_of(database)}
    mods = {key_of(mod): mod for mod in workloads_of(work_dir)}
    added = 0
    for entry in read_journal(work_dir):
        mod = mods.get(entry.workload)
        if mod is None or entry.us is None or not entry.knobs:
            continue
        knobs = GemmKnobs.of(entry.knobs)
        if (entry.workload, str(knobs)) in known:
            continue
        known.add((entry.workload, str(knobs)))
        seconds = [one * 1e-6 for one in entry.samples]
        workload = database.commit_workload(mod)
        trace = trace_of(mod, knobs)
        database.commit_tuning_record(TuningRecord(trace, workload, seconds, target, None))
        added += 1
    return added
