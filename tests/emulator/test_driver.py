"""Stock TVM on the emulated device: each test is a process with ``WARPLOOM_EMULATOR=1``."""

from __future__ import annotations

import pytest
import tvm

from warploom import doctor
from warploom.emulator import OPT_IN
from warploom.errors import ToolchainError
from warploom.runtime.driver import Driver, load_cuda_runtime
from warploom.runtime.emulator_libraries import find_libraries

try:
    find_libraries()
except ToolchainError as error:
    pytest.skip(str(error), allow_module_level=True)

PREAMBLE = """
import numpy as np
import tvm
import warploom  # registers itself with TVM, if the entry point has not done it
from tvm.script import tirx as T

@T.prim_func
def add_one(a: T.Buffer((1000,), "float32"), b: T.Buffer((1000,), "float32")):
    T.func_attr({"global_symbol": "add_one"})
    T.device_entry()
    block = T.cta_id([8])
    thread = T.thread_id([128])
    if block * 128 + thread < 1000:
        b[block * 128 + thread] = a[block * 128 + thread] + T.float32(1)

target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
device = tvm.cuda(0)
rng = np.random.default_rng(7)
host = rng.random(1000, dtype=np.float32)

def run(function):
    a = tvm.runtime.tensor(host, device)
    b = tvm.runtime.empty((1000,), "float32", device)
    function(a, b)
    np.testing.assert_array_equal(b.numpy(), host + np.float32(1))

def build():
    return tvm.compile(tvm.IRModule({"add_one": add_one}), target=target, tir_pipeline="tirx")
"""


@pytest.fixture
def emulated(run_python):
    """``emulated(code, NAME=value)`` runs code on the emulated device; returns its output."""

    def run(code: str, **environ: str | None):
        result = run_python(PREAMBLE + code, **{"WARPLOOM_EMULATOR": "1", **environ})
        assert result.returncode == 0, result.stderr[-3000:]
        return result

    return run


def test_device_is_there_and_says_what_it_is(emulated):
    result = emulated(
        """
assert device.exist
print(device.device_name, "|", device.compute_version, "|", device.multi_processor_count)
print(device.max_threads_per_block, device.warp_size, device.max_shared_memory_per_block)
"""
    )
    first, second = result.stdout.splitlines()
    assert first == "warploom emulator (sm_90a) | 9.0 | 132"
    assert second == "1024 32 49152"
    assert result.stderr.count("emulated device") == 1


def test_nothing_changes_without_the_variable(run_python):
    code = "import tvm, warploom.emulator as e\nprint(e.is_enabled(), tvm.cuda(0).exist)"
    result = run_python(code, WARPLOOM_EMULATOR=None)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.split()[0] == "False"
    assert "emulated" not in result.stderr


def test_kernel_of_stock_tvm_runs(emulated):
    emulated(
        """
run(build()["add_one"])
from warploom import emulator
assert emulator.is_enabled()
assert emulator.executed_instructions() > 8 * 4
"""
    )


def test_exported_library_is_loaded_again(emulated, tmp_path):
    path = tmp_path / "add_one.so"
    emulated(
        f"""
build().export_library({str(path)!r})
run(tvm.runtime.load_module({str(path)!r})["add_one"])
"""
    )
    emulated(f"run(tvm.runtime.load_module({str(path)!r})['add_one'])")


@pytest.mark.in_turn(3)
def test_nvrtc_makes_cubins_beside_the_emulator(emulated):
    """NVRTC uses the driver of the process, whatever it is, when it makes machine code."""
    emulated(
        """
from tvm.support import nvcc

with target:
    source = 'extern "C" __global__ void f(float* a) { a[threadIdx.x] = 1; }'
    for _ in range(2):
        cubin = nvcc.compile_cuda(source, target_format="cubin", compiler="nvrtc")
        assert bytes(cubin[:4]) == b"\\x7fELF"
"""
    )


def test_time_evaluator_and_streams(emulated):
    emulated(
        """
function = build()
stream = device.create_raw_stream()
device.set_raw_stream(stream)
run(function["add_one"])
device.sync(stream)
a = tvm.runtime.tensor(host, device)
b = tvm.runtime.empty((1000,), "float32", device)
result = function.mod.time_evaluator("add_one", device, number=2, repeat=2)(a, b)
assert len(result.results) == 2 and all(seconds > 0 for seconds in result.results)
"""
    )


