"""Candidates are compiled, checked and timed; a bad one costs nothing but itself."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir import dlight as dl
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import RunnerInput
from tvm.script import tirx as T

import warploom
from warploom import meta_schedule as wms
from warploom import schedule
from warploom.gemm.annotations import PREFIX, annotate
from warploom.gemm.workloads import function
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule import artifact, measure, place, reference
from warploom.meta_schedule.builder import both
from warploom.meta_schedule.cuda_timer import CudaTimer
from warploom.meta_schedule.plain_schedule import scheduled_apart
from warploom.meta_schedule.processes import WorkerLost
from warploom.meta_schedule.reference import exact_input, is_wrong, outputs_of
from warploom.meta_schedule.workloads import matmul

pytestmark = pytest.mark.gpu

SIZE = (64, 48, 136)
LEGAL = {"tile_m": 64, "tile_n": 48, "tile_k": 64, "stages": 2, "consumers": 1}


def _candidate(func, **changes) -> tvm.IRModule:
    sch = Schedule(func)
    annotate(sch, sch.get_sblock("matmul"), {**LEGAL, **changes})
    return sch.mod


def _target():
    return warploom.cuda_target("h200")


def _runner_input(path: str, func) -> RunnerInput:
    return RunnerInput(path, "cuda", ArgInfo.from_prim_func(func))


@pytest.fixture(scope="module")
def builder():
    made = wms.Builder(2, timeout_sec=60)
    yield made
    made.close()


@pytest.fixture(scope="module")
def told() -> list:
    return []


@pytest.fixture(scope="module")
def runner(told):
    made = wms.Runner(timeout_sec=60, listener=lambda *trial: told.append(trial))
    yield made
    made.close()


@pytest.fixture(scope="module")
def built(builder) -> list:
    """Results for a right candidate, one with a split sum, an impossible one, and one of TVM's."""
    func = matmul(*SIZE)
    impossible = {"tile_m": 100}
    mods = [_candidate(func), _candidate(func, split_k=2), _candidate(func, **impossible), _stock()]
    return builder.build([BuilderInput(mod, _target(), None) for mod in mods])


def _stock() -> tvm.IRModule:
    a = te.placeholder((64,), "float32", name="A")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="B")
    sch = Schedule(te.create_prim_func([a, b]).with_attr("global_symbol", "main"))
    sch.bind(sch.get_loops("B")[0], "threadIdx.x")
    return sch.mod


def test_candidates_that_no_kernel_can_have_fail_to_build(built):
    assert [one.error_msg is None for one in built] == [True, True, False, True]
    assert "need a multiple of 64" in str(built[2].error_msg)


def test_what_is_built_says_what_it_is(built):
    facts = artifact.read_facts(str(built[1].artifact_path))
    assert facts.config["split_k"] == 2 and "64 x 48 x 136 NT" in facts.problem
    assert facts.outputs == (2,) and facts.predicted > 0
    assert Path(facts.reference).exists() and facts.on_host
    assert facts.workload == artifact.read_facts(str(built[0].artifact_path)).workload
    assert artifact.read_facts(str(built[3].artifact_path)).config is None


@pytest.mark.in_turn(3)
def test_right_candidates_are_timed_and_bad_ones_are_told(built, builder, runner, told):
    func = matmul(*SIZE)
    right, split, _, stock = (str(one.artifact_path) for one in built)
    wrong = _as_if(builder, right, _candidate(matmul(*SIZE, factor=2.0)))
    broken = _as_if(builder, right, None)
    order = [right, wrong, broken, split]
    futures = runner.run([_runner_input(path, func) for path in order])
    futures += runner.run([_runner_input(stock, _stock()["main"])])
    found = [one.result() for one in futures]
    for one in (found[0], found[3], found[4]):
        assert one.error_msg is None and all(float(each) > 0 for each in one.run_secs)
        assert len(one.run_secs) in (3, 5)
    assert "elements differ; the worst, at" in str(found[1].error_msg)
    assert found[1].run_secs is None and found[2].run_secs is None
    assert "expected cpu" in str(found[2].error_msg)
    by_path = [(facts.problem, times is None, error) for facts, times, error in told]
    assert len(by_path) == 5 and sum(failed for _, failed, _ in by_path) == 2


