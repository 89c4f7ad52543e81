"""Searches of users' tile programs: traces, candidates, records, and whole searches."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.script import tirx as T

import warploom
from tests.language.test_autotune import _SPACES
from tests.language.test_jit import copy_program, factory
from tests.meta_schedule.tuned_factories import (
    copy_rows,
    half_matmul,
    matmul,
    softmax,
    softmax_of,
)
from tests.shared.paths import ROOT
from warploom import cli, emulator
from warploom import language as wl
from warploom import meta_schedule as wms
from warploom.decide import price_program
from warploom.errors import (
    ArgumentError,
    EmulatedTimeWarning,
    WarploomError,
    WrongCandidateWarning,
)
from warploom.language.tuning.space import HINT_VALUES, Space, encode
from warploom.language.tuning.task import Task
from warploom.meta_schedule.database import RECORDS, open_database
from warploom.meta_schedule.db_command import complaints
from warploom.meta_schedule.journal import read_journal
from warploom.meta_schedule.measure import _where_known, inputs_of_check
from warploom.meta_schedule.originals import key_of
from warploom.meta_schedule.programs import command, records, right, search
from warploom.meta_schedule.programs.candidates import Candidates
from warploom.meta_schedule.programs.exact import is_exact
from warploom.meta_schedule.programs.rank import with_rank
from warploom.meta_schedule.programs.right import facts_of_task
from warploom.meta_schedule.programs.strategy import Ranked
from warploom.meta_schedule.programs.workload import (
    EMULATED,
    config_of,
    config_of_trace,
    describe,
    device_target,
    is_stand_in,
    sampled,
    schedule_of,
    stand_in,
)
from warploom.meta_schedule.programs.written import written_by
from warploom.meta_schedule.records import FAILED_SECONDS
from warploom.meta_schedule.reference import is_wrong
from warploom.programs import attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::warploom.errors.EmulatedTimeWarning"),
]

needs_emulator = pytest.mark.skipif(
    "not __import__('warploom').emulator.is_enabled()", reason="arrays are for the emulator"
)
TARGET = warploom.cuda_target("h200")


def task_of(made=matmul, sizes=None, configs=None, **options) -> Task:
    """A task of a factory; by default a matmul with legal, illegal and equal programs."""
    sizes = {"M": 64, "N": 64, "K": 64} if sizes is None else sizes
    configs = {"tile_m": (64, 100, 128), "tile_n": (32, 12, 64)} if configs is None else configs
    key = {name: repr(value) for name, value in sizes.items()}
    return Task(
        made.__name__, key, lambda config: made(**sizes, **config), Space.of(configs), TARGET,
        arguments=sizes, **options,
    )  # fmt: skip


def workload(task: Task) -> tvm.IRModule:
    return stand_in(task, Candidates(task).shapes)


@given(_SPACES)
def test_traces_say_which_config_they_are_of(values):
    space, mod = wl.space(**values), workload(task_of())
    for config in list(space)[:5]:
        sch = schedule_of(mod, space, config, "1f")
        assert config_of(sch.mod) == config and config_of_trace(sch.trace) == (config, "1f")
        again = tvm.s_tir.Schedule(mod)
        sch.trace.apply_to_schedule(again, remove_postproc=False)
        assert config_of(again.mod) == config
    drawn = sampled(mod, space)
    assert config_of(drawn.mod) in space and config_of_trace(drawn.trace)[1] == ""


def test_a_workload_is_its_factory_key_and_tensors():
    mod = workload(task_of())
    assert is_stand_in(mod) and describe(mod) == "matmul(K=64, M=64, N=64)"
    again = tvm.ir.load_json(tvm.ir.save_json(workload(task_of())))
    tvm.ir.assert_structural_equal(mod, again)
    other = workload(task_of(sizes={"M": 64, "N": 64, "K": 32}))
    assert key_of(mod) == key_of(again) != key_of(other)
    assert not is_stand_in(tvm.IRModule({"main": copy_program(16)}))
    assert not is_stand_in(tvm.IRModule({}))


def test_which_results_are_exact():
    """One step of a sum that is left out must show, and rounding in another order must not."""
    linear = factory(out_idx=-1)
    operands = ((48, 64), "float16"), ((64, 64), "float16"), 1.0
    assert is_exact(matmul(64, 64, 64, 64, 32)) and is_exact(copy_rows(64, 32, 8))
    assert is_exact(linear.program(*operands), [2.0])
    assert not is_exact(linear.program(*operands), [0.1]), "products of 0.1 are rounded"
    assert not is_exact(softmax(64, 64, 64)) and not is_exact(attention(64, 64, 1))
    assert not is_exact(copy_program(16, dtype="int32")), "an int32 input may be indices"
    assert not is_exact(copy_rows(64, 32, 8, fault=0.3))
    assert facts_of_task(Candidates(task_of()), "title", Path(tempfile.mkdtemp())).exact


def test_a_left_out_step_of_a_long_sum_shows(tmp_path):
    """In float16 results of 64 steps, one step is less than the tolerance of rounded results."""
    task = task_of(half_matmul, {"M": 64, "N": 64, "K": 2048}, {"tile_m": (64,)})
    facts = facts_of_task(Candidates(task), "title", tmp_path)
    inputs = inputs_of_check(facts, [((64, 2048), "float16"), ((64, 2048), "float16"),
                                     ((64, 64), "float16")])  # fmt: skip
    a, b, _ = (array.astype("float64") for array in inputs)
    with np.load(facts.reference) as found:
        for steps, is_right in ((2048, True), (2047, False)):
            result = (a[:, :steps] @ b[:, :steps].T).astype("float16")
            assert (is_wrong(result, found["2"], facts.exact) is None) == is_right


def test_what_a_program_writes():
    """Also where only an address is taken: an instruction may write there."""

    @T.prim_func
    def in_place(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        T.device_entry()
        T.cta_id([1])
        for i in T.serial(64):
            A[i] = A[i] + B[i]

    assert written_by(matmul(64, 64, 64, 64, 32)) == ((2,), ())
    assert written_by(copy_program(16)) == ((1,), ())
    assert written_by(attention(64, 64, 1)) == ((3,), ())
    assert written_by(in_place) == ((0,), (0,))


def test_illegal_configs_are_left_out_with_their_reasons():
    candidates = Candidates(task_of(configs=wl.space(
        tile_m=(100, 64), tile_n=(12, 32), stages=(2,),
        why_not=lambda tile_m, N: "more rows than columns" if tile_m > N else None,
    )))  # fmt: skip
    assert [one.config for one in candidates.ranked()] == [
        {"tile_m": 64, "tile_n": 32, "stages": 2}
    ]
    assert candidates.first.config["tile_m"] == 64
    reasons = {encode(c): reason for c, reason in candidates.left_out.values()}
    assert set(reasons.values()) == {
        "more rows than columns", "tile_n is 12; it must be a multiple of 8."
    }  # fmt: skip


def test_equal_programs_are_one_candidate():
    task = task_of(lambda M, tile, unused: copy_rows(M, 32, tile), {"M": 64},
                   {"tile": (16, 64), "unused": (1, 2)})  # fmt: skip
    candidates = Candidates(task)
    assert len(list(candidates.ranked())) == 2
    assert all("its program is that of tile=" in why for _, why in candidates.left_out.values())


def test_a_space_without_a_legal_config():
    with pytest.raises(WarploomError, match=r"no config is legal. tile_m=64 tile_n=12: tile_n is"):
        _ = Candidates(task_of(configs={"tile_m": (64,), "tile_n": (12, 20)})).first
    with pytest.raises(WarploomError, match=r"TypeError: .* unexpected keyword argument 'tile'"):
        _ = Candidates(task_of(configs={"tile": (64,)})).first
    with pytest.raises(WarploomError, match="the factory returns a int, no program"):
        _ = Candidates(task_of(lambda tile: 3, {}, {"tile": (64,)})).first
    with pytest.raises(WarploomError, match="no argument; pass this tensor"):
        _ = Candidates(task_of(lambda tile: copy_program(), {}, {"tile": (64,)})).shapes


def test_the_most_promising_go_first(rng):
    said = {}

    def rank(program, target):
        assert target is TARGET
        seconds = said.setdefault(id(program), float(rng.random()))
        return None if seconds < 0.2 else seconds

    candidates = Candidates(task_of(
        lambda M, tile, step: copy_rows(M * step, 32, tile), {"M": 64},
        {"tile": (8, 16, 32, 64), "step": (1,)}, rank=rank,
    ))  # fmt: skip
    found = [one.seconds for one in candidates.ranked()]
    known = [seconds for seconds in found if seconds is not None]
    assert len(found) == 4 and known == sorted(known) and found[: len(known)] == known


@pytest.mark.parametrize("ranked", [False, True])
def test_a_large_space_is_sampled(monkeypatch, ranked):
    """By the seed; of the legal ones some are ranked, and the others follow."""
    for name, value in {"_RANKED": 4, "_DRAWN": 12}.items():
        monkeypatch.setattr(f"warploom.meta_schedule.programs.candidates.{name}", value)
    space = wl.space(tile=(8, 16), columns=tuple(range(4, 8000, 4)),
                     why_not=lambda columns: columns % 8 > 0)  # fmt: skip
    asked = []
    task = task_of(
        lambda M, tile, columns: copy_rows(M, columns, tile), {"M": 64}, space,
        rank=(lambda program, target: asked.append(program) or 1 / len(asked)) if ranked else None,
    )  # fmt: skip
    task = replace(task, make=lambda config: copy_rows(64 * config["columns"], 32, config["tile"]))
    monkeypatch.setattr("warploom.meta_schedule.programs.candidates._forms", lambda shapes: 0)
    drawn = [[encode(one.config) for one in Candidates(task, seed).ranked()]
             for seed in (1, 1, 2)]  # fmt: skip
    assert drawn[0] == drawn[1] != drawn[2] and 0 < len(set(drawn[0])) <= 12
    if ranked and len(drawn[0]) > 4:
        first = Candidates(task, 1)
        seconds = [one.seconds for one in first.ranked()][:4]
        assert seconds == sorted(seconds)


def test_a_program_that_the_model_fails_on_is_a_candidate(monkeypatch):
    def fail(*_):
        raise KeyError("a statement of tomorrow")

    monkeypatch.setattr("warploom.meta_schedule.programs.rank.price_program", fail)
    task = with_rank(task_of(configs={"tile_m": (64, 128), "tile_n": (32,)}))
    assert [one.seconds for one in Candidates(task).ranked()] == [None, None]


def test_errors_of_a_rank_are_not_those_of_configs():
    with pytest.raises(ZeroDivisionError):
        list(Candidates(task_of(rank=lambda program, target: 1 / 0)).ranked())


def test_neighbours_of_the_fastest_are_tried_in_turn_with_the_model():
    task = task_of(lambda M, tile, columns: copy_rows(M, columns, tile), {"M": 64},
                   {"tile": (8, 16, 32, 64), "columns": (32,)},
                   rank=lambda program, target: 1.0)  # fmt: skip
    candidates = Candidates(task)
    strategy = Ranked(candidates, workload(task), [({"tile": 8, "columns": 32}, 5e-6)], 3)._inst
    strategy.pre_tuning(99, 1, [])
    first = strategy.generate_measure_candidates()
    assert [config_of(one.sch.mod)["tile"] for one in first] == [16]
    strategy.notify_runner_results(first, [RunnerResult([3e-6], None)])
    second = strategy.generate_measure_candidates()
    strategy.notify_runner_results(second, [RunnerResult(None, "wrong")])
    third = strategy.generate_measure_candidates()
    candidates.leave_out(config_of(third[0].sch.mod), "no kernel")
    strategy.notify_runner_results(third, [RunnerResult(None, "no kernel")])
    assert strategy.left == 1, "what cannot be compiled is no trial"
    assert strategy.generate_measure_candidates() is None, "nothing is left"
    tiles = [config_of(one[0].sch.mod)["tile"] for one in (first, second, third)]
    assert sorted(tiles) == [16, 32, 64]


def _database(folder, task, seconds: dict[int, float], digest=None, target=TARGET):
    """A database with records of a task, by tile."""
    candidates, mod = Candidates(task), workload(task)
    database = open_database(folder)
    for tile, value in seconds.items():
        made = candidates.of({"tile": tile})
        sch = schedule_of(mod, task.space, made.config, digest or made.digest)
        stored = database.commit_workload(mod)
        database.commit_tuning_record(TuningRecord(sch.trace, stored, [value], target, None))
    return database


def test_records_are_of_one_program(tmp_path):
    """A record whose config makes another program today is none."""
    task = task_of(copy_rows, {"rows": 64, "columns": 32}, {"tile": (8, 16, 32)})
    database = _database(tmp_path, task, {8: 3e-6, 16: 2e-6, 32: FAILED_SECONDS})
    mod, candidates = workload(task), Candidates(task)
    found = records.records_of_task(database, mod, TARGET)
    assert [one.config["tile"] for one in found] == [16, 8, 32]
    assert records.best_of(candidates, found).config == {"tile": 16}
    changed = task_of(
        lambda rows, columns, tile: copy_rows(rows, columns, tile, fault=tile == 16),
        {"rows": 64, "columns": 32}, {"tile": (8, 16, 32)},
    )  # fmt: skip
    assert records.best_of(Candidates(changed), found).config == {"tile": 8}
    fewer = replace(task, space=wl.space(tile=(8, 64)))
    assert records.best_of(Candidates(fewer), found).config == {"tile": 8}
    assert len(records.of_today(candidates, found)) == 3
    other = warploom.cuda_target("h100-pcie")
    assert records.records_of_task(database, mod, other) == []
    assert list(complaints(tmp_path)) == []


def test_records_of_the_emulator_are_marked():
    marked = tvm.target.Target({**dict(TARGET.export()), "keys": [*TARGET.keys, EMULATED]})
    assert not records.same_device(marked, TARGET)
    assert records.same_device(device_target(marked), TARGET)
    assert device_target(TARGET) is TARGET


@given(st.lists(st.sampled_from(["begun", "ended"]), max_size=4), st.booleans())
def test_a_search_that_did_not_end_was_killed(tmp_path_factory, states, damaged):
    folder, mod = tmp_path_factory.mktemp("work"), workload(task_of())
    for state in states:
        records.note_search(folder, mod, "it", state)
        records.note_search(folder, mod, "another", "begun")
    if damaged:
        with (folder / records.SEARCHES).open("ab") as file:
            file.write(b'["1f", "it"')
    assert records.is_unfinished(folder, mod, "it") == (states[-1:] == ["begun"])


def test_inputs_and_numbers_that_a_search_needs(tmp_path, rng):
    @T.prim_func
    def gather(
        x: T.Buffer((64, 32), "float32"), index: T.Buffer((64,), "int32"),
        n: T.int32, y: T.Buffer((64, 32), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        for i, j in T.grid(64, 32):
            y[i, j] = T.if_then_else(i < n, x[index[i], j], T.float32(0))

    def task(**options):
        return task_of(lambda tile: gather, {}, {"tile": (1,)}, **options)

    with pytest.raises(ArgumentError, match="the int32 number n has no value to measure with"):
        facts_of_task(Candidates(task()), "title", tmp_path)
    order = rng.permutation(64)
    own = task(inputs=lambda specs, rng: {"index": order, "n": specs["x"].shape[0] // 2})
    facts = facts_of_task(Candidates(own), "title", tmp_path)
    assert facts.numbers == ((2, 32),) and facts.outputs == (2,)
    with np.load(facts.given) as found:
        np.testing.assert_array_equal(found["1"], order)
    with np.load(facts.reference) as right:
        assert not right["2"][32:].any() and right["2"][:32].any()
    called = task(numbers={2: 64}, given={1: order.astype("int32")})
    with np.load(facts_of_task(Candidates(called), "title", tmp_path).reference) as right:
        assert right["2"][32:].any()
    with pytest.raises(ArgumentError, match=r"inputs= returns 'z'; its program has x, index, n, y"):
        facts_of_task(Candidates(task(inputs=lambda specs, rng: {"z": 1})), "title", tmp_path)
    with pytest.raises(ArgumentError, match=r"an array of shape \(3,\) for index.*must be \(64,\)"):
        wrong = task(inputs=lambda specs, rng: {"index": np.zeros(3), "n": 1})
        facts_of_task(Candidates(wrong), "title", tmp_path)


@pytest.mark.parametrize("how", ["returned", "in place", "torch", "list"])
def test_a_reference_of_ones_own(tmp_path, how):
    def reference(a, b, c=None):
        right = a.astype("float32") @ b.astype("float32").T
        if how == "in place":
            c[...] = right
            return None
        if how == "torch":
            return pytest.importorskip("torch").from_numpy(right)
        return [right] if how == "list" else right

    results = () if how == "in place" else (2,)
    facts = facts_of_task(
        Candidates(task_of(reference=reference, results=results)), "title", tmp_path
    )
    interpreted = facts_of_task(Candidates(task_of()), "title", tmp_path / "..")
    with np.load(facts.reference) as mine, np.load(interpreted.reference) as other:
        np.testing.assert_allclose(mine["2"], other["2"], rtol=0, atol=1e-5)
    with pytest.raises(ArgumentError, match="reference= returns 2 arrays, and the program writes"):
        two = task_of(reference=lambda a, b, c: (c, c))
        facts_of_task(Candidates(two), "title", tmp_path)


def test_a_large_program_is_compared_in_part(tmp_path, monkeypatch, rng):
    """The interpreter has seconds, and a large matmul takes minutes of it."""
    monkeypatch.setattr(right, "_SECONDS", 0.0)
    monkeypatch.setattr(right, "_LEAST_CTAS", 5)
    task = task_of(copy_rows, {"rows": 80, "columns": 32}, {"tile": (8,)})
    facts = facts_of_task(Candidates(task), "title", tmp_path)
    assert facts.in_part
    (a,) = inputs_of_check(facts, [((80, 32), "float32")])
    with np.load(facts.reference) as found:
        known = ~np.isnan(found["1"]).all(-1)
        np.testing.assert_array_equal(found["1"][known], a[known] + 1)
        assert known.sum() == 40 and known[:8].all() and known[-8:].all()
        result, before = a + 1, np.full_like(a, np.nan)
        before.view("uint32")[...] = 0xFFFFFFFF
        compared = _where_known(result, found["1"], before)
        assert is_wrong(compared, found["1"], exact=False) is None
        result[known.nonzero()[0][-1], 3] += 1
        compared = _where_known(result, found["1"], before)
        assert "1 of 2560 elements differ" in is_wrong(compared, found["1"], exact=False)


def test_a_program_that_the_interpreter_refuses(tmp_path):
    @T.prim_func
    def by_hand(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([32])
        B[thread] = A[thread] + T.float32(1)

    def task(**options):
        return task_of(lambda tile: by_hand, {}, {"tile": (1,)}, **options)

    with pytest.raises(WarploomError, match="Give the right results by reference="):
        facts_of_task(Candidates(task()), "title", tmp_path)
    assert facts_of_task(Candidates(task(reference=lambda a, b: a + 1)), "title", tmp_path)


@needs_emulator
def test_a_search_and_its_records(rng, tmp_path):
    """The first call searches; later ones, also of other processes, find the record."""

    def tuned():
        return wl.autotune(
            factory(out_idx=-1), configs={"BM": (64, 100, 128), "BN": (64,)}, trials=4,
            max_workers=1, work_dir=tmp_path,
        )  # fmt: skip

    linear = tuned()
    a, b = (rng.standard_normal((n, 64)).astype("float16") for n in (48, 64))
    with pytest.warns(EmulatedTimeWarning, match="linear is tuned on the emulator"):
        found = linear(a, b, 2.0)
    exact = 2.0 * a.astype("float64") @ b.astype("float64").T
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-3)
    assert linear.cache_info() == (0, 1, 1, 1)
    np.testing.assert_allclose(linear(a, b, 3.0), 1.5 * exact, rtol=0, atol=2e-3)
    assert linear.cache_info() == (1, 1, 1, 1)

    again = tuned()
    with warnings.catch_warnings():
        warnings.simplefilter("error", EmulatedTimeWarning)
        np.testing.assert_allclose(again(a, b, 2.0), exact, rtol=0, atol=1e-3)
    assert again.cache_info().searches == 0 and again.best_config == linear.best_config

    trials = read_journal(tmp_path)
    assert sorted(one.config["BM"] for one in trials) == [64, 128], "100 rows are no trial"
    assert all(one.us > 0 and "emulated" in one.problem for one in trials)
    best = again.tune(a, b, 2.0, trials=2)
    assert not best.searched and best.emulated and best.measured == 2
    database = open_database(tmp_path)
    assert len(database.get_all_tuning_records()) == 3
    for each in database.get_all_tuning_records():
        assert EMULATED in map(str, each.target.keys), "no GPU finds it"


@needs_emulator
@pytest.mark.in_turn(2)
def test_a_wrong_config_is_excluded(rng, tmp_path):
    array = rng.standard_normal((40, 32)).astype("float32")
    tuned = wl.autotune(
        copy_rows, configs={"fault": (0, 1), "tile": (8, 64)}, out_idx=-1, max_workers=1,
        work_dir=tmp_path,
    )  # fmt: skip
    with pytest.warns(WrongCandidateWarning, match="2 configs were .*Parameter 1 is wrong: 960 of"):
        best = tuned.tune(40, 32)
    assert best.config["fault"] == 0 and best.measured == 2
    assert [config["fault"] for config, _ in best.wrong] == [1, 1]
    np.testing.assert_array_equal(tuned(40, 32)(array), array + 1)

    other = wl.autotune(
        copy_rows, configs=[{"fault": 1, "tile": 8}], out_idx=-1, max_workers=1,
        work_dir=tmp_path / "other", reference=lambda a: a + 1,
    )  # fmt: skip
    with (
        pytest.warns(EmulatedTimeWarning),
        pytest.raises(WarploomError, match=r"no config has a kernel that is right\. fault=1"),
    ):
        other(40, 32)


@needs_emulator
@pytest.mark.in_turn(3)
def test_a_row_reduction_is_tuned(rng, tmp_path, capsys):
    tuned = wl.autotune(
        softmax, configs={"tile": (-16, 64, 128)}, max_workers=1, work_dir=tmp_path, verbose=True
    )
    array = rng.standard_normal((50, 64)).astype("float32")
    result = np.full_like(array, np.nan)
    tuned(50, 64)(array, result)
    np.testing.assert_allclose(result, softmax_of(array), rtol=0, atol=1e-6)
    printed = capsys.readouterr().out
    assert "says nothing: tile=" in printed
    assert "left out tile=-16: held has shape (-16, 64); extents must be at least 1" in printed


@needs_emulator
@pytest.mark.in_turn(3)
def test_attention_is_tuned(rng, tmp_path):
    @wl.autotune(
        configs=[{"tile": (64, 64)}, {"tile": (64, 128), "stages": 3}], max_workers=1,
        work_dir=tmp_path,
    )  # fmt: skip
    @warploom.jit(out_idx=-1)
    def attend(Q, K, V, *, tile, stages=2, causal=False):
        batch, heads, tokens, dim = Q.shape
        return attention(
            tokens, dim, heads, batch=batch, causal=causal, dtype=Q.dtype, tile=tile, stages=stages
        )

    q, k, v = (rng.standard_normal((1, 1, 80, 64)).astype("float16") for _ in range(3))
    logits = np.einsum("bhqd,bhkd->bhqk", q.astype(float), k.astype(float)) / 8
    right = np.einsum("bhqk,bhkd->bhqd", softmax_of(logits), v.astype(float))
    assert np.abs(attend(q, k, v) - right).max() < 5e-3
    assert attend.best_config in ({"tile": (64, 64)}, {"tile": (64, 128), "stages": 3})


@needs_emulator
@pytest.mark.in_turn(2)
def test_a_killed_search_goes_on(tmp_path):
    """What the database lacks comes from the journal; nothing is measured twice."""
    tuned = wl.autotune(
        copy_rows, configs={"tile": (8, 16, 32, 64)}, max_workers=1, work_dir=tmp_path
    )
    tuned.tune(64, 32, trials=2)
    assert len(read_journal(tmp_path)) == 2
    (tmp_path / RECORDS).write_bytes(b"")
    with (tmp_path / records.SEARCHES).open("ab") as file:
        workload_, title, _ = json.loads((tmp_path / records.SEARCHES).read_text().splitlines()[0])
        file.write(json.dumps([workload_, title, "begun"]).encode() + b"\n")
    again = wl.autotune(
        copy_rows, configs={"tile": (8, 16, 32, 64)}, max_workers=1, work_dir=tmp_path
    )
    again(64, 32)
    trials = [one.config["tile"] for one in read_journal(tmp_path)]
    assert sorted(trials) == [8, 16, 32, 64]
    assert again.cache_info().searches == 1
    assert len(open_database(tmp_path).get_all_tuning_records()) == 4


_RUN = """
import sys
from tests.meta_schedule.tuned_factories import copy_rows
from warploom import language as wl
tuned = wl.autotune(copy_rows, configs={"tile": tuple(range(8, 200, 8))}, max_workers=1,
                    work_dir=sys.argv[1])
