"""Searches from end to end: estimated, measured on the emulator, killed and continued."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

import warploom
from tests.meta_schedule.tuning import context_of
from warploom import meta_schedule as wms
from warploom.decide.candidates import candidates
from warploom.decide.draws import draws, starts
from warploom.decide.machine import H200
from warploom.decide.model import predict
from warploom.decide.ranking import ranked
from warploom.gemm.annotations import annotate, config_of
from warploom.gemm.recognition import recognise
from warploom.meta_schedule import command
from warploom.meta_schedule.artifact import Facts
from warploom.meta_schedule.database import RECORDS, open_database, recover
from warploom.meta_schedule.features import features, names
from warploom.meta_schedule.journal import read_journal
from warploom.meta_schedule.measure import Measurement
from warploom.meta_schedule.records import Record, records_of
from warploom.meta_schedule.workloads import matmul

#: A GPU whose model is wrong in what decides between tiles.
OTHER = replace(H200, l2_bytes=2000.0, wait_cycles=250.0, chunk_cycles=1000.0)


def _candidates(func, rng, count: int) -> list:
    """Random candidates with their configs."""
    legal = list(candidates(recognise(func).problem))
    found = []
    for config in rng.choice(np.array(legal, object), count, replace=False):
        sch = Schedule(tvm.IRModule({"main": func}))
        annotate(sch, sch.get_sblock("matmul"), config.values())
        found.append((config, MeasureCandidate(sch, [])))
    return found


def test_the_cost_model_is_the_analytic_one_and_learns_to_correct_it(rng, tmp_path):
    func = matmul(2048, 2048, 4096)
    context, problem = context_of(func), recognise(func).problem
    model = wms.CostModel()
    train, test = _candidates(func, rng, 96), _candidates(func, rng, 48)
    said = [predict(problem, config).total for config, _ in test]
    scores = model.predict(context, [one for _, one in test])
    assert np.array_equal(np.argsort(-scores, kind="stable"), np.argsort(said, kind="stable"))
    assert scores.max() == 1 and scores.min() > 0

    real = [predict(problem, config, OTHER).total for config, _ in train]
    results = [RunnerResult([us * 1e-6] * 3, None) for us in real]
    results[3] = RunnerResult(None, "it failed")
    model.update(context, [one for _, one in train], results)
    first = model.surprise["main"]
    wanted = np.log([predict(problem, config, OTHER).total for config, _ in test])
    learnt = -np.log(model.predict(context, [one for _, one in test]))
    before, after = (np.std(wanted - one) for one in (np.log(said), learnt))
    assert after < before / 2
    model.update(context, [one for _, one in test], [
        RunnerResult([predict(problem, config, OTHER).total * 1e-6], None) for config, _ in test
    ])  # fmt: skip
    assert model.surprise["main"] < first / 2

    taught = wms.CostModel()
    taught.learn(
        SimpleNamespace(problem=problem, config=config, seconds=us * 1e-6)
        for (config, _), us in zip(train, real, strict=True)
    )
    correct = -np.log(taught.predict(context, [one for _, one in test]))
    assert np.std(wanted - correct) < before / 2

    model.save(str(tmp_path / "model.json"))
    again = wms.CostModel()
    again.load(str(tmp_path / "model.json"))
    both = [one.predict(context, [each for _, each in test]) for one in (model, again)]
    assert np.allclose(*both)


def test_what_is_known_to_be_fast_is_tried_first(rng):
    func = matmul(2048, 2048, 4096)
    context, problem = context_of(func), recognise(func).problem
    some = _candidates(func, rng, 24)
    slow = max((config for config, _ in some), key=lambda config: predict(problem, config).total)
    known = wms.Lookup([Record(problem, slow, 1e-4, "sm_90a", False, None)])
    number = [config for config, _ in some].index(slow)
    only = [one for _, one in some]
    assert wms.CostModel(known=wms.Lookup([])).predict(context, only)[number] < 0.9
    assert wms.CostModel(known=known).predict(context, only)[number] == 1
    start, *_ = starts(problem, 3, known=slow)
    if draws(problem).has(slow):
        assert start == slow
    best, second, *_ = starts(problem, 3)
    assert starts(problem, 3, known=second)[:2] == [second, best]


def test_features_are_finite_and_have_names(rng):
    problem = recognise(matmul(130, 264, 72)).problem
    for config in rng.choice(np.array(list(candidates(problem)), object), 50):
        found, prediction = features(problem, config)
        assert found.shape == (len(names()),) and np.isfinite(found).all()
        assert found[-1] == pytest.approx(np.log2(prediction.total), rel=1e-5)


def _results(times) -> list[RunnerResult]:
    return [RunnerResult([us * 1e-6], None) if us else RunnerResult(None, "no") for us in times]


class _Scheduler:
    """Tasks of a search: like TVM's, none ends twice, and none once all trials are begun."""

    def __init__(self, running: Sequence[int], total: int) -> None:
        self.total, self.begun, self.ended = total, 0, []
        self.tasks_ = [
            SimpleNamespace(
                ctx=SimpleNamespace(task_name="main"), is_terminated=False,
                measure_candidates=[None] * one,
            )
            for one in running
        ]  # fmt: skip

    def terminate_task(self, number: int) -> None:
        assert not self.tasks_[number].is_terminated and self.begun < self.total
        self.tasks_[number].is_terminated = True
        self.ended.append(number)


