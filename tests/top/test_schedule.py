"""``warploom.schedule``, the annotations it makes, and plain ``tvm.compile`` of the result."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.dlight import ApplyDefaultSchedule
from tvm.s_tir.dlight import gpu as dlight_gpu

import warploom
from tests.shared import gemm_functions
from tests.shared.gemm_functions import Function
from warploom import dlight, emulator, schedule
from warploom.decide import Config
from warploom.errors import Decline, IllegalCombination, StockScheduleWarning
from warploom.gemm.annotations import annotate, decisions_of, has_decisions
from warploom.gemm.lower import lower_gemm

_TARGET = warploom.cuda_target("h200")


def _run(
    func: tvm.tirx.PrimFunc, function: Function, rng: np.random.Generator, **sizes: int
) -> None:
    arguments = function.arguments(rng, **sizes)
    executable = tvm.compile(tvm.IRModule({"main": func}), _TARGET)
    function.assert_right(emulator.run(executable, arguments).outputs[-1:], arguments)


def test_scheduled_functions_compile_and_run(rng: np.random.Generator) -> None:
    function = gemm_functions.epilogue()
    sch = Schedule(function.func)
    schedule.gemm_async(sch, "sum", tile=(64, 64, 32), stages=3, consumers=1)
    _run(sch.mod["main"], function, rng)


def test_decisions_replay_from_json() -> None:
    function = gemm_functions.matmul()
    sch = Schedule(function.func)
    block = sch.get_sblock("matmul")
    rows = sch.sample_categorical([64, 128], [0.5, 0.5], decision=1)
    schedule.gemm_async(sch, block, tile=(rows, 64, 32), cluster=(2, 1), stages=3, consumers=1)
    again = Schedule(function.func)
    Trace.apply_json_to_schedule(json.loads(json.dumps(_plain(sch.trace.as_json()))), again)
    expected = Config(128, 64, 32, 3, 1, cluster_m=2)
    assert decisions_of(sch.mod["main"]) == decisions_of(again.mod["main"]) == [(None, expected)]


def _plain(value: object) -> object:
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if isinstance(value, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
        return value.value
    return [_plain(one) for one in value]


def test_defaults_are_recorded() -> None:
    sch = Schedule(gemm_functions.matmul().func)
    schedule.gemm_async(sch, "matmul")
    assert decisions_of(sch.mod["main"]) == [(None, Config())]


@pytest.mark.parametrize(
    ("block", "config", "reason"),
    [
        ("C", {}, "block 'C' has no sum of products"),
        ("matmul", {"colour": 1}, "'colour' is no choice"),
        ("matmul", {"tile": (96, 64, 32)}, "need a multiple of 128"),
    ],
)
def test_wrong_decisions(block: str, config: dict[str, object], reason: str) -> None:
    sch = Schedule(gemm_functions.matmul().func)
    with pytest.raises(IllegalCombination, match=reason):
        schedule.gemm_async(sch, block, **config)
    assert not has_decisions(sch.mod["main"])


def test_decisions_by_number_of_rows(rng: np.random.Generator) -> None:
    function = gemm_functions.matmul(None)
    sch = Schedule(function.func)
    block = sch.get_sblock("matmul")
    few = Config(16, 64, 32, 2, 1, swap_ab=True)
    many = Config(64, 64, 32, 3, 1)
    annotate(sch, block, few.values(), 16)
    annotate(sch, block, many.values())
    func = sch.mod["main"]
    assert decisions_of(func) == [(16, few), (None, many)]
    for rows in (1, 16, 17, 90):
        _run(func, function, rng, m=rows)


def test_there_must_be_decisions_for_any_number_of_rows() -> None:
    sch = Schedule(gemm_functions.matmul(None).func)
    annotate(sch, sch.get_sblock("matmul"), Config().values(), 16)
    with pytest.raises(IllegalCombination, match="up to 16 rows, and none for more"):
        decisions_of(sch.mod["main"])


def test_without_decisions() -> None:
    with pytest.raises(Decline, match="no decisions"):
        lower_gemm(gemm_functions.matmul().func)


def test_what_cannot_be_lowered_is_compiled_the_slow_way(rng: np.random.Generator) -> None:
    function = gemm_functions.matmul()
    sch = Schedule(function.func)
    annotate(sch, sch.get_sblock("matmul"), {**Config().values(), "stages": 60})
    with pytest.warns(StockScheduleWarning, match="TVM's own schedule.*: .*shared memory"):
        _run(sch.mod["main"], function, rng)


def test_the_rule_for_dlight(rng: np.random.Generator) -> None:
    function = gemm_functions.swiglu()
    rules = dlight.Matmul(), dlight_gpu.Fallback()
    with _TARGET:
        mod = ApplyDefaultSchedule(*rules)(tvm.IRModule({"main": function.func}))
    assert has_decisions(mod["main"])
    _run(mod["main"], function, rng)


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
def test_the_rule_leaves_other_targets_alone(arch: str) -> None:
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    assert dlight.Matmul().apply(gemm_functions.matmul().func, target, False) is None


def test_modules_of_all_kinds_of_functions(rng: np.random.Generator) -> None:
    scheduled = Schedule(gemm_functions.matmul().func)
    schedule.gemm_async(scheduled, "matmul", tile=(64, 64, 32), stages=3, consumers=1)
    other = gemm_functions.split()
    with _TARGET:
        stock = ApplyDefaultSchedule(dlight_gpu.Fallback())(tvm.IRModule({"other": other.func}))
    mod = tvm.IRModule(
        {
            "ours": scheduled.mod["main"].with_attr("global_symbol", "ours"),
            "other": stock["other"].with_attr("global_symbol", "other"),
        }
    )
    executable = tvm.compile(mod, _TARGET)
    for name, function in (("ours", gemm_functions.matmul()), ("other", other)):
        arguments = function.arguments(rng)
        found = emulator.run(executable, arguments, kernel=name).outputs
        function.assert_right(found[-function.outputs :], arguments)
