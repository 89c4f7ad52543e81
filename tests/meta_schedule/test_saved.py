"""Nothing is lost in tuning: full disks, searches that go on, journals with damaged lines."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
import tvm
import tvm_ffi
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

import warploom
from warploom import meta_schedule as wms
from warploom.decide.ranking import ranked
from warploom.errors import NotSaved
from warploom.gemm.recognition import recognise
from warploom.meta_schedule import journal as journals
from warploom.meta_schedule.artifact import Facts
from warploom.meta_schedule.database import RECORDS, WORKLOADS, open_database
from warploom.meta_schedule.journal import NAME, Journal, read_journal
from warploom.meta_schedule.measure import Measurement
from warploom.meta_schedule.records import records_of, trace_of
from warploom.meta_schedule.runner import PooledRunner, _Trial
from warploom.meta_schedule.workloads import matmul

H200 = warploom.cuda_target("h200")
MOD = tvm.IRModule({"main": matmul(256, 512, 256)})
FACTS = Facts("1f", "64 x 64 x 64", {"tile_m": 64}, 5.0)


def _record(database, number: int) -> TuningRecord:
    config = [one for _, one in ranked(recognise(MOD["main"]).problem)[: number + 1]][number]
    workload = database.commit_workload(MOD)
    return TuningRecord(trace_of(MOD, config), workload, [1e-5 * (number + 1)], H200, None)


_FULL = """
import resource, signal, sys
import warploom
from warploom import meta_schedule as wms
from warploom.errors import NotSaved
from warploom.meta_schedule.workloads import matmul

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
target = wms.estimate_target(warploom.cuda_target("h200"))
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    wms.tune_tir(matmul(256, 512, 256), target, sys.argv[1], 32, seed=1)
except NotSaved as error:
    print("said:", error)
    sys.exit(3)
"""


@pytest.mark.parametrize("room", [0, 40_000])
@pytest.mark.some(1)
def test_a_search_ends_at_once_when_no_more_can_be_written(tmp_path, room):
    work_dir = tmp_path / "work"
    words = [sys.executable, "-c", _FULL, str(work_dir), str(room)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert found.returncode == 3, found.stderr[-2000:]
    name = RECORDS if room else WORKLOADS
    assert f"said: {work_dir / name} cannot be written: " in found.stdout
    saved = len((work_dir / RECORDS).read_bytes().splitlines())
    assert (saved > 0) == (room > 0)
    assert len(open_database(work_dir)) == saved, "what was saved before is whole"


def test_two_writers_of_a_database_are_found_out(tmp_path):
    first, second = open_database(tmp_path), open_database(tmp_path)
    first.commit_tuning_record(_record(first, 0))
    with pytest.raises(NotSaved, match="changed by another process"):
        second.commit_workload(tvm.IRModule({"main": matmul(64, 64, 64)}))
    first.commit_tuning_record(_record(first, 1))
    assert len(open_database(tmp_path)) == 2 == len(JSONDatabase(work_dir=str(tmp_path)))


def test_a_journal_that_cannot_be_written_ends_the_search(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journals, "_append", refuse)

    class Pooled(PooledRunner):
        def submit(self, *_):
            done: Future[Measurement] = Future()
            done.set_result(Measurement((1e-5,), None))
            return done

    runner = Pooled(None, 1.0, Journal(tmp_path))
    one = SimpleNamespace(artifact_path=str(tmp_path / "none"), device_type="cuda", args_info=[])
    trial = runner._begin(one)
    with pytest.raises(NotSaved, match=f"{NAME} cannot be written: No space left on device"):
        _Trial(trial)._inst.result()


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.some(1)
def test_a_search_that_goes_on_measures_nothing_again(tmp_path, failed):
    """Sizes with so few candidates that a search meets what it has measured."""
    func, target = matmul(64, 24, 64), wms.estimate_target(H200)
    wms.tune_tir(func, target, tmp_path, 16, early_stop=False, seed=1)
    if failed:  # as TVM records a candidate that has failed
        lines = [json.loads(one) for one in (tmp_path / RECORDS).read_text().splitlines()]
        for one in lines[::2]:
            one[1][1] = [1e10]
        (tmp_path / RECORDS).write_text("".join(json.dumps(one) + "\n" for one in lines))
    for seed in (1, 2):
        wms.tune_tir(func, target, tmp_path, 16, early_stop=False, seed=seed)
    stock = open_database(tmp_path).get_all_tuning_records()
    modules = {tvm_ffi.structural_hash(one.as_measure_candidate().sch.mod) for one in stock}
    assert len(modules) == len(stock) > 16


def test_tvms_own_search_measures_nothing_again_either(tmp_path):
    mod, target = wms.estimate_module(MOD), wms.estimate_target(H200)
    for seed in (1, 1, 2):
        ms.tune_tir(
            mod, target, str(tmp_path), 8, num_trials_per_iter=4, space=wms.Space(),
            builder=wms.EstimateBuilder(), runner=wms.EstimateRunner(),
            cost_model=wms.CostModel(), num_tuning_cores=1, seed=seed,
            strategy=wms.Unmeasured(ms.search_strategy.EvolutionarySearch(
                population_size=32, init_min_unmeasured=8, genetic_num_iters=1
            )),
        )  # fmt: skip
    records = records_of(open_database(tmp_path))
    assert len(records) == 24 == len({one.config for one in records})


def _journal(folder, count: int) -> list:
    journal = Journal(folder)
    for number in range(count):
        journal(FACTS, Measurement((1e-5 * (number + 1),), 1500), "")
    return read_journal(folder)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_journal_keeps_every_whole_line(tmp_path, seed):
    rng = random.Random(seed)
    entries, path = _journal(tmp_path, 8), tmp_path / NAME
    lines = path.read_bytes().splitlines()
    good = json.loads(lines[0])
    wrong = [
        b"", b"null", b"7", b"[]", b'"text"', b"{}", b"\xff\xfe\x00", b"[" * 100_000,
        lines[0][: rng.randrange(1, len(lines[0]))],
        json.dumps({**good, "more": 1}).encode(),
        *(json.dumps({**good, name: value}).encode()
          for name in good for value in ({"a": []}, [None], True, -1.5)),
    ]  # fmt: skip
    for one in rng.sample(wrong, 12):
        lines.insert(rng.randrange(len(lines) + 1), one)
    path.write_bytes(b"\n".join(lines))
    assert read_journal(tmp_path) == entries


def test_a_trial_is_not_written_behind_an_unfinished_line(tmp_path):
    entries, path = _journal(tmp_path, 2), tmp_path / NAME
    path.write_bytes(path.read_bytes() + b'{"time": 1')
    assert _journal(tmp_path, 1)[:2] == entries and len(read_journal(tmp_path)) == 3