def test_candidates_are_timed_side_by_side(built, builder, monkeypatch):
    right, split = (str(built[number].artifact_path) for number in (0, 1))
    wrong = _as_if(builder, right, _candidate(matmul(*SIZE, factor=2.0)))
    turns = []
    elapsed = CudaTimer.elapsed

    def observed(self, warm, timed):
        turns.append(timed)
        return elapsed(self, warm, timed)

    monkeypatch.setattr(CudaTimer, "elapsed", observed)
    taken = _arguments(matmul(*SIZE))
    found = measure.compare_candidates([right, wrong, split], "cuda", 0, taken, 4)
    assert [len(one.seconds) for one in found] == [4, 0, 4]
    assert "elements differ" in found[1].wrong and min(found[0].seconds + found[2].seconds) > 0
    estimates = len(turns) - 4 * 2
    assert 2 <= estimates <= 10, "one to five estimates of each, then each in each round"
    (alone,) = measure.compare_candidates([wrong], "cuda", 0, taken, 4)
    assert not alone.seconds and "elements differ" in alone.wrong


class _Interrupted:
    """A timer of a kernel of 10 us, on a host that is interrupted now and then for 1 ms."""

    def __init__(self, interrupted: set[int]) -> None:
        self.interrupted, self.count, self.captured = interrupted, 0, 0

    def idle(self, seconds):
        pass

    def elapsed(self, warm, timed):
        self.count += 1
        warm(), timed()
        return 1e-3 if self.count in self.interrupted else 10e-6

    def conditions(self):
        return None, None

    def capture(self, launch, sets, executions):
        self.captured += 1
        return lambda: None


@pytest.mark.parametrize("interrupted", [set(), {1}, {1, 2, 3}, {1, 2, 3, 4}])
def test_a_short_kernel_is_replayed_from_a_graph_whatever_the_host_does(interrupted):
    local = place.LocalPlace.__new__(place.LocalPlace)
    local.device, local.timer = None, _Interrupted(interrupted)
    local.compare([lambda *_: None], [[], []])
    assert local.timer.captured == 1


def _as_if(builder, like: str, mod: tvm.IRModule | None) -> str:
    """A library with the facts of another one: of a module, or for the CPU."""
    path = artifact.new_folder(builder.folder) / artifact.LIBRARY
    if mod is None:
        library = tvm.compile(tvm.IRModule({"main": matmul(*SIZE)}), "llvm")
    else:
        library = tvm.compile(mod, _target())
    library.export_library(str(path))
    artifact.write_facts(path.parent, replace(artifact.read_facts(like), kernel=""))
    return str(path)


@pytest.mark.in_turn(3)
def test_candidates_are_measured_while_others_are_compiled():
    func, told = matmul(*SIZE), []
    builder = wms.Builder(1, ahead=True)
    runner = wms.Runner(timeout_sec=60, listener=lambda *trial: told.append(trial))
    try:
        mods = [_candidate(func), _candidate(func, tile_m=100), _candidate(func, tile_k=128)]
        promised = builder.build([BuilderInput(mod, _target(), None) for mod in mods])
        assert not any(Path(str(one.artifact_path)).exists() for one in promised)
        futures = runner.run([_runner_input(str(one.artifact_path), func) for one in promised])
        found = [one.result() for one in futures]
    finally:
        builder.close()
        runner.close()
    assert [one.error_msg is None for one in found] == [True, False, True]
    assert "need a multiple of 64" in str(found[1].error_msg)
    assert sorted(facts.config["tile_m"] for facts, _, _ in told) == [64, 64, 100]
    assert sum(times is None for _, times, _ in told) == 1


def test_a_candidate_is_there_once_its_reference_is_too():
    built, other = Future(), Future()
    joined = both(built, other)
    built.set_result("path")
    assert not joined.done()
    other.set_exception(RuntimeError("it cannot be compiled"))
    assert joined.result() == "path", "the runner says that there is nothing to check it with"
    built, other = Future(), Future()
    assert both(built, other).cancel() and built.cancelled()
    other.set_result(None)


