"""``WARPLOOM_AUTOTUNE``: builds that measure the model's best few configs."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from tvm import relax

import warploom
from tests.gemm.convolutions import CONVOLUTIONS
from tests.relax.test_pipeline import _call, _model
from tests.shared.gemm_functions import FUNCTIONS
from warploom import emulator
from warploom.decide.ranking import choose_by_rows, ranked
from warploom.errors import (
    CacheWarning,
    EmulatedTimeWarning,
    NotMeasuredWarning,
    NotSaved,
    WarploomError,
)
from warploom.gemm.recognition import recognise
from warploom.meta_schedule import best_few
from warploom.meta_schedule.best_few import measure_best, with_size
from warploom.meta_schedule.database import open_database
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.programs.workload import EMULATED
from warploom.meta_schedule.records import records_of
from warploom.meta_schedule.workloads import matmul
from warploom.relax import measure_best as module
from warploom.relax.insertion import inserted
from warploom.relax.passes import SCHEDULE_MATMULS
from warploom.relax.pipeline import stock_passes
from warploom.tile import ir

pytestmark = pytest.mark.gpu
TARGET = warploom.cuda_target("h200")


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """A cache of its own, and warnings that have not been said."""
    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("WARPLOOM_CACHE", raising=False)
    for say in (module._say_once, module._say_emulated):
        say.cache_clear()


def _functions(rows) -> list:
    """The GEMMs of a model, as the pass sees them."""
    names = ("ApplyDefaultSchedule", SCHEDULE_MATMULS, "warploom.LowerRows", "warploom.MeasureBest")
    with TARGET:
        steps = [s for s in inserted(stock_passes()(TARGET)) if s.info.name not in names]
        mod = tvm.transform.Sequential(steps)(_model(rows))
    return [f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]


@pytest.mark.in_turn(2)
@pytest.mark.filterwarnings("ignore::warploom.errors.EmulatedTimeWarning")
def test_a_build_measures_once(rng, tmp_path, monkeypatch):
    monkeypatch.setenv("WARPLOOM_AUTOTUNE", "2")
    arguments = [rng.standard_normal(shape).astype("float16") / 4
                 for shape in ((1, 40, 64), (128, 64), (128,), (64, 128))]  # fmt: skip
    device = tvm.cuda(0)
    plain = _call(relax.build(_model(40), TARGET), "forward", arguments, device)
    folder = tmp_path / "cache" / "autotune" / "relax"
    stock = open_database(folder).get_all_tuning_records()
    records = records_of(open_database(folder))
    assert len(records) == len(stock) == 4 and len({one.problem for one in records}) == 2
    if emulator.is_enabled():
        assert all(EMULATED in map(str, one.target.keys) for one in stock)
    for one in records:
        assert one.config in [config for _, config in ranked(one.problem)[:2]]

    monkeypatch.setattr(best_few, "_measure", lambda *_: pytest.fail("measured twice"))
    monkeypatch.setenv("WARPLOOM_MODULE_CACHE", "0")
    again = _call(relax.build(_model(40), TARGET), "forward", arguments, device)
    np.testing.assert_array_equal(plain, again)


@pytest.mark.in_turn(3)
def test_the_fastest_is_taken(tmp_path, monkeypatch):
    """Times are made up: the last of the candidates is the fastest."""
    func, times = matmul(64, 64, 64), iter((9e-6, 8e-6, 1e-6))
    monkeypatch.setattr(best_few, "_seconds", lambda *_: (next(times),))
    problem = recognise(func).problem
    found = measure_best([func, func], TARGET, Lookup([]), 3, tmp_path)
    third = ranked(problem)[2][1]
    assert found.exact == {problem: third} and found.config(problem) == third
    assert found.config(recognise(matmul(64, 64, 96)).problem) is None
    found = measure_best([func], TARGET, Lookup([]), 3, tmp_path)
    assert found.exact == {problem: third}, "nothing was measured"
    known = Lookup(records_of(open_database(tmp_path)))
    assert measure_best([func], TARGET, known, 3, tmp_path / "other").exact == {}


#: Functions of every kind that a model may have.
_KINDS = {
    **{name: FUNCTIONS[name] for name in FUNCTIONS},
    **{f"convolution {name}": CONVOLUTIONS[name].function
       for name in ("3 x 3", "1 x 1", "3 x 3, epilogue")},
}  # fmt: skip


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.some(1)
@pytest.mark.filterwarnings("ignore::warploom.errors.EmulatedTimeWarning")
def test_every_kind_of_gemm_is_measured(kind, tmp_path):
    """Epilogues, operands that are dequantised, batches, convolutions: two candidates each."""
    func = _KINDS[kind]().func
    problem = recognise(func).problem
    found = measure_best([func], TARGET, Lookup([]), 2, tmp_path)
    assert found.exact[problem] in [config for _, config in ranked(problem)[:2]]
    assert len(records_of(open_database(tmp_path))) == 2


@pytest.mark.parametrize("rows", [16, 1024])
def test_a_size_becomes_a_constant(rows):
    functions = [f for f in _functions("m") if recognise(f).problem.m is None]
    assert functions
    for func in functions:
        bound = with_size(func, rows)
        assert recognise(bound).problem.m == rows
        assert not any(var.name == "m" for var in ir.uses(bound.body))
        assert recognise(func).problem.m is None, "the original is as it was"
        assert with_size(bound, 8) is None


def test_rows_that_only_the_launch_knows_are_measured_for_several_numbers(tmp_path, monkeypatch):
    measured = []
    monkeypatch.setattr(best_few, "EMULATED_OPERATIONS", np.inf)
    monkeypatch.setattr(best_few, "_measure", lambda works, *_: measured.extend(works))
    functions = _functions("m")
    measure_best(functions, TARGET, Lookup([]), 4, tmp_path)
    problems = {recognise(func).problem for func in functions}
    wanted = {(problem.n, limit or 2048)
              for problem in problems for limit, _ in choose_by_rows(problem)}  # fmt: skip
    assert {(work.problem.n, work.problem.m) for work in measured} == wanted
    assert all(work.asked.m in (None, work.problem.m) for work in measured)


def test_the_emulator_leaves_large_gemms_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(best_few, "_measure", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(emulator, "is_enabled", lambda: True)
    assert measure_best([matmul(4096, 4096, 64)], TARGET, Lookup([]), 4, tmp_path).exact == {}


@pytest.mark.parametrize(("text", "count"), [("", 0), ("0", 0), ("1", 4), ("12", 12)])
def test_what_the_variable_says(monkeypatch, text, count):
    monkeypatch.setenv("WARPLOOM_AUTOTUNE", text)
    assert module.wanted_count() == count


def test_what_the_variable_may_not_say(monkeypatch):
    monkeypatch.setenv("WARPLOOM_AUTOTUNE", "yes")
    with pytest.raises(WarploomError, match="WARPLOOM_AUTOTUNE is 'yes'; allowed are 0, 1"):
        module.wanted_count()


def test_without_a_gpu_it_is_said_once(monkeypatch):
    monkeypatch.setattr(tvm, "cuda", lambda number=0: SimpleNamespace(exist=False))
    with pytest.warns(NotMeasuredWarning, match="there is no GPU. The model chooses"):
        assert not module.has_device(TARGET)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not module.has_device(TARGET)


@pytest.mark.skipif("not __import__('warploom').emulator.is_enabled()", reason="emulated devices")
def test_a_device_of_another_architecture(monkeypatch):
    with pytest.warns(NotMeasuredWarning, match="the GPU is sm_90a, the target sm_100a"):
        assert not module.has_device(warploom.cuda_target("sm_100a"))
    with pytest.warns(EmulatedTimeWarning, match="small GEMMs and attentions are executed and"):
        assert module.has_device(TARGET)


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "autotune").write_text("a file in the place of the folder")
    monkeypatch.setattr(best_few, "_seconds", lambda *_: (1e-6,))
    mod = tvm.IRModule({"main": matmul(64, 64, 64)})
    with pytest.warns(CacheWarning, match="cannot be written to .*every process measures anew"):
        assert len(module._measured(mod, TARGET, Lookup([]), 2).exact) == 1


def test_a_disk_that_becomes_full(monkeypatch):
    def full(*_):
        raise NotSaved("records cannot be written: No space left on device")

    monkeypatch.setattr(module, "measure_best", full)
    with pytest.warns(CacheWarning, match="Nothing is measured: .*No space left"):
        assert module._measured(tvm.IRModule({}), TARGET, Lookup([]), 2) is None
