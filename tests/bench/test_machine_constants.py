"""The table from readings to constants of the cost model, and the file that warploom reads."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import pytest

from tests.bench.machine_rigs import L2_BYTES, SMS, Unexecuted
from warploom import emulator
from warploom.decide.machine import Machine
from warploom.runtime.emulator_libraries import find_libraries
from warploom.target import device_gpu
from warploom.target.limits import SM90A
from warploom.target.measured import machine_file, measured
from warploom_bench.machine import command
from warploom_bench.machine.bounds import BOUNDS, Bound, bound_of, implausible
from warploom_bench.machine.constants import CONSTANTS, Values, constants
from warploom_bench.machine.measurement import Reading, readings
from warploom_bench.machine.report import Result
from warploom_bench.machine.rig import BRIEF
from warploom_bench.machine.table import MEASUREMENTS

FACTS = {"sms": 132, "l2_bytes": 50 << 20}


@pytest.fixture(scope="module")
def whole() -> list[Reading]:
    """Readings of all cases, with random values of those that a Hopper may have."""
    rng = np.random.default_rng(8)
    found = []
    with np.errstate(all="ignore"):
        for one in MEASUREMENTS.values():
            found += readings(one, Unexecuted(rng))
    return [dataclasses.replace(one, value=_possible(one, rng)) for one in found]


def _possible(reading: Reading, rng: np.random.Generator) -> float:
    """Of GPUs of 96 and of 132 SMs."""
    bound = bound_of(reading.name, reading.case)
    few, many = (96, 132) if bound.each_sm else (1, 1)
    return float(rng.uniform(bound.low * many, bound.high * few))


def test_each_constant_has_measurements_or_a_reason():
    fields = {one.name for one in dataclasses.fields(Machine)}
    table = {one.field for one in CONSTANTS}
    assert fields - table == set(), "a constant of Machine needs a row in machine/constants.py"
    assert table - fields == set(), "machine/constants.py has rows of what Machine has not"
    assert len(CONSTANTS) == len(table)
    assert {name for one in CONSTANTS for name in one.measurements} <= {*MEASUREMENTS}


def test_constants_follow_from_the_readings_that_their_rows_name(whole):
    for row in CONSTANTS:
        if row.value is None:
            continue
        needed = [one for one in whole if one.name in row.measurements]
        values = Values(needed, FACTS)
        assert math.isfinite(row.value(values)) and row.value(values) >= 0, row.field
        for left_out in row.measurements:
            rest = Values([one for one in needed if one.name != left_out], FACTS)
            if row.field != "gpu":
                with pytest.raises((KeyError, IndexError, ValueError)):
                    row.value(rest)


def test_constants_make_a_machine(whole):
    found = constants(whole, FACTS)
    assert set(found) == {one.field for one in CONSTANTS if one.value} - {"gpu"}
    machine = dataclasses.replace(Machine(), **found)
    assert machine.clock == found["clock"]
    some = [one for one in whole if one.name == "clock"]
    assert set(constants(some, FACTS)) == {"clock", "throttle"}
    assert constants([], FACTS) == {}


def _with(whole: list[Reading], **changes: float) -> dict[str, float]:
    changed = [dataclasses.replace(one, value=changes.pop(one.key, one.value)) for one in whole]
    assert not changes, changes
    return constants(changed, FACTS)


def test_values_of_a_made_up_machine(whole):
    """Readings of a GPU with known constants give these constants."""
    widths = (8, 16, 32, 64, 96, 128, 192, 256)
    mma = {}
    for width in widths:
        for place in ("ss", "rs"):
            cycles = width * (1 + 0.02 * (1 - width / 256))
            mma[f"wgmma-f16 {place} n={width}, 2 warpgroups"] = cycles
            mma[f"wgmma-f16 {place} n={width}, 1 warpgroup"] = width / 2 + 0.5
    mma["wgmma-f16 ss n=8, 2 warpgroups"] = 36.0
    lines = {f"same-line {n} readers": 600 + 5 * n for n in (1, 2, 4, 8, 16, 32, 64)}
    parts = {0.25: 5000, 0.5: 5000, 0.6: 5000, 0.7: 5000, 0.8: 5000, 0.9: 4000, 1.0: 2000,
             1.2: 1000, 1.5: 1000, 2.0: 1000}  # fmt: skip
    found = _with(
        whole,
        **mma,
        **lines,
        **{"same-line all readers": 600 + 5 * 132},
        **{f"l2-capacity {part:.2f} of L2": rate for part, rate in parts.items()},
        **{"clock light kernel": 2000.0, "clock last windows": 1600.0},
        **{"clock-fall half of the way": 5000 * math.log(2)},
        **{"next-cta one CTA an SM": 3000.0, "partial-lines TMA, one SM, L2": 1.7},
        **{"int4-to-f16 128 threads": 50.0, "int4-to-f16 512 threads": 100.0},
        **{"epilogue float16": 2.0, "epilogue float16, transposed": 6.0},
        **{"workspace 8 KB, all SMs": 1.7, "workspace 64 KB, all SMs": 3.1},
        **{"mainloop MMAs alone": 1060.0, "mainloop MMAs and waits": 1075.0},
    )  # fmt: skip
    expected = {
        "tensor_bytes": 4096, "shared_bytes": 128, "narrow": 0.02, "same_line": 5.0,
        "l2_capacity": 0.95 * FACTS["l2_bytes"], "clock": 2000, "throttle": 0.25,
        "throttle_us": 5000, "next_cta": 1.5, "partial_lines": 0.8, "dequantise_cycles": 2.56,
        "dequantise_issue": 0.5, "element_cycles": 2.0, "transpose": 2.0,
        "part": 1.5, "stream_k": 1.5, "wait_cycles": 15.0, "issue_cycles": 0.5,
    }  # fmt: skip
    for name, value in expected.items():
        assert math.isclose(found[name], value, rel_tol=1e-6), (name, found[name])


# --- what cannot be true ----------------------------------------------------------------------


def test_every_reading_has_a_bound_and_every_bound_a_reading(whole):
    assert not [one.key for one in whole if implausible(one, 96)]
    used = {bound_of(one.name, one.case) for one in whole}
    assert {*BOUNDS} <= used, "a row of BOUNDS that no reading needs, or that comes too late"
    for name, case in (("load-latency", "moon"), ("wgmma-f16", "n=8"), ("ship", "")):
        with pytest.raises(KeyError, match=name):
            bound_of(name, case)


@pytest.mark.parametrize(
    "change", [{"low": 5.0}, {"low": -1.0}, {"why": ""}, {"measurement": "("}]
)  # fmt: skip
def test_impossible_bounds_are_refused(change):
    with pytest.raises((AssertionError, re.error)):
        Bound(**({"measurement": "a", "case": "", "low": 1.0, "high": 2.0, "why": "b"} | change))


#: What probes read on an H100 SXM which measured their own loops, or what the compiler had left.
_FAULTS = {
    "tma-bandwidth one SM, L2": 22.58, "tma-per-box 8 rows": 362.9, "load-latency DRAM": 293.9,
    "dsmem-bandwidth loads, cluster of 2, all SMs": 368.7, "overlap L2, 3 of 4 MMAs": 64.0,
    "thread-bandwidth reads, all SMs, DRAM": 3326.0, "rcp 512 threads": 45510.0,
    "wgmma-f16 ss n=256, 2 warpgroups": 128.0, "clock light kernel": 3000.0,
}  # fmt: skip


@pytest.mark.parametrize("key", _FAULTS)
def test_a_reading_that_cannot_be_true_is_told_and_gives_no_constant(whole, key):
    changed = [
        dataclasses.replace(one, value=_FAULTS[key]) if one.key == key else one for one in whole
    ]
    assert [one.key for one in changed if implausible(one, 132)] == [key]
    result = Result("GPU", 132, FACTS["l2_bytes"], tuple(changed), {}, {})
    (row,) = (one for one in result.tables().splitlines() if "implausible: not in" in one)
    name = next(one.name for one in whole if one.key == key)
    assert row.startswith(f"| {name}")
    (told,) = (one for one in result.json()["readings"] if one["implausible"])
    assert (told["name"], told["value"]) == (name, _FAULTS[key])
    lost = set(constants(whole, FACTS)) - set(result.constants)
    of = {one.field for one in CONSTANTS if name in one.measurements}
    assert lost <= of and (lost or not of), lost
    assert (result.facts() is None) == (name == "clock")


@pytest.mark.parametrize("sms", [16, 78, 132])
def test_bounds_of_all_sms_grow_with_them(sms):
    reading = Reading("tma-bandwidth", "all SMs, L2", 30.0 * sms, "bytes/cycle", 0, 1, "")
    assert not implausible(reading, sms)
    for wrong in (14.0, 129.0):
        assert "of 128 bytes" in implausible(dataclasses.replace(reading, value=wrong * sms), sms)


# --- the file ---------------------------------------------------------------------------------


class FakeDevice:
    """An unknown GPU, as its driver describes it."""

    device_name, multi_processor_count, index = "NVIDIA H903", 96, 0
    l2_cache_size_bytes, max_clock_rate = 40 << 20, 1_500_000


@pytest.fixture
def file(whole, tmp_path, monkeypatch):
    monkeypatch.delenv("WARPLOOM_MACHINE", raising=False)
    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path))
    environment = {"date": "", "gpu": {"power.limit": "500.00 W"}}
    result = Result("NVIDIA H903", 96, 40 << 20, tuple(whole), {}, environment)
    path = machine_file("NVIDIA H903")
    result.write(path)
    assert path == tmp_path / "machines" / "nvidia-h903.json"
    return path, result


def test_an_unknown_gpu_has_the_measured_facts_and_no_warning(file, recwarn):
    _, result = file
    gpu = device_gpu.gpu_of_device(FakeDevice(), SM90A)
    values = {one.key: one.value for one in result.readings}
    assert (gpu.name, gpu.sms, gpu.l2_bytes, gpu.watts) == ("NVIDIA H903", 96, 40 << 20, 500)
    assert gpu.clock == 1e6 * values["clock light kernel"]
    assert gpu.dram_bandwidth == 1e6 * values["dram-read reads"]
    assert not [one for one in recwarn if "no facts" in str(one.message)]
    assert measured("NVIDIA H903", 96).constants == result.constants


def test_the_file_has_what_people_want_to_know(file):
    path, result = file
    content = json.loads(path.read_text())
    assert content["readings"][0].keys() == {
        "name", "case", "value", "unit", "spread", "samples", "command", "implausible",
    }  # fmt: skip
    assert len(content["readings"]) == len(result.readings)
    table = result.tables()
    assert all(f"| {name}" in table for name in MEASUREMENTS)
    assert all(f"| {one.field}" in table for one in CONSTANTS if one.value and one.field != "gpu")


def test_a_file_of_another_gpu_or_slice_is_not_taken(file):
    assert measured("NVIDIA H903", 48) is None
    assert measured("NVIDIA H904", 96) is None


@pytest.mark.parametrize(
    "change",
    ["[]", "no JSON", '{"format": 99}', {"facts": None}, {"facts": {"sms": 96}},
     {"constants": {"clock": "fast"}}, {"constants": {"clock": -1}}, {"gpu": None, "format": 2}],
)  # fmt: skip
def test_a_file_of_another_kind_is_refused_with_its_name(file, change):
    path, _ = file
    content = json.loads(path.read_text())
    path.write_text(change if isinstance(change, str) else json.dumps(content | change))
    with pytest.raises(
        Exception, match=r"nvidia-h903\.json is no file of `warploom bench machine`"
    ):
        measured("NVIDIA H903", 96)


def test_the_variable_names_another_file(file, tmp_path, monkeypatch):
    path, _ = file
    other = tmp_path / "mine.json"
    path.rename(other)
    assert measured("NVIDIA H903", 96) is None
    monkeypatch.setenv("WARPLOOM_MACHINE", str(other))
    assert measured("NVIDIA H903", 96) is not None
    other.unlink()
    with pytest.raises(Exception, match=r"WARPLOOM_MACHINE is .*mine\.json, which is no file"):
        measured("NVIDIA H903", 96)


# --- the command ------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not emulator.is_enabled(), reason="a GPU takes its usual effort")
@pytest.mark.in_turn(6)
def test_the_command_measures_what_it_is_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(command, "QUICK", BRIEF)
    out = tmp_path / "machine.json"
    folder = ["--kernels", str(tmp_path / "kernels"), "--workers", "1"]
    asked = ["--only", "mbarrier", "--only", "timer-tick", "--quick"]
    assert command.main([*asked, *folder, "--json", str(out)]) == 0
    content = json.loads(out.read_text())
    assert {one["name"] for one in content["readings"]} == {"mbarrier", "timer-tick"}
    assert content["facts"] is None and not content["constants"]
    text = capsys.readouterr().out
    assert "| mbarrier" in text and str(out) in text
    assert not machine_file("anything").parent.exists()
    assert command.main([*asked[:2], *folder, "--compile-only"]) == 0
    assert (tmp_path / "kernels" / "libtvm_runtime.so").exists()


def test_a_measurement_that_fails_costs_only_itself(rng, capsys):
    rig = Unexecuted(rng)
    launch = rig.launch_row

    def broken(probe, *rest, **more):
        if probe.name == "timer":
            raise RuntimeError("CUDA: an illegal instruction\nsecond line")
        return launch(probe, *rest, **more)

    rig.launch_row = broken
    wanted = [MEASUREMENTS["timer-tick"], MEASUREMENTS["mbarrier"]]
    found, failed = command.measure(wanted, rig)
    assert {one.name for one in found} == {"mbarrier"}
    assert failed == {"timer-tick": "CUDA: an illegal instruction"}
    result = Result("GPU", SMS, L2_BYTES, tuple(found), failed, {})
    assert "timer-tick: FAILED: CUDA" in result.tables() and result.facts() is None


#: The command in a process in which ``import tvm`` fails; the emulator is in the driver's place.
_WITHOUT_TVM = """
import ctypes, importlib.util, sys

