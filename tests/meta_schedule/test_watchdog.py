"""How long a candidate may take, and when it is tried again; with no process and no GPU."""

from __future__ import annotations

import pytest

from warploom import meta_schedule as wms
from warploom.meta_schedule import runner as runners
from warploom.meta_schedule.measure import Measurement, prepare, run_candidate
from warploom.meta_schedule.processes import WorkerEnded, WorkerLost

TASK, OTHER = (((64, 64), "float16"),), (((16, 64), "float16"),)
CALL = ("kernel.so", "cuda", 0, TASK)


class _Clock:
    """Time that passes only where a worker says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class _Worker:
    """Does what it is told to, call by call, and keeps what it was asked."""

    def __init__(self, *outcomes) -> None:
        self.outcomes, self.asked = list(outcomes), []

    def call(self, function, *arguments, timeout: float, once: bool = False):
        self.asked.append((function, timeout, once))
        if function is prepare:
            return None
        found = self.outcomes.pop(0)
        if isinstance(found, Exception):
            raise found
        runners.time.now += found
        return Measurement((1e-6,), None)


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.setattr(runners.emulator, "is_enabled", lambda: False)
    monkeypatch.setattr(runners, "time", _Clock())
    made = wms.Runner(timeout_sec=30.0, least_sec=0.5)
    yield made._inst
    made.close()


def test_later_candidates_have_less_time(runner):
    assert runner._limit(TASK) == 30.0
    worker = _Worker(0.01, 0.1, 0.01)
    for _ in range(3):
        assert runner._trial(worker, CALL).seconds == (1e-6,)
    limits = [timeout for function, timeout, _ in worker.asked if function is run_candidate]
    assert limits[:2] == [30.0, 0.5], "ten times the first, but not less than half a second"
    assert limits[2] == pytest.approx(1.0), "ten times as long as the slowest"
    assert runner._limit(OTHER) == 30.0, "another task"
    assert [timeout for function, timeout, _ in worker.asked if function is prepare] == [30.0] * 3


def test_no_candidate_has_more_time_than_the_first(runner):
    runner._slowest[TASK] = 20.0
    assert runner._limit(TASK) == 30.0


def test_only_a_process_that_ends_is_tried_again(runner):
    worker = _Worker(WorkerEnded("killed"), WorkerEnded("killed"), 0.0)
    assert runner._trial(worker, CALL).seconds
    asked = [function for function, _, _ in worker.asked]
    assert asked == [prepare, run_candidate] * 3, "a new process must be prepared"
    assert all(once for function, _, once in worker.asked if function is run_candidate)
    with pytest.raises(WorkerEnded):
        runner._trial(_Worker(*(WorkerEnded("it crashes") for _ in range(3))), CALL)
    hanging = _Worker(WorkerLost("it took more than 2 s"), 0.0)
    with pytest.raises(WorkerLost, match="more than 2 s"):
        runner._trial(hanging, CALL)
    assert len(hanging.asked) == 2


def test_on_the_emulator_all_have_the_same_time(monkeypatch):
    monkeypatch.setattr(runners.emulator, "is_enabled", lambda: True)
    made = wms.Runner(timeout_sec=30.0)
    made._inst._slowest[TASK] = 0.001
    assert made._inst._limit(TASK) == 30.0
    made.close()