def test_a_cubin_is_refused_with_a_reason(emulated, run_python, tmp_path):
    path = tmp_path / "cubin.so"
    result = run_python(PREAMBLE + f"build().export_library({str(path)!r})", WARPLOOM_EMULATOR=None)
    assert result.returncode == 0, result.stderr[-3000:]
    emulated(
        f"""
try:
    run(tvm.runtime.load_module({str(path)!r})["add_one"])
except Exception as error:
    assert "this module is a cubin" in str(error), error
else:
    raise AssertionError("a cubin was executed")
"""
    )


def test_gemm_is_right_under_every_seed(emulated):
    emulated(
        """
from warploom import emulator
from warploom.programs import compile_gemm

m, n, k = 200, 264, 320
gemm = compile_gemm(m, n, k)
a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
expected = a.astype(np.float64) @ b.astype(np.float64).T
inputs = [tvm.runtime.tensor(x, device) for x in (a, b)]
for seed in range(8):
    emulator.set_seed(seed)
    c = tvm.runtime.tensor(np.full((m, n), np.nan, np.float16), device)
    gemm(*inputs, c)
    np.testing.assert_allclose(c.numpy(), expected, rtol=2e-3, atol=2e-2)
"""
    )


def test_a_fault_is_an_exception_of_tvm(emulated):
    emulated(
        """
@T.prim_func
def too_far(a: T.Buffer((1000,), "float32"), b: T.Buffer((1000,), "float32")):
    T.func_attr({"global_symbol": "too_far"})
    T.device_entry()
    block = T.cta_id([8])
    thread = T.thread_id([128])
    b[block * 128 + thread] = a[block * 128 + thread]

module = tvm.compile(tvm.IRModule({"too_far": too_far}), target=target, tir_pipeline="tirx")
try:
    run(module["too_far"])
except Exception as error:
    text = str(error)
    assert "lie in no allocation" in text and "CTA (7, 0, 0)" in text, text
    assert "has 4000 bytes" in text and "starts at its offset 4000" in text, text
else:
    raise AssertionError("an access out of bounds was not noticed")
run(build()["add_one"])
"""
    )


def test_an_endless_loop_ends(emulated):
    emulated(
        """
from warploom import emulator

emulator.set_instruction_limit(10)
try:
    run(build()["add_one"])
except Exception as error:
    assert "limit of instructions" in str(error), error
else:
    raise AssertionError("the limit was not kept")
"""
    )


def test_a_driver_that_came_first_is_reported_aloud(monkeypatch):
    """Whoever asked for the emulator is told that kernels would run on the machine's GPU."""
    monkeypatch.setitem(tvm.base._LOADED_LIBS, "tvm_runtime_cuda", object())
    monkeypatch.setattr("warploom.runtime.driver._emulator_was_preloaded", lambda: False)
    with pytest.warns(RuntimeWarning, match="LD_PRELOAD"):
        loaded = load_cuda_runtime({OPT_IN: "1"})
    assert loaded.kind == "none" and "LD_PRELOAD" in loaded.detail


def test_seed_and_limit_come_from_the_environment(emulated):
    emulated(
        """
try:
    run(build()["add_one"])
except Exception as error:
    assert "limit of instructions" in str(error), error
else:
    raise AssertionError("the limit was not kept")
""",
        WARPLOOM_EMULATOR_INSTRUCTIONS="10",
    )


def missing():
    raise ToolchainError("libwarploom_emulator.so is not there; build it.")


@pytest.mark.parametrize(
    ("driver", "requested", "find", "state", "finding"),
    [
        (None, False, missing, "warn", "not built"),
        (Driver("no-device", "x"), False, find_libraries, "ok", "built"),
        (Driver("none", "x"), True, find_libraries, "warn", "not in use"),
        (Driver("emulator", "x"), True, find_libraries, "warn", "in use"),
    ],
)
def test_doctor_says_whether_it_is_in_use(driver, requested, find, state, finding):
    row = doctor.check_emulator(driver, requested, find)
    assert row.state == state
    assert row.finding.startswith(finding)
    if driver is not None and driver.kind == "emulator":
        assert doctor.check_driver(driver).state == "ok"