print(tuned.tune(64, 32, trials=12).measured)
"""


@needs_emulator
@pytest.mark.long
def test_a_process_that_is_killed(tmp_path):
    environ = {
        **os.environ, "WARPLOOM_EMULATOR": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    command = [sys.executable, "-c", _RUN, str(tmp_path)]
    run = subprocess.Popen(command, env=environ)
    for _ in range(3000):
        if len(read_journal(tmp_path)) >= 3:
            break
        time.sleep(0.1)
    run.send_signal(signal.SIGKILL)
    run.wait()
    before = [one.config["tile"] for one in read_journal(tmp_path)]
    out = subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout
    after = [one.config["tile"] for one in read_journal(tmp_path)]
    assert out.split() == ["12"] and after[: len(before)] == before
    assert len(after) == len(set(after)) == 12


def test_without_a_gpu(tmp_path, monkeypatch):
    class Absent:
        exist = False

    monkeypatch.setattr(tvm, "cuda", lambda index: Absent())
    tuned = wl.autotune(copy_rows, configs={"tile": (8, 16)}, work_dir=tmp_path)
    with pytest.raises(WarploomError, match=r"copy_rows\(rows=64, columns=32, fault=0\) has no"):
        tuned.tune(64, 32, target=TARGET)
    assert wms.open_database(tmp_path) is not None


def test_gpus_of_another_architecture(tmp_path, monkeypatch):
    """Its kernels would not run, or its times would be recorded for the target."""
    monkeypatch.setattr(emulator, "is_enabled", lambda: False)
    monkeypatch.setattr(tvm, "cuda", lambda number=0: SimpleNamespace(exist=number < 2))
    monkeypatch.setattr(search, "target_from_device", lambda _: TARGET)
    tuned = wl.autotune(copy_rows, configs={"tile": (8, 16)}, work_dir=tmp_path)
    with pytest.raises(WarploomError, match="GPU 0 is sm_90a and the target sm_100a"):
        tuned.tune(64, 32, target=warploom.cuda_target("sm_100a"))
    with pytest.raises(WarploomError, match="There is no GPU 2; leave it out of devices="):
        tuned.tune(64, 32, target=TARGET, devices=(1, 2))


def test_the_default_folder_is_in_the_cache(tmp_path, monkeypatch):
    from warploom.language.tuning.tuner import Options
    from warploom.meta_schedule.programs.search import _folder

    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WARPLOOM_CACHE", raising=False)
    task = task_of()
    with _folder(task, Options(task.space)) as folder:
        assert folder == tmp_path / "autotune" / "matmul"
    with _folder(task, Options(task.space, work_dir=Path("x"))) as folder:
        assert folder == Path("x")
    monkeypatch.setenv("WARPLOOM_CACHE", "0")
    with _folder(task, Options(task.space)) as folder:
        assert folder.is_dir() and tmp_path not in folder.parents
    assert not folder.exists()


_FILE = """
import warploom
from tests.meta_schedule.tuned_factories import copy_rows
from tests.language.test_jit import factory
from warploom import language as wl

