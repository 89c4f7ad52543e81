"""``warploom.do_bench``, with the emulator's events and graphs in the place of a GPU's."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import tvm

import warploom
from tests.language.test_jit import copy_program
from warploom import emulator
from warploom.errors import ArgumentError, EmulatedTimeWarning
from warploom.meta_schedule import do_bench as module
from warploom.meta_schedule import measure, place

pytestmark = pytest.mark.gpu

needs_emulator = pytest.mark.skipif(
    not emulator.is_enabled(), reason="only the emulator's times mean nothing"
)


@pytest.fixture
def tensors(rng):
    a = rng.standard_normal((16, 32)).astype("float32")
    device = tvm.cuda(0)
    return [tvm.runtime.tensor(each, device) for each in (a, np.full_like(a, np.nan))]


@pytest.fixture
def timed(monkeypatch):
    """The emulator's times are taken for those of a GPU, of few short launches."""
    monkeypatch.setattr(module, "is_enabled", lambda: False)
    monkeypatch.setattr(module, "_SAMPLES", (2, 3))
    monkeypatch.setattr(measure, "ROTATING_BYTES", 3 * 2 * 16 * 32 * 4)
    monkeypatch.setattr(module, "ROTATING_BYTES", 1 << 12)
    monkeypatch.setattr(place, "_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(place, "_GRAPH_EXECUTIONS", 4)


@needs_emulator
def test_the_emulator_runs_once_and_says_that_times_mean_nothing():
    calls = []
    with pytest.warns(EmulatedTimeWarning, match="its time means nothing for a GPU") as caught:
        found = warploom.do_bench(calls.append, 3, quantiles=(0.2, 0.5))
    assert calls == [3] and len(found) == 2 and found[0] == found[1] > 0
    assert caught[0].filename == __file__


@pytest.mark.parametrize("graph", [False, True])
def test_arguments_take_turns(graph, tensors, timed, monkeypatch):
    monkeypatch.setattr(place, "GRAPH_SECONDS", float("inf") if graph else 0.0)
    kernel, used = warploom.jit(copy_program(16)), []

    def observed(*arguments):
        used.append([each.data_ptr() for each in arguments])
        kernel(*arguments)

    found = warploom.do_bench(observed, *tensors, rep=1e-3, return_mode="all")
    assert len(found) == 2 and all(each > 0 for each in found)
    sets = {tuple(pointers) for pointers in used}
    assert len(sets) == 3, "three sets of arguments exceed the L2 cache"
    assert len({pointer for each in sets for pointer in each}) == 6
    assert [one.data_ptr() for one in tensors] == used[0]
    np.testing.assert_array_equal(tensors[1].numpy(), tensors[0].numpy() + 1)


def test_results_of_a_graph_stay(tensors, timed, monkeypatch):
    monkeypatch.setattr(place, "GRAPH_SECONDS", float("inf"))
    monkeypatch.setattr(module, "GRAPH_SECONDS", float("inf"))
    kernel, results, alive = warploom.jit(copy_program(16), out_idx=1), [], []
    replay = place.LocalPlace._in_graph

    def in_graph(self, launch, sets, executions):
        first = len(results)
        made = replay(self, launch, sets, executions)
        alive.extend(each() is not None for each in results[first:])
        return made

    def observed(a):
        found = {kernel(a)}  # unlike a tensor, a set has weak references
        results.append(weakref.ref(found))
        return found

    monkeypatch.setattr(place.LocalPlace, "_in_graph", in_graph)
    assert warploom.do_bench(observed, tensors[0], rep=0.0) > 0
    assert len(alive) >= 4 and all(alive)


def test_a_closure_runs_behind_an_overwritten_cache(tensors, timed, monkeypatch):
    events = []
    copy_half = place.CudaTimer.copy_half

    def observed(timer, buffer):
        events.append("clear")
        copy_half(timer, buffer)

    monkeypatch.setattr(place.CudaTimer, "copy_half", observed)
    kernel = warploom.jit(copy_program(16))

    def closure():
        events.append("run")
        kernel(*tensors)

    assert warploom.do_bench(closure, warmup=0, rep=0.0, return_mode="min") > 0
    assert events[-4:] == ["clear", "run"] * 2
    np.testing.assert_array_equal(tensors[1].numpy(), tensors[0].numpy() + 1)


@pytest.mark.hardware
@pytest.mark.parametrize("of_torch", [False, True], ids=["tvm", "pytorch"])
def test_times_of_a_gpu(of_torch, tensors):
    if of_torch:
        torch = pytest.importorskip("torch")
        tensors = [torch.from_numpy(each.numpy()).cuda() for each in tensors]
    kernel = warploom.jit(copy_program(16), out_idx=1)
    for arguments in (tensors, tensors[:1]):
        fast, slow = warploom.do_bench(kernel, *arguments, quantiles=(0, 1))
        assert 0 < fast <= slow < 1e3
        assert warploom.do_bench(lambda given=arguments: kernel(*given)) > 0


@pytest.mark.parametrize(
    ("mode", "right"), [("median", 2.0), ("mean", 3.0), ("min", 1.0), ("max", 6.0)]
)
def test_statistics_are_milliseconds(mode, right, monkeypatch):
    monkeypatch.setattr(module, "is_enabled", lambda: False)
    monkeypatch.setattr(module, "_sample", lambda *_: [0.002, 0.001, 0.006])
    assert warploom.do_bench(print, return_mode=mode) == pytest.approx(right)
    assert warploom.do_bench(print, quantiles=[0, 1]) == pytest.approx([1.0, 6.0])
    assert warploom.do_bench(print, return_mode="all") == pytest.approx([2.0, 1.0, 6.0])


def test_what_is_not_known_is_refused(timed):
    with pytest.raises(ArgumentError, match="return_mode is 'best'; allowed are median, mean"):
        warploom.do_bench(print, return_mode="best")
    with pytest.raises(ArgumentError, match=r"quantiles are \(50,\); allowed are .* 0 to 1"):
        warploom.do_bench(print, quantiles=[50])
    with pytest.raises(ArgumentError, match="argument 0 is a str"):
        warploom.do_bench(print, "text")