class NoTvm:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "tvm":
            raise ModuleNotFoundError(name)

find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name.split(".")[0] == "tvm" else find(name, *a)
sys.meta_path.insert(0, NoTvm())
for driver in DRIVERS:
    ctypes.CDLL(driver, ctypes.RTLD_GLOBAL)
from warploom_bench.machine import command
from warploom_bench.machine.bounds import BOUNDS, Bound, bound_of, implausible
from warploom_bench.machine.rig import BRIEF
from warploom_bench.__main__ import main
command.QUICK = BRIEF
status = main(ARGUMENTS)
assert "tvm" not in sys.modules
print(status)
"""


@pytest.mark.gpu
@pytest.mark.in_turn(6)
def test_the_command_runs_compiled_probes_without_tvm(tmp_path, run_python, monkeypatch):
    kernels, out = tmp_path / "kernels", tmp_path / "machine.json"
    asked = ["--only", "named-barrier", "--kernels", str(kernels)]
    assert command.main([*asked, "--compile-only", "--workers", "1"]) == 0
    drivers = [str(one) for one in find_libraries()] if emulator.is_enabled() else []
    arguments = ["machine", *asked, "--quick", "--json", str(out)]
    code = _WITHOUT_TVM.replace("DRIVERS", repr(drivers)).replace("ARGUMENTS", repr(arguments))
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "0", result.stdout + result.stderr
    found = json.loads(out.read_text())
    assert {one["case"] for one in found["readings"]} >= {"64 threads", "128 threads"}