@given(
    batches=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    running=st.integers(0, 6),
    total=st.integers(1, 40),
    already=st.booleans(),
)
def test_no_task_ends_that_ends_anyway(batches, running, total, already):
    """Only a task that TVM will not end itself is ended, and then at once."""
    model = SimpleNamespace(surprise={"main": 0.0})
    stop = wms.EarlyStop(model, total, least_trials=4, patience=4)
    scheduler = _Scheduler([0, running], total)
    scheduler.tasks_[0].is_terminated = already
    measured = 0
    for batch in batches:
        measured += batch
        scheduler.begun = measured + running
        stop._inst.apply(scheduler, 0, [], [], _results([5] * batch))
        # The first time is an improvement, the others are not.
        enough = measured >= 5
        if enough and scheduler.begun < total and not already:
            assert scheduler.ended == [0]
            return
        assert not scheduler.ended


@pytest.mark.parametrize(
    ("surprise", "batches", "total", "ends"),
    [
        (0.01, [[9, 5, 7, 8], [6, 6, 7, 6], [6, 6, 6, 6]], 64, [False, False, True]),
        (0.01, [[9, 5, 7, 8], [6, 6, 4, 6], [6, 6, 6, 6]], 64, [False, False, False]),
        (0.01, [[9, 5, 7, 8], [6, 6, 4.99, 6], [6, 6, 6, 6]], 64, [False, False, True]),
        (0.20, [[9, 5, 7, 8], [6, 6, 7, 6], [6, 6, 6, 6]], 64, [False, False, False]),
        (0.01, [[9, 5, 7, 8], [6, 6, 7, 6], [None] * 4], 64, [False, False, True]),
        (0.01, [[9, 5, 7, 8], [6, 6, 7, 6], [6, 6, 6, 6]], 12, [False, False, False]),
        (0.01, [[9, 5, 7, 8], [6, 6, 7, 6], [6, 6, 6, 6]], 16, [False, False, False]),
    ],
)
def test_a_task_ends_once_measurements_only_confirm_the_model(surprise, batches, total, ends):
    model = SimpleNamespace(surprise={"main": surprise})
    stop = wms.EarlyStop(model, total, least_trials=8, patience=8)
    ended = []

    def task(name, running):
        context = SimpleNamespace(task_name=name)
        return SimpleNamespace(ctx=context, is_terminated=False, measure_candidates=running)

    scheduler = SimpleNamespace(
        tasks_=[task("main", None), task("other", [None] * 4)], terminate_task=ended.append
    )
    found = []
    for batch in batches:
        before = len(ended)
        stop._inst.apply(scheduler, 0, [], [], _results(batch))
        found.append(len(ended) > before)
        if found[-1]:
            break
    assert found == ends[: len(found)] and len(found) == len(ends)


@pytest.mark.in_turn(3)
def test_a_search_on_estimates_finds_what_the_model_likes_best(tmp_path):
    func = matmul(1024, 1024, 1024)
    target = wms.estimate_target(warploom.cuda_target("h200"))
    database = wms.tune_tir(func, target, tmp_path, 48, early_stop=False, seed=5)
    records = records_of(database)
    assert len(records) == 48 == len({one.config for one in records})
    assert all(one.estimate for one in records)
    mod = tvm.IRModule({"main": func})
    for asked in (target, warploom.cuda_target("h200")):
        assert database.query_schedule(mod, asked, "main") is None, "no estimate answers for a GPU"
    assert database.query_schedule(wms.estimate_module(mod), target, "main") is not None
    problem = recognise(func).problem
    # The space has grids and stores that candidates without trials have not.
    best = min(predict(problem, one).total for _, one in ranked(problem))
    assert records[0].seconds * 1e6 <= best * (1 + 1e-6)
    wms.tune_tir(func, target, tmp_path, 96, seed=6)
    assert 48 < len(records_of(open_database(tmp_path))) < 48 + 96, "it stops early"


