"""How the emulator is switched on: in a process, for a script, where there is a driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from warploom.errors import ToolchainError
from warploom.runtime import emulator_libraries as libraries
from warploom.runtime import native

try:
    libraries.find_libraries()
except ToolchainError as error:
    pytest.skip(str(error), allow_module_level=True)

KERNEL = """
import numpy as np
import tvm
import warploom
from tvm.script import tirx as T
from warploom import emulator
from warploom.target import cuda_target

@T.prim_func
def double(a: T.Buffer((128,), "float32"), b: T.Buffer((128,), "float32")):
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([128])
    b[thread] = a[thread] * T.float32(2)

def build():
    return tvm.compile(tvm.IRModule({"main": double}), cuda_target("h200"), tir_pipeline="tirx")

def run():
    a = np.arange(128, dtype=np.float32)
    a, b = (tvm.runtime.tensor(x, tvm.cuda(0)) for x in (a, np.zeros_like(a)))
    build()(a, b)
    np.testing.assert_array_equal(b.numpy(), 2 * a.numpy())
"""


@pytest.fixture
def fake_driver(tmp_path):
    """A folder with a ``libcuda.so.1``, as a machine with a driver has one."""
    folder = tmp_path / "driver"
    folder.mkdir()
    shutil.copy(native.find_library("warploom_nodriver"), folder / "libcuda.so.1")
    return str(folder)


@pytest.fixture
def emulate(tmp_path):
    """``emulate(code, *arguments, **environ)`` is ``warploom emulate`` of a script."""

    def run(code: str, *arguments: str, options: tuple[str, ...] = (), **environ: str):
        script = tmp_path / "kernel.py"
        script.write_text(code)
        command = "import sys\nfrom warploom.cli import main\nsys.exit(main(sys.argv[1:]))"
        inherited = {k: v for k, v in os.environ.items() if k != libraries.OPT_IN}
        return subprocess.run(
            [sys.executable, "-c", command, "emulate", *options, str(script), *arguments],
            env={**inherited, **environ}, capture_output=True, text=True, timeout=1800,
        )  # fmt: skip

    return run


def test_enabled_after_import(run_python):
    result = run_python(
        KERNEL + "assert not tvm.cuda(0).exist\nemulator.enable()\nemulator.enable()\nrun()"
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stderr.count("emulated device") == 1


def test_not_enabled_after_a_compilation_without_it(run_python):
    result = run_python(KERNEL + "build()\nemulator.enable()")
    assert result.returncode == 1
    assert "enable it before the first compilation" in result.stderr.splitlines()[-1]


def test_not_enabled_beside_a_driver(run_python, fake_driver):
    result = run_python(KERNEL + "emulator.enable()", LD_LIBRARY_PATH=fake_driver)
    assert result.returncode == 1
    assert "cannot take the place of the CUDA driver" in result.stderr.splitlines()[-1]
    assert "warploom emulate" in result.stderr.splitlines()[-1]


def test_programs_run_beside_a_driver(run_python, fake_driver):
    """The child process has the emulator preloaded; this one keeps the driver."""
    code = """
a = np.arange(128, dtype=np.float32)
np.testing.assert_array_equal(emulator.run(double, [a, np.zeros_like(a)]).outputs[1], 2 * a)
print(warploom.plugin.register().kind)
"""
    result = run_python(KERNEL + code, LD_LIBRARY_PATH=fake_driver)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.split() == ["system"]


@pytest.mark.parametrize("beside_a_driver", [False, True])
@pytest.mark.some(1)
def test_a_script_runs_on_the_emulator(emulate, fake_driver, beside_a_driver):
    code = KERNEL + "import sys\nrun()\nprint(__name__, *sys.argv[1:], tvm.cuda(0).device_name)"
    environ = {"LD_LIBRARY_PATH": fake_driver} if beside_a_driver else {}
    result = emulate(code, "a", "--b", **environ)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout == "__main__ a --b warploom emulator (sm_90a)\n"


def test_options_of_the_command(emulate):
    code = "from warploom.emulator import settings\n" + KERNEL
    code += "print(tvm.cuda(0).device_name, settings.current().seed)"
    result = emulate(code, options=("--arch", "sm_100a", "--seed", "7"))
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout == "warploom emulator (sm_100a) 7\n"


@pytest.mark.in_turn(3)
def test_the_exit_status_is_that_of_the_script(emulate):
    assert emulate("import sys; sys.exit(3)").returncode == 3
    assert emulate("raise ValueError('no')").returncode == 1


def test_ptx_is_listed_or_refused(tmp_path, capsys):
    from tests.emulator.run_ptx import HEADER, kernel
    from warploom.cli import main

    good, bad = tmp_path / "good.ptx", tmp_path / "bad.ptx"
    good.write_text(HEADER.format(arch="sm_90a") + kernel(2, ""))
    bad.write_text(HEADER.format(arch="sm_90a") + kernel(0, "add.s33 %r1, %r1, %r1;"))
    assert main(["emulate", str(good)]) == 0
    assert capsys.readouterr().out == "kernel: can be executed; parameters of 8, 8 bytes\n"
    assert main(["emulate", str(bad)]) == 2
    assert "add.s33" in capsys.readouterr().err
    assert main(["emulate", str(tmp_path / "none.py")]) == 2
    assert "There is no file" in capsys.readouterr().err


@pytest.mark.parametrize("setting", [None, "0"])
@pytest.mark.some(1)
def test_the_demo_uses_it_where_there_is_no_driver(run_python, setting):
    code = (
        "from warploom import plugin, demo\nprint(plugin.register().kind)\ndemo.main(['-m', '64'])"
    )
    result = run_python(code, WARPLOOM_EMULATOR=setting)
    assert result.returncode == 0, result.stderr[-3000:]
    kind, *lines = result.stdout.splitlines()
    if kind != "no-device":
        pytest.skip("this machine has a CUDA driver")
    text = " ".join(lines)
    assert "64 x 512 x 512" in text if setting is None else "64 x 4096 x 4096" in text
    assert ("warploom emulator" in text) == (setting is None)
    assert ("Nothing was executed" in text) == (setting is not None)
    assert "TFLOP/s" not in text


def test_nothing_is_measured_on_it(run_python):
    code = "from warploom_bench.__main__ import main\nprint(main(['gemm']))"
    result = run_python(code, WARPLOOM_EMULATOR="1")
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.split() == ["3"]
    assert "an emulated device, whose times mean nothing" in result.stderr
