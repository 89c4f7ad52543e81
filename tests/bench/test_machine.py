"""``warploom bench machine``: every probe runs on the emulator, which checks it, and is right.

Times mean nothing here.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest
import tvm

import warploom
from tests.bench.machine_rigs import SMS, Unexecuted, emulated
from warploom import emulator
from warploom.errors import WarploomError
from warploom.target import cuda_target
from warploom_bench.machine import atomics, clusters, copies, mainloop, mma, stores
from warploom_bench.machine.device_code import FACTOR, SUMMAND
from warploom_bench.machine.mainloop import order
from warploom_bench.machine.measurement import readings
from warploom_bench.machine.probe import compile_probe, prim_func
from warploom_bench.machine.rig import BRIEF, sum_of_words
from warploom_bench.machine.table import MEASUREMENTS, PROBES, kernel_of


@pytest.mark.gpu
@pytest.mark.parametrize("name", MEASUREMENTS)
@pytest.mark.some(6)
def test_every_measurement_runs_and_its_results_are_right(name):
    found = readings(MEASUREMENTS[name], emulated())
    assert all(np.isfinite(one.value) and np.isfinite(one.spread) for one in found)
    assert all(one.samples >= 1 and one.name == name for one in found)


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.some(6)
def test_no_probe_is_slowed_by_its_own_code(name):
    """No spills, and no wgmma that ptxas serialises: either would be measured in its place."""
    report = str(warploom.compile_report(compile_probe(PROBES[name])))
    assert "problems: none found" in report and " 0/0 B" in report, report


def test_all_measurements_have_different_cases_and_use_their_probes(rng):
    for one in MEASUREMENTS.values():
        rig = Unexecuted(rng)
        with np.errstate(all="ignore"):
            found = readings(one, rig)
        assert {reading.unit for reading in found} == {one.unit}
        assert rig.probes - {"fill"} <= {probe.name for probe in one.probes} | {"copy-64"}, one.name
        assert {probe.name for probe in one.probes} <= rig.probes, one.name
        assert all(f"--only {one.name}" in reading.command for reading in found)


@pytest.mark.parametrize("sms", [2, 16, 78, 114, 148])
def test_measurements_are_made_for_other_gpus(sms, rng):
    with np.errstate(all="ignore"):
        for one in MEASUREMENTS.values():
            if not one.name.startswith("wgmma"):
                assert readings(one, Unexecuted(rng, sms))


def test_sums_of_words(rng):
    for _ in range(20):
        first, count = (int(one) for one in rng.integers(0, 5000, 2))
        words = (np.arange(first, first + count, dtype=np.uint64) * FACTOR + SUMMAND) % 2**32
        assert sum_of_words(first, count) == int(words.sum()) % 2**32


def test_the_order_of_a_norm(rng):
    for _ in range(50):
        a, b = rng.uniform(1, 100, 2)
        p = rng.uniform(1.1, 8)
        together = (a**p + b**p) ** (1 / p)
        assert math.isclose(order(a, b, together), p, rel_tol=1e-6) or max(a, b) > 20 * min(a, b)
    assert order(3, 4, 7) == order(3, 4, 9) == 1
    assert order(3, 4, 4) == order(3, 4, 3.5) == order(0, 4, 5) > 50


@pytest.mark.parametrize(
    ("rates", "after"),
    [
        ([10] * 8, 0), ([9, 10, 10, 10, 10], 0), ([10, 10, 9, 8, 8, 8, 8, 8], 200),
        ([10, 8, 6, 5, 4, 4, 4, 4], 300), ([3, 10, 9, 7, 6, 6, 6], 300),
    ],
)  # fmt: skip
def test_when_a_clock_falls(rates, after):
    """Half of the way down, counted from the moment when the clock was highest."""
    times = [100.0 * at for at in range(len(rates))]
    assert mma.half_time(times, list(map(float, rates))) in (after, after - 100)


@pytest.mark.parametrize(("rates", "after"), [([6, 5, 5, 5], 100), ([9, 8, 7, 5, 5, 5], 300)])
def test_a_clock_may_fall_before_the_first_window_ends(rates, after):
    """A light kernel's clock of 10 counts as the beginning, at the time 0."""
    times = [100.0 * (1 + at) for at in range(len(rates))]
    assert mma.half_time(times, list(map(float, rates)), light=10.0) == after


def test_early_probes_are_launched_so():
    """Programmatic launches have a tag, which TVM's runtime reads."""
    target = cuda_target("h200").with_host("c")
    for probe in PROBES.values():
        if probe.name.startswith("empty"):
            passes, _, _ = tvm.tirx.get_tir_pipeline("warploom")
            with target:
                module = tvm.IRModule({"main": prim_func(probe)})
                found = passes(tvm.tirx.transform.BindTarget(target)(module))
            tags = [str(one.attrs.get("tirx.kernel_launch_params", "")) for one in
                    found.functions.values()]  # fmt: skip
            early = any("use_programtic_dependent_launch" in one for one in tags)
            assert early == probe.early, (probe.name, tags)
            clusters = any("clusterCtaIdx" in one for one in tags)
            assert clusters == (probe.cluster > 1), (probe.name, tags)


# --- what a wrong probe does ------------------------------------------------------------------


def _mutated(old: str, new: str):
    def change(probe):
        if old not in probe.source:
            return probe
        return dataclasses.replace(probe, source=probe.source.replace(old, new))

    return change


def _copy(rig):
    copies.checked(rig, copies.Plan(3, 3, places=2), 2)