def test_the_command_tunes_without_a_gpu(tmp_path, capsys):
    words = ["256", "512", "256", "--estimate", "--trials", "16", "--target", "h200"]
    assert command.main([*words, "--work-dir", str(tmp_path)]) == 0
    assert " us estimated: Config(" in capsys.readouterr().out


def test_the_view_tells_rates_and_what_is_left():
    now = [100.0]
    console = Console(width=120, file=io.StringIO(), record=True)
    view = wms.Progress(40, console, clock=lambda: now[0])
    facts = Facts("1f", "a product", {"tile_m": 64, "tile_n": 128, "tile_k": 64}, 5.0)
    assert view.seconds_left is None
    for us in (9.0, None, 7.0, 8.0):
        now[0] += 0.5
        view(facts, Measurement((us * 1e-6,), None) if us else None, "" if us else "no")
    assert (view.trials, view.rate, view.seconds_left) == (4, 2.0, 18.0)
    console.print(view.table())
    shown = console.export_text()
    assert "4 of 40 trials, 2.0 a second, 18 s left" in shown
    assert "7.00" in shown and "64x128x64" in shown


_RUN = """
import sys, warploom
from warploom import meta_schedule as wms
from warploom.meta_schedule.workloads import matmul

if __name__ == "__main__":
    target = warploom.cuda_target("h200")
    wms.tune_tir(matmul(64, 64, 128), target, sys.argv[1], 64, max_workers=1, seed=1)
"""


@pytest.mark.gpu
@pytest.mark.long
def test_a_run_that_is_killed_loses_the_trial_in_flight_at_most(tmp_path):
    script, work_dir = tmp_path / "script.py", tmp_path / "work"
    script.write_text(_RUN)
    environment = {**os.environ, "WARPLOOM_EMULATOR": "1"}
    run = subprocess.Popen([sys.executable, str(script), str(work_dir)], env=environment)
    for _ in range(6000):
        if len(read_journal(work_dir)) >= 20:
            break
        time.sleep(0.1)
    run.send_signal(signal.SIGKILL)
    run.wait()
    done = [one for one in read_journal(work_dir) if one.us is not None]
    assert len(done) >= 18, "TVM's database has the first 16 of them"
    target = warploom.cuda_target("h200")
    assert recover(work_dir, target) >= len(done) - 16
    found = records_of(open_database(work_dir))
    assert {str(one.config) for one in found} == {
        str(config_of(one.stock.as_measure_candidate().sch.mod["main"])) for one in found
    }
    assert len(found) == len(done)
    json.loads((work_dir / RECORDS).read_text().splitlines()[-1])


@pytest.mark.in_turn(3)
@pytest.mark.gpu
def test_gemms_and_other_functions_are_tuned_in_the_same_run(tmp_path):
    a = te.placeholder((64, 32), "float32", name="A")
    b = te.compute((64, 32), lambda i, j: te.exp(a[i, j]) + 1.0, name="B")
    functions = {"product": matmul(64, 32, 64), "other": te.create_prim_func([a, b])}
    mod = tvm.IRModule({name: f.with_attr("global_symbol", name) for name, f in functions.items()})
    trials = []
    builder = wms.Builder(2)
    runner = wms.Runner(listener=lambda *trial: trials.append(trial))
    try:
        database = ms.tune_tir(
            mod,
            warploom.cuda_target("h200"),
            str(tmp_path),
            6,
            num_trials_per_iter=3,
            max_trials_per_task=3,
            builder=builder,
            runner=runner,
            space=wms.Space(),
            cost_model=wms.CostModel(),
            strategy=ms.search_strategy.EvolutionarySearch(
                population_size=16, init_min_unmeasured=4, genetic_num_iters=1
            ),
            num_tuning_cores=1,
            seed=1,
        )
    finally:
        builder.close()
        runner.close()
    assert [error for _, _, error in trials] == [""] * 6
    products = sum(facts.config is not None for facts, _, _ in trials)
    assert (products, len(trials) - products) == (3, 3)
    assert len(records_of(database)) == 3 and len(database.get_all_tuning_records()) == 6