tuned = wl.autotune(copy_rows, configs={"tile": (8, 16), "fault": (0, 1)}, max_workers=1)
kernel = wl.autotune(factory(out_idx=-1), configs={"BM": (64,), "BN": (64,)}, max_workers=1)
"""


@needs_emulator
@pytest.mark.in_turn(3)
def test_the_command_tunes_a_program(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(_FILE)
    folder, file = tmp_path / "work", str(tmp_path / "mine.py")
    words = ["--work-dir", str(folder), "--trials", "2", "--workers", "1"]
    values = ["--values", "tile=8,64", "--verbose"]
    assert cli.main(["tune", "program", f"{file}:copy_rows", "--key", "rows=40,columns=32",
                     *values, *words]) == 0  # fmt: skip
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("copy_rows(rows=40, columns=32, fault=0) on sm_90a, emulated: ")
    assert "us emulated, which says nothing: tile=" in second
    assert len(read_journal(folder)) == 2
    key = "A=float16[16,64], B=float16[64,64],alpha=2.0,BK=32"
    assert cli.main(["tune", "program", f"{file}:kernel", "--key", key, *words]) == 0
    assert "BM=64 BN=64" in capsys.readouterr().out
    assert cli.main(["tune", "db", "inspect", str(folder)]) == 0
    listed = capsys.readouterr().out
    assert "copy_rows(columns=32," in listed.replace("\n", "") and "tile=" in listed
    assert cli.main(["tune", "db", "verify", str(folder)]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((":tuned", "--values", "tile=8"), "copy_rows has configs of its own; leave --values out"),
        ((":copy_rows",), "copy_rows has no configs: put @wl.autotune"),
        ((":copy_rows", "--values", "tile"), "'tile' is no hint with values of its own"),
        ((":tuned", "--key", "rows=8"), "copy_rows takes rows, columns: missing a required"),
        ((":tuned", "--key", "rows=8,tile=8"), "tile is tuned; leave it out"),
        ((":kernel", "--key", "A=float16[8,64]"), r"linear needs B, alpha; give each a dtype"),
        ((":nothing",), "has no nothing; it must be a TunedFactory or a TunedKernel"),
    ],
)
def test_what_the_command_refuses(tmp_path, capsys, words, message):
    (tmp_path / "mine.py").write_text(_FILE)
    place, *more = words
    assert cli.main(["tune", "program", str(tmp_path / "mine.py") + place, *more]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_values_of_the_command_line():
    assert command.assignments("A=float16[4096, 64],n=3,raster=rows,c=(1, 2)") == {
        "A": wl.TensorSpec((4096, 64), "float16"), "n": 3, "raster": "rows", "c": (1, 2)
    }  # fmt: skip
    assert command.read_space(["cluster=(1,1),(2,1)", "split_k", "p=True,None"]).values == {
        "cluster": ((1, 1), (2, 1)), "p": (True, None), "split_k": HINT_VALUES["split_k"],
    }  # fmt: skip


def test_the_model_ranks_what_its_author_does_not() -> None:
    task = task_of()
    ranked = with_rank(task)
    program = ranked.make(ranked.space.at(0))
    expected = price_program(program, task.target, task.sizes).total * 1e-6
    assert ranked.rank(program, task.target) == expected
    own = task_of(rank=lambda program, target: 1.0)
    assert with_rank(own) is own
    seconds = [one.seconds for one in Candidates(ranked).ranked()]
    priced = [each for each in seconds if each is not None]
    assert priced and seconds == [*sorted(priced), *[None] * (len(seconds) - len(priced))]