def _stages(rig):
    """Stages of several boxes, the last of which begin in the set and end behind it."""
    copies.checked(rig, copies.Plan(5, 7, places=2, rows=8, together=3, spread=2), 2)


def _store(rig):
    stores._check(rig, stores.ALIGNED, stores.WRITE | stores.PUBLISH | stores.TMA)


def _cluster(mode):
    return lambda rig: clusters._measure(rig, mode, 2, 3, copies=2)


def _mma(rig):
    mma.check(rig, mma.KINDS["f16"], mma.PROBES["f16", False, 1], 64)


def _loop(what):
    return lambda rig: mainloop.check(rig, what, 4)


def _workspace(rig):
    for _ in atomics.workspace(rig):
        pass


#: Where a probe runs, a rule of synchronisation that its mutant breaks, what says so.
MUTANTS = {
    "a box is read before it is there": (
        _copy, "mb_wait(barriers + 8 * at, s / places % 2);", "",
        "uninitialised read|data race",
    ),
    "a place is filled while it is read": (
        _copy, "words[i];\n      __syncthreads();", "words[i];", "data race",
    ),
    "a chunk is stored before it is written": (
        _store, "      mb_fence_async();\n      mb_named(1, 128);", "",
        "uninitialised read|data race|missing proxy fence",
    ),
    "a chunk is written while it is stored": (_store, "mb_wait_read<1>();", "", "data race"),
    "the next copy comes before the last is counted": (
        _cluster(clusters.COPY),
        "mb_wait(own, s & 1);\n      // Nobody may send the next copies while this CTA may read "
        "the last ones.\n      mb_cluster_sync();", "", "uninitialised read|data race",
    ),
    "memory of a CTA is read before it is written": (
        _cluster(clusters.READ), "  __syncthreads();\n  mb_cluster_sync();\n  unsigned sum = 0;",
        "  __syncthreads();\n  unsigned sum = 0;", "CTA not started",
    ),
    "accumulators are used before they are there": (
        _mma, 'asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");', "",
        "wgmma register race",
    ),
    "a stage is loaded while it is read": (
        _loop(1 | 2), "if (s >= 4) mb_wait(mb_address(empty + at), s / 4 - 1 & 1);", "",
        "data race|0 of 1 arrivals are pending",
    ),
    "a stage is given back before its MMAs have ended": (
        _loop(1 | 2), "t == 0 && s > 0) {\n        mb_arrive(mb_address(empty + (s - 1) % 4));",
        "t == 0) {\n        mb_arrive(mb_address(empty + s % 4));", "data race",
    ),
    "a consumer loads while the other one reads": (
        _loop(1 | 2 | 4), "mb_named(1, 256);", "", "data race",
    ),
    "MMAs read what threads have just written": (
        _loop(2), "mb_fence_async();", "", "proxy fence",
    ),
    "a tile is read although its flag says nothing of it": (
        _workspace, "ld.acquire.gpu.global.s32", "ld.relaxed.gpu.global.s32", "data race",
    ),
    "a flag says that a tile is there, which is not": (
        _workspace, "{fence.acq_rel.gpu; st.release.gpu.global.s32", "{st.relaxed.gpu.global.s32",
        "data race",
    ),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.skipif(not emulator.is_enabled(), reason="races are found by the emulator")
@pytest.mark.parametrize("name", MUTANTS)
def test_broken_synchronisation_is_reported_and_its_twin_is_clean(name):
    run, old, new, says = MUTANTS[name]
    run(emulated())
    with pytest.raises(Exception) as report:
        run(emulated(_mutated(old, new)))
    # What follows is the source, in which every word may be found.
    first = str(report.value).splitlines()[0]
    assert re.search(says, first), first


#: A wrong result of a probe: where, and what is changed in its source.
WRONG = {
    "sums of boxes": (_copy, "sum += words[i]", "sum += words[0]"),
    "which boxes": (_copy, "row += more;", "row += 0;"),
    "boxes of a stage": (_stages, "at += inner;", ""),
    "copies to a neighbour": (_cluster(clusters.COPY), "[8192 + i]", "[8192]"),
    "chunks": (_store, "column = piece % 8 ^ row % 8;", "column = piece % 8;"),
    "sums in a cluster": (_cluster(clusters.REDUCE), "w.x += more.x;", "w.x = more.x;"),
    "neighbours": (_cluster(clusters.READ), "next = (rank + 1) % size", "next = rank"),
    "MMAs": (_mma, "a + 2 * k, b + 2 * k", "a + 2 * k, b"),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", WRONG)
def test_a_probe_with_another_result_is_refused(name):
    run, old, new = WRONG[name]
    with pytest.raises(WarploomError, match=r"The probe of .* is wrong: its result \(.*counts\."):
        run(emulated(_mutated(old, new)))


@pytest.mark.parametrize(
    "change",
    [
        {"threads": 100}, {"cluster": 3}, {"shared": 1 << 20}, {"box": 300}, {"pitch": 136},
        {"source": "int x;"},
    ],
)  # fmt: skip
def test_impossible_probes_are_refused(change):
    with pytest.raises(AssertionError):
        dataclasses.replace(PROBES["empty"], **change)


def test_probes_have_different_kernels():
    keys = [kernel_of(probe).key for probe in PROBES.values()]
    assert len(set(keys)) == len(keys) == len(PROBES)
    changed = dataclasses.replace(PROBES["empty"], threads=64)
    assert changed.digest != PROBES["empty"].digest
    for one, other in itertools.combinations(PROBES.values(), 2):
        assert one.digest != other.digest


def test_names_can_be_typed():
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in MEASUREMENTS)
    assert BRIEF.repeats >= 2 and SMS % 2 == 0
