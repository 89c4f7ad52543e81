"""Records of tile programs: found, counted, and taken from the journal of a killed search."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.target import Target

from warploom.errors import NotSaved
from warploom.language.tuning.space import Config, decode, encode
from warploom.meta_schedule.journal import read_journal
from warploom.meta_schedule.originals import key_of
from warploom.meta_schedule.programs.builder import DIGEST
from warploom.meta_schedule.programs.candidates import Candidates
from warploom.meta_schedule.programs.workload import (
    EMULATED,
    config_of_trace,
    describe,
    is_stand_in,
    schedule_of,
)
from warploom.meta_schedule.records import FAILED_SECONDS, median
from warploom.meta_schedule.unmeasured import same_device

#: The file of a work directory that says which searches have begun and ended.
SEARCHES = "warploom_searches.jsonl"


@dataclass(frozen=True)
class Measured:
    """A record of a config; failed ones take ``FAILED_SECONDS`` or more."""

    config: Config
    digest: str
    seconds: float

    @property
    def succeeded(self) -> bool:
        return self.seconds < FAILED_SECONDS


def records_of_task(database: Database, mod: IRModule, target: Target) -> list[Measured]:
    """The records of a stand-in for a target, the fastest first."""
    wanted = tvm_ffi.structural_hash(mod)
    found = [
        Measured(*config_of_trace(record.trace), median(record))
        for record in database.get_all_tuning_records()
        if record.target is not None
        and same_device(record.target, target)
        and tvm_ffi.structural_hash(record.workload.mod) == wanted
    ]
    return sorted(found, key=lambda one: one.seconds)


@dataclass(frozen=True)
class Tuned:
    """The records of a factory at one key, for people.

    Attributes
    ----------
    name : str
        The factory and its key.
    arch : str
        Of the target, such as ``"sm_90a"``.
    emulated : bool
        Whether times are those of the emulator, and mean nothing.
    measured : tuple of Measured
        Those that succeeded, the fastest first.
    """

    name: str
    arch: str
    emulated: bool
    measured: tuple[Measured, ...]


def tuned_programs(database: Database) -> list[Tuned]:
    """The tile programs that a database has records of."""
    groups: dict[tuple[str, str, bool], list[Measured]] = {}
    names: dict[int, str] = {}
    for record in database.get_all_tuning_records():
        if record.target is None or median(record) >= FAILED_SECONDS:
            continue
        number = tvm_ffi.structural_hash(record.workload.mod)
        if number not in names:
            mod = record.workload.mod
            names[number] = describe(mod) if is_stand_in(mod) else ""
        if names[number]:
            emulated = EMULATED in map(str, record.target.keys)
            key = (names[number], str(record.target.attrs.get("arch", "")), emulated)
            groups.setdefault(key, []).append(
                Measured(*config_of_trace(record.trace), median(record))
            )
    return [
        Tuned(*key, tuple(sorted(found, key=lambda one: one.seconds)))
        for key, found in sorted(groups.items())
    ]


def of_today(candidates: Candidates, records: list[Measured]) -> list[Measured]:
    """The records whose program is still that of their config."""
    return [one for one in records if _is_of_today(candidates, one)]


def best_of(candidates: Candidates, records: list[Measured]) -> Measured | None:
    """The fastest record whose program is still that of its config."""
    return next((r for r in records if r.succeeded and _is_of_today(candidates, r)), None)


def _is_of_today(candidates: Candidates, record: Measured) -> bool:
    if record.config not in candidates.task.space:
        return False
    made = candidates.of(record.config)
    return made is not None and record.digest in ("", made.digest)


def recover(work_dir: Path, database: Database, candidates: Candidates, mod: IRModule,
            target: Target, title: str) -> int:  # fmt: skip
    """Add what the journal has of a task and the database lacks; returns how many."""
    known = {(encode(one.config), one.digest)
             for one in records_of_task(database, mod, target)}  # fmt: skip
    added, workload = 0, key_of(mod)
    for entry in read_journal(work_dir):
        if entry.workload != workload or entry.problem != title or not entry.samples:
            continue
        config, digest = decisions(entry.config)
        if config not in candidates.task.space or (encode(config), digest) in known:
            continue
        known.add((encode(config), digest))
        trace = schedule_of(mod, candidates.task.space, config, digest).trace
        seconds = [microseconds * 1e-6 for microseconds in entry.samples]
        stored = database.commit_workload(mod)
        database.commit_tuning_record(TuningRecord(trace, stored, seconds, target, None))
        added += 1
    return added


def decisions(config: Mapping[str, Any] | None) -> tuple[Config, str]:
    """The config of a trial of the journal, and the hash of its program."""
    config = decode(encode(dict(config or {})))
    return config, str(config.pop(DIGEST, ""))


def is_unfinished(work_dir: Path, mod: IRModule, title: str) -> bool:
    """Whether a search of a task has begun in a folder and has not ended: it was killed."""
    path, unfinished = work_dir / SEARCHES, False
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            workload, name, state = json.loads(line)
        except (ValueError, TypeError):  # the line of a killed process
            continue
        if (workload, name) == (key_of(mod), title):
            unfinished = state == "begun"
    return unfinished


def note_search(work_dir: Path, mod: IRModule, title: str, state: str) -> None:
    """Note that a search of a task has ``"begun"`` or ``"ended"``."""
    path = work_dir / SEARCHES
    try:
        with path.open("ab") as file:
            file.write(json.dumps([key_of(mod), title, state]).encode() + b"\n")
    except OSError as error:
        raise NotSaved.of(path, error) from error
