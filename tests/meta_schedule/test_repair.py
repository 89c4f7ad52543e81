"""Damaged databases: refused with one sentence, and repaired without losing what is right."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

import warploom
from warploom import cli
from warploom import meta_schedule as wms
from warploom.decide.ranking import ranked
from warploom.errors import NotSaved, WarploomError
from warploom.gemm.recognition import recognise
from warploom.meta_schedule.database import RECORDS, WORKLOADS, open_database, read_database
from warploom.meta_schedule.files import LOCK, only_writer
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.mend import DROPPED, mend
from warploom.meta_schedule.records import records_of, trace_of
from warploom.meta_schedule.tables import read_tables
from warploom.meta_schedule.workloads import matmul

H200 = warploom.cuda_target("h200")
SIZES = ((256, 256, 256), (512, 256, 256), (256, 512, 256))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    """The files of a database of three workloads with three records each."""
    folder = tmp_path_factory.mktemp("whole")
    database = JSONDatabase(work_dir=str(folder))
    mods = [tvm.IRModule({"main": matmul(*size)}) for size in SIZES]
    places = [database.commit_workload(mod) for mod in mods]
    for number in range(3):
        for mod, workload in zip(mods, places, strict=True):
            config = ranked(recognise(mod["main"]).problem)[number][1]
            info = ArgInfo.from_prim_func(mod["main"])
            seconds = [1e-5 * (number + 1)]
            record = TuningRecord(trace_of(mod, config), workload, seconds, H200, info)
            database.commit_tuning_record(record)
    return {name: (folder / name).read_bytes() for name in (WORKLOADS, RECORDS)}


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _rows(files: dict[str, bytes]) -> set[tuple[str, str]]:
    """Each record as its workload and what is recorded, whatever their numbers."""
    workloads = files[WORKLOADS].splitlines()
    values = [json.loads(line) for line in files[RECORDS].splitlines()]
    return {(workloads[number].decode(), json.dumps(rest)) for number, rest in values}


def _read(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (WORKLOADS, RECORDS)}


def _with_line(content: bytes, number: int, line: bytes) -> bytes:
    lines = content.splitlines()
    lines[number] = line
    return b"".join(one + b"\n" for one in lines)


def _null_in_attributes(line: bytes) -> bytes:
    value = json.loads(line)
    value[1][0][0][1][2][0] = None
    return json.dumps(value).encode()


def _decision_of_nothing(line: bytes) -> bytes:
    value = json.loads(line)
    value[1][0][1][0][0] = -1
    return json.dumps(value).encode()


@pytest.mark.parametrize("name", [RECORDS, WORKLOADS])
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "the line is empty"),
        (b"  ", "the line is empty"),
        (b"null", "a (record|workload) is "),
        (b"7", "a (record|workload) is "),
        (b"{}", "a (record|workload) is "),
        (b"[0, null]", "a (record|workload) is "),
        (b"\xff\xfe", "it is no UTF-8"),
        (b'["0", "unfin', "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
    ],
)
@pytest.mark.some(4)
def test_a_damaged_line_is_named_and_repaired(whole, tmp_path, capsys, name, line, reason):
    damaged = {**whole, name: _with_line(whole[name], 1, line)}
    _write(tmp_path, damaged)
    said = rf"{name}, line 2, is damaged: {reason}.*; run `warploom tune db repair {tmp_path}`"
    problem = recognise(matmul(*SIZES[0])).problem
    for use in (
        lambda: open_database(tmp_path),
        lambda: read_database(tmp_path),
        lambda: Lookup.in_order([tmp_path]),
        lambda: wms.merge([tmp_path], tmp_path / "merged"),
        lambda: wms.tune_tir(matmul(*SIZES[0]), H200, tmp_path, 1),
    ):
        with pytest.raises(WarploomError, match=said) as caught:
            use()
        assert str(caught.value).count("\n") == 0 and len(str(caught.value)) < 500
    for word in ("inspect", "verify"):
        assert cli.main(["tune", "db", word, str(tmp_path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert _read(tmp_path) == damaged, "whoever only reads changes nothing"

    assert cli.main(["tune", "db", "repair", str(tmp_path)]) == 0
    kept = 8 if name == RECORDS else 6
    assert f"{kept} records of " in capsys.readouterr().out
    assert _rows(_read(tmp_path)) <= _rows(whole) and len(_rows(_read(tmp_path))) == kept
    assert cli.main(["tune", "db", "verify", str(tmp_path)]) == 0
    assert Lookup.of_folders([tmp_path]).best(problem) is not None
    dropped = [json.loads(one) for one in (tmp_path / DROPPED).read_text().splitlines()]
    assert dropped[0]["file"] == name and dropped[0]["line"] == 2
    assert len(dropped) == (1 if name == RECORDS else 4)
    before = _read(tmp_path)
    assert mend(tmp_path).dropped == 0 and _read(tmp_path) == before


@pytest.mark.parametrize("change", [_null_in_attributes, _decision_of_nothing])
def test_what_tvm_would_crash_on_never_reaches_it(whole, tmp_path, change):
    lines = whole[RECORDS].splitlines()
    # Not every config is one that a search draws, and only traces of those have decisions.
    number = max(place for place, line in enumerate(lines) if json.loads(line)[1][0][1])
    damaged = _with_line(whole[RECORDS], number, change(lines[number]))
    _write(tmp_path, {**whole, RECORDS: damaged})
    with pytest.raises(WarploomError, match=f"line {number + 1}, is damaged: its trace is none"):
        read_database(tmp_path)
    assert (mend(tmp_path).records, len(read_database(tmp_path))) == (8, 8)


def test_records_of_tvms_own_schedules_are_no_damage(tmp_path):
    """Their traces have more kinds of instructions, and inputs without a value."""
    a = te.placeholder((128, 96), "float32", name="A")
    b = te.placeholder((96, 128), "float32", name="B")
    along = te.reduce_axis((0, 96), name="k")
    c = te.compute((128, 128), lambda i, j: te.sum(a[i, along] * b[along, j], along), name="C")
    d = te.compute((128, 128), lambda i, j: te.exp(c[i, j]), name="D")
    database, count = open_database(tmp_path), 0
    e = te.compute((128, 96), lambda i, j: te.exp(a[i, j]), name="E")
    for func in (te.create_prim_func([a, b, d]), te.create_prim_func([a, e])):
        mod = tvm.IRModule({"main": func})
        for target in (H200, tvm.target.Target({"kind": "llvm", "num-cores": 2})):
            context = ms.TuneContext(
                mod, target=target, space_generator="post-order-apply", task_name="main"
            )
            for sch in context.generate_design_space():
                workload = database.commit_workload(mod)
                database.commit_tuning_record(
                    TuningRecord(sch.trace, workload, [1e-5], target, ArgInfo.from_prim_func(func))
                )
                count += 1
    assert len(read_database(tmp_path)) == count > 4
    assert mend(tmp_path).dropped == 0


def test_a_lost_file_of_workloads_is_named(whole, tmp_path, capsys):
    (tmp_path / RECORDS).write_bytes(whole[RECORDS])
    with pytest.raises(WarploomError, match=f"line 1, is damaged: {WORKLOADS} is lost"):
        read_database(tmp_path)
    assert mend(tmp_path).dropped == 9
    texts = [json.loads(one)["text"] for one in (tmp_path / DROPPED).read_text().splitlines()]
    assert texts == whole[RECORDS].decode().splitlines()
    assert len(open_database(tmp_path)) == 0


def test_a_lost_file_of_records_is_an_empty_database(whole, tmp_path):
    (tmp_path / WORKLOADS).write_bytes(whole[WORKLOADS])
    assert len(read_database(tmp_path)) == 0 == len(open_database(tmp_path))


def test_swapped_files_are_swapped_again(whole, tmp_path):
    _write(tmp_path, {WORKLOADS: whole[RECORDS], RECORDS: whole[WORKLOADS]})
    with pytest.raises(WarploomError, match=f"{WORKLOADS}, line 1, is damaged"):
        open_database(tmp_path)
    assert mend(tmp_path).dropped == 0 and _read(tmp_path) == whole


def test_a_workload_that_is_there_twice_is_joined(whole, tmp_path):
    """TVM counts equal workloads once, and records after them would mean others."""
    lines = whole[WORKLOADS].splitlines(keepends=True)
    _write(tmp_path, {**whole, WORKLOADS: b"".join([lines[0], *lines[:2]])})
    with pytest.raises(WarploomError, match="line 2, is damaged: it is the same as line 1"):
        open_database(tmp_path)
    assert mend(tmp_path).records == 9
    assert [json.loads(one)[0] for one in (tmp_path / RECORDS).read_bytes().splitlines()] == [
        0, 0, 1, 0, 0, 1, 0, 0, 1,
    ]  # fmt: skip


def _rest(line: str) -> str:
    """A line without the number of its workload, which repairing may change."""
    return line[line.find(",") :]


def _damage(rng: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
    """One of the ways in which files are damaged."""
    name = rng.choice([WORKLOADS, RECORDS])
    content, lines = files[name], files[name].splitlines(keepends=True)
    place = rng.randrange(len(lines) + 1)
    kind = rng.randrange(6)
    if kind == 0 and content:
        content = content[: rng.randrange(len(content))]
    elif kind == 1 and content:
        changed = bytearray(content)
        for _ in range(rng.randrange(1, 5)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        content = bytes(changed)
    elif kind == 2:
        content = b"".join(lines[:place] + lines[place + 1 :])
    elif kind == 3:
        lines.insert(place, rng.choice([b"\n", b"\r\n", b"null\n"]))
        content = b"".join(lines)
    elif kind == 4:
        return {WORKLOADS: files[RECORDS], RECORDS: files[WORKLOADS]}
    else:
        content = b"".join([*lines, b"".join(lines)[: rng.randrange(1, 400)]])
    return {**files, name: content}


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.some(8)
def test_whatever_the_damage_a_repaired_database_loads(whole, tmp_path, seed):
    rng = random.Random(seed)
    files = dict(whole)
    for _ in range(rng.randrange(1, 3)):
        files = _damage(rng, files)
    _write(tmp_path, files)
    mended = mend(tmp_path)
    found = _read(tmp_path)
    assert len(read_database(tmp_path)) == len(open_database(tmp_path)) == mended.records
    assert len(found[RECORDS].splitlines()) == mended.records
    # A line that was right is in the database, or in the file beside it.
    aside = (tmp_path / DROPPED).read_text() if (tmp_path / DROPPED).exists() else ""
    texts = {json.loads(one)["text"] for one in aside.splitlines()}
    texts |= {line.decode() for one in found.values() for line in one.splitlines()}
    before = {line for one in whole.values() for line in one.splitlines()}
    right = {line.decode() for one in files.values() for line in one.split(b"\n") if line in before}
    assert set(map(_rest, right)) <= set(map(_rest, texts))
    records_of(read_database(tmp_path))


_KILLED = """
import sys, warploom
from warploom import meta_schedule as wms
from warploom.meta_schedule.workloads import matmul