@pytest.mark.in_turn(3)
def test_a_candidate_that_hangs_costs_only_itself(built, told):
    func, path = matmul(*SIZE), str(built[0].artifact_path)
    runner = wms.Runner(timeout_sec=20)
    try:
        assert runner.submit(path, "cuda", _arguments(func)).result().seconds
        start = time.monotonic()
        hanging = runner.pool.submit(time.sleep, 600, timeout=0.5)
        after = runner.submit(path, "cuda", _arguments(func))
        with pytest.raises(WorkerLost, match="more than"):
            hanging.result()
        assert after.result().seconds and time.monotonic() - start < 500
    finally:
        runner.close()


def _arguments(func):
    return tuple((tuple(int(e) for e in info.shape), str(info.dtype))
                 for info in ArgInfo.from_prim_func(func))  # fmt: skip


def test_a_graph_of_launches_does_what_they_do(rng):
    sch = Schedule(matmul(*SIZE))
    schedule.gemm_async(sch, "matmul", tile=(64, 48, 64), stages=2, consumers=1)
    kernel = tvm.compile(sch.mod, _target())["main"]
    timer = CudaTimer(tvm.cuda(0))
    sets = []
    for _ in range(3):
        a, b = (rng.standard_normal((rows, SIZE[2])).astype("float16") for rows in SIZE[:2])
        poison = np.full(SIZE[:2], np.nan, "float16")
        sets.append([tvm.runtime.tensor(one, tvm.cuda(0)) for one in (a, b, poison)])
    with timer.on_stream():
        replay = timer.capture(lambda index: kernel(*sets[index]), 3, 6)
        assert all(np.isnan(one[2].numpy()).all() for one in sets), "a capture executes nothing"
        assert timer.elapsed(lambda: None, replay) > 0
    for a, b, c in sets:
        right = a.numpy().astype("float64") @ b.numpy().astype("float64").T
        assert np.abs(c.numpy() - right).max() < 0.05


def test_short_kernels_are_timed_in_graphs(built, monkeypatch):
    captured = []
    capture = CudaTimer.capture

    def observed(self, launch, sets, executions):
        captured.append((sets, executions))
        return capture(self, launch, sets, executions)

    monkeypatch.setattr(CudaTimer, "capture", observed)
    monkeypatch.setattr(place, "GRAPH_SECONDS", math.inf)
    monkeypatch.setattr(measure, "_MOST_SETS", 3)
    monkeypatch.setattr(place, "_GRAPH_EXECUTIONS", 4)
    path = str(built[0].artifact_path)
    found = measure.run_candidate(path, "cuda", 0, _arguments(matmul(*SIZE)))
    assert captured == [(3, 6)] and len(found.seconds) >= 3 and not found.wrong


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(("part", "kept"), [(0.4, 2), (0.0, 1)])
def test_tasks_are_kept_while_their_tensors_take_little_memory(built, part, kept, monkeypatch):
    monkeypatch.setattr(measure, "_KEPT_PART", part)
    monkeypatch.setattr(measure, "_tasks", OrderedDict())
    for one, func in ((built[0], matmul(*SIZE)), (built[3], _stock()["main"])):
        measure.prepare(str(one.artifact_path), "cuda", 0, _arguments(func))
        assert next(reversed(measure._tasks.values())).timed, "the task in hand is always there"
    assert len(measure._tasks) == kept


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int8", "float32"])
def test_sums_of_products_of_check_inputs_are_exact(dtype, rng):
    a, b = (exact_input((40, 3000), dtype, rng).astype("float64") for _ in range(2))
    total = a @ b.T
    assert np.array_equal(total, total.astype("float32")) and np.abs(total).max() > 20
    if dtype != "int8":
        assert np.array_equal(total, total.astype("float16")), "also where a sum is float16"


def test_a_difference_is_found_and_rounding_is_not(rng):
    right = rng.standard_normal((30, 50)).astype("float16") * 10
    rounded = np.nextafter(right, np.float16(100))
    assert is_wrong(right.copy(), right) is None and is_wrong(rounded, right) is None
    changed = right.copy()
    changed[3, 4] += np.float16(1)
    assert "1 of 1500 elements differ; the worst, at (3, 4)" in is_wrong(changed, right)
    changed[5, 6] = np.nan
    assert "2 of 1500 elements differ; the worst, at (5, 6), is nan" in is_wrong(changed, right)
    whole = np.arange(6, dtype="int32")
    assert is_wrong(whole, whole) is None and is_wrong(whole + 1, whole) is not None


