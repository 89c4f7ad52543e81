"""Benchmark protocols and statistics, with a device whose time is known exactly."""

import collections
import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.timing import (
    Sampling,
    Statistics,
    burst,
    host_cost,
    measure,
    rotated,
    sustained,
)


@dataclass
class FakeDevice:
    """Runs kernels of given cost; its clock also advances while it idles.

    ``slowdown(now)`` multiplies the cost of whatever runs at time ``now``.
    """

    costs: dict[str, float]
    slowdown: object = staticmethod(lambda now: 1.0)
    now: float = 0.0
    log: list[tuple] = field(default_factory=list)

    def launch(self, name):
        def run(index):
            self.now += self.costs[name] * self.slowdown(self.now)
            self.log.append((name, index))

        return run

    def launches(self):
        return {name: self.launch(name) for name in self.costs}

    def idle(self, seconds):
        self.now += seconds
        self.log.append(("idle", seconds))

    def elapsed(self, warm, timed):
        warm()
        start = self.now
        self.log.append(("start",))
        timed()
        return self.now - start

    def conditions(self):
        return 2000 - len(self.log), None


times = st.floats(1e-6, 1e-2)


@given(
    costs=st.lists(times, min_size=1, max_size=4),
    rounds=st.integers(1, 6),
    launches=st.integers(1, 5),
    warm=st.integers(0, 3),
    executions=st.integers(1, 8),
    sets=st.integers(1, 7),
)
def test_every_sample_is_the_cost_of_one_execution(costs, rounds, launches, warm, executions, sets):
    names = [f"k{i}" for i in range(len(costs))]
    device = FakeDevice(dict(zip(names, costs, strict=True)))
    sampling = Sampling("test", rounds, 0.05, launches, warm)
    result = measure(device.launches(), device, sampling, sets, executions)
    assert list(result) == names
    for name, cost in device.costs.items():
        assert len(result[name].samples) == rounds
        assert result[name].samples == pytest.approx([cost / executions] * rounds, rel=1e-6)


def test_burst_idles_and_warms_before_each_sample_and_rotates_inputs():
    device = FakeDevice({"a": 1e-4, "b": 2e-4})
    measure(device.launches(), device, burst(rounds=3), input_sets=4)
    expected = []
    sets = [i % 4 for i in range(12)]
    for name in ["a", "b", "b", "a", "a", "b"]:  # the order rotates from round to round
        expected += [("idle", 0.05), (name, sets.pop(0)), ("start",), (name, sets.pop(0))]
    assert device.log == expected


def test_inputs_rotate_across_competitors():
    device = FakeDevice({"a": 1e-4, "b": 2e-4, "c": 1e-4})
    measure(device.launches(), device, burst(rounds=5), input_sets=5)
    used = [entry[1] for entry in device.log if entry[0] in device.costs]
    assert len(used) == 30
    assert used == [position % 5 for position in range(30)]


def test_a_slow_drift_does_not_favour_a_competitor():
    """A device that gets 30 % slower during the measurement: equal kernels stay equal."""
    device = FakeDevice({"a": 1e-3, "b": 1e-3}, slowdown=lambda now: 1 + 0.3 * min(now / 1.5, 1))
    result = measure(device.launches(), device, burst(rounds=15), input_sets=2)
    assert result["a"].max / result["a"].min > 1.2
    assert result["a"].median / result["b"].median == pytest.approx(1, abs=0.02)


@given(seconds=times)
def test_sustained_load_fills_its_time(seconds):
    sampling = sustained(seconds, seconds=0.2)
    assert sampling.idle_seconds == 0 and sampling.warm_launches == sampling.launches
    assert abs(sampling.launches * seconds - 0.2) <= seconds / 2 + 1e-12


@given(samples=st.lists(times, min_size=1, max_size=30))
def test_statistics_are_ordered(samples):
    result = Statistics(tuple(samples))
    assert result.min <= result.median <= result.max
    assert sum(s <= result.median for s in samples) * 2 >= len(samples)


@pytest.mark.parametrize("samples", [(), (0.0,), (-1.0,), (math.nan,)])
def test_statistics_refuse_impossible_times(samples):
    with pytest.raises(ValueError, match="positive"):
        Statistics(samples)


@pytest.mark.parametrize("changes", [{"rounds": 0}, {"launches": 0}, {"warm_launches": -1}])
def test_sampling_refuses_empty_protocols(changes):
    legal = {"name": "x", "rounds": 1, "idle_seconds": 0.0, "launches": 1, "warm_launches": 0}
    with pytest.raises(ValueError, match="at least one"):
        Sampling(**(legal | changes))


@given(names=st.lists(st.text(max_size=2), min_size=1, max_size=5), by=st.integers(0, 20))
def test_rotation_keeps_all(names, by):
    assert collections.Counter(rotated(names, by)) == collections.Counter(names)
    assert rotated(names, by)[0] == names[by % len(names)]


def test_conditions_are_those_after_each_sample():
    device = FakeDevice({"a": 1e-4, "b": 1e-4})
    result = measure(device.launches(), device, burst(rounds=3), input_sets=1)
    clocks = sorted([*result["a"].mhz, *result["b"].mhz], reverse=True)
    assert clocks == [2000 - 4 * number for number in range(1, 7)], "4 events a sample"
    assert result["a"].watts == (), "what is unknown is left out"


def test_host_cost_excludes_waiting():
    device = FakeDevice({"a": 5e-6})
    launch = device.launch("a")
    cost = host_cost(launch, lambda: device.idle(1.0), launches=10, clock=lambda: device.now)
    assert cost == pytest.approx(5e-6)