target = wms.estimate_target(warploom.cuda_target("h200"))
wms.tune_tir(matmul(256, 512, 256), target, sys.argv[1], 4000, early_stop=False, seed=1)
"""


@pytest.mark.in_turn(3)
def test_a_search_that_is_killed_or_watched_leaves_whole_lines(tmp_path):
    """One process tunes; this one reads, may not tune beside it, and kills it."""
    work_dir = tmp_path / "work"
    run = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(work_dir)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + 240
        while len(read_tables(work_dir).records) < 20:
            assert run.poll() is None and time.monotonic() < end
            read_database(work_dir)
        with pytest.raises(WarploomError, match=f"Process {run.pid} tunes in .*tune db merge"):
            wms.tune_tir(matmul(64, 64, 64), H200, work_dir, 1)
        with pytest.raises(WarploomError, match=f"Process {run.pid} tunes"):
            mend(work_dir)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    with only_writer(work_dir):
        pass
    assert len(open_database(work_dir)) >= 20
    assert mend(work_dir).dropped == 0


def test_a_folder_that_cannot_be_made_is_named_before_anything_is_measured(tmp_path):
    (tmp_path / "file").touch()
    work_dir = tmp_path / "file" / "work"
    with pytest.raises(NotSaved, match=f"{work_dir / LOCK} cannot be written: Not a directory"):
        wms.tune_tir(matmul(*SIZES[0]), H200, work_dir, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only folders")
def test_a_read_only_database_is_read_and_not_tuned(whole, tmp_path):
    _write(tmp_path, whole)
    tmp_path.chmod(0o500)
    try:
        known = {record.problem for record in records_of(read_database(tmp_path))}
        assert len(read_database(tmp_path)) == 9 == len(known) * 3
        assert all(Lookup.of_folders([tmp_path]).best(problem).exact for problem in known)
        with pytest.raises(WarploomError, match=f"{LOCK} cannot be written: Permission denied"):
            wms.tune_tir(matmul(*SIZES[0]), H200, tmp_path, 1)
    finally:
        tmp_path.chmod(0o700)