def test_what_is_infinite_may_be_the_largest_number_and_nothing_else():
    right = np.array([[1e4, 65504, np.inf, -np.inf, np.inf]], "float16")
    near = np.array([[1e4, np.inf, 65504, -np.inf, np.inf]], "float16")
    assert is_wrong(near, right) is None and is_wrong(near, right, exact=False) is None
    for column, other in ((0, np.inf), (2, -np.inf), (3, 6e4), (4, np.nan)):
        changed = near.copy()
        changed[0, column] = other
        assert "1 of 5 elements differ" in is_wrong(changed, right)


def test_outputs_are_what_is_stored():
    assert outputs_of(matmul(*SIZE)) == (2,)


def test_names_of_annotations_are_ours():
    mod = _candidate(matmul(*SIZE))
    assert all(f"{PREFIX}{name}" in str(mod) for name in LEGAL)


@pytest.mark.parametrize("size", [(64, 48, 136), (1, 64, 72), (33, 65, 40)], ids=str)
def test_large_references_run_on_the_device_without_tensor_cores(size, monkeypatch, tmp_path, rng):
    func = matmul(*size)
    monkeypatch.setattr(reference, "_HOST_OPERATIONS", 0)
    reference.build_reference(func, _target(), tmp_path / "reference.so")
    library = tvm.runtime.load_module(str(tmp_path / "reference.so"))
    inputs = [exact_input(*one, rng) for one in _arguments(func)]
    tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in inputs]
    library["main"](*tensors)
    right = inputs[0].astype("float64") @ inputs[1].astype("float64").T
    assert is_wrong(tensors[2].numpy(), right.astype("float16")) is None
    with pytest.raises(ValueError, match="expected cuda"):
        library["main"](*(tvm.runtime.tensor(one) for one in inputs))


@pytest.mark.parametrize("size", [(70, 144, 72), (17, 32, 136)], ids=str)
def test_references_are_made_where_tvms_rules_fail(size, monkeypatch, tmp_path, rng):
    func = function(GemmShape("pairs", *size, "float16", epilogue="swiglu"))
    mod = tvm.IRModule({"main": func})
    with pytest.raises(AssertionError, match="not properly inlined"), _target():
        dl.ApplyDefaultSchedule(dl.gpu.Matmul())(mod)
    monkeypatch.setattr(reference, "_HOST_OPERATIONS", 0)
    reference.build_reference(func, _target(), tmp_path / "reference.so")
    a, b, _ = inputs = [exact_input(*one, rng) for one in _arguments(func)]
    inputs[2] = measure.poison(inputs[2])
    tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in inputs]
    tvm.runtime.load_module(str(tmp_path / "reference.so"))["main"](*tensors)
    gate, up = np.split(a.astype("float64") @ b.astype("float64").T, 2, 1)
    right = gate / (1 + np.exp(-gate)) * up
    assert is_wrong(tensors[2].numpy(), right.astype("float16")) is None


def test_only_plain_loops_are_scheduled_apart():
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("opaque"):
                v = T.axis.opaque(8, i)
                A[v] = A[v] + T.float32(1)

    assert scheduled_apart(tvm.IRModule({"main": main})) is None


@pytest.mark.parametrize(
    ("mine", "devices", "wanted"),
    [("", (0, 2), ["0", "2"]), ("3,1", (1, 0), ["1", "3"]), ("GPU-1f", (0,), ["GPU-1f"])],
)
def test_each_process_sees_one_gpu(mine, devices, wanted, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mine)
    runner = wms.Runner(devices)
    found = [one.environment["CUDA_VISIBLE_DEVICES"] for one in runner.pool.workers]
    runner.close()
    assert found == wanted
    if mine:
        with pytest.raises(warploom.WarploomError, match="There is no GPU 5"):
            wms.Runner((5,))


def test_two_devices_measure_side_by_side(built, two_devices):
    runner = wms.Runner(two_devices, timeout_sec=60)
    path, taken = str(built[0].artifact_path), _arguments(matmul(*SIZE))
    try:
        futures = [runner.submit(path, "cuda", taken) for _ in range(4)]
        assert all(one.result().seconds for one in futures)
        assert len({one.pid for one in runner.pool.workers if one.pid is not None}) == 2
    finally:
        runner.close()
