"""``warploom doctor``: every check by faking what it looks at, and the command on this machine."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
from pathlib import Path

import pytest

from warploom import doctor, doctor_checks
from warploom._version import PIP_FIX
from warploom.doctor_checks import Device, Row
from warploom.errors import ToolchainError
from warploom.runtime.driver import Driver
from warploom.runtime.toolchain import Headers, Tool, Toolchain

NVRTC = Tool("nvrtc", Path("/x/libnvrtc.so.13"), "13.5.37")
NVCC = Tool("nvcc", Path("/x/bin/nvcc"), "13.0.88")
HEADERS = Headers(Path("/x/include"), Path("/x/include/cccl"), "13.5", "3.5.0")


def _toolchain(mode="nvrtc", nvrtc=NVRTC, nvcc=NVCC, headers=HEADERS) -> Toolchain:
    return Toolchain(mode, nvrtc, nvcc, ptxas=None, nvdisasm=None, headers=headers)


@pytest.mark.parametrize(
    ("mode", "nvrtc", "nvcc", "headers"),
    list(itertools.product(("nvrtc", "nvcc"), (NVRTC, None), (NVCC, None), (HEADERS, None))),
)
def test_work_is_possible_if_the_chosen_compiler_has_what_it_needs(mode, nvrtc, nvcc, headers):
    toolchain = _toolchain(mode, nvrtc, nvcc, headers)
    rows = [doctor_checks.check_compiler(toolchain), doctor_checks.check_headers(toolchain)]
    possible = nvcc is not None if mode == "nvcc" else nvrtc is not None and headers is not None
    assert doctor.exit_status(rows) == (0 if possible else 1)


def test_distributions_that_bring_the_same_count():
    def version_of(name):
        if name != "xgboost-cpu":
            raise importlib.metadata.PackageNotFoundError(name)
        return "3.1"

    options = {"needed": False, "version_of": version_of, "install": "'warploom[tune]'"}
    row = doctor_checks.check_distribution("xgboost", others=("xgboost-cpu",), **options)
    assert (row.name, row.state, row.finding) == ("xgboost", "ok", "3.1 (xgboost-cpu)")
    row = doctor_checks.check_distribution("xgboost", **options)
    assert (row.state, row.fix) == ("warn", "Run: pip install 'warploom[tune]'")


def test_the_cache_is_shown_with_size_and_rights(tmp_path):
    folder = tmp_path / "cache"
    environ = {"WARPLOOM_CACHE_DIR": str(folder)}
    row = doctor_checks.check_cache(environ)
    assert (row.state, row.finding) == ("ok", f"{folder}, not there yet")
    (folder / "inner").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    for name in ("a", "inner/b"):
        (folder / name).write_bytes(b"x" * (1 << 20))
    row = doctor_checks.check_cache(environ)
    assert (row.state, row.finding) == ("ok", f"{folder}, 2 files, 2.0 MiB, drwx------")
    folder.chmod(0o777)
    row = doctor_checks.check_cache(environ)
    assert row.state == "warn" and "it is not used" in row.finding
    assert "has mode 0777" in row.fix and row.fix.endswith(f"chmod go-w {folder}")


def test_a_cache_that_cannot_be_used_is_pointed_out(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    row = doctor_checks.check_cache({"WARPLOOM_CACHE_DIR": str(file / "cache")})
    assert row.state == "warn" and f"{file} cannot be written" in row.finding
    assert "WARPLOOM_CACHE_DIR" in row.fix
    assert "WARPLOOM_CACHE=0" in doctor_checks.check_cache({"WARPLOOM_CACHE": "0"}).finding
    row = doctor_checks.check_cache({"WARPLOOM_CACHE_MB": "-3"})
    assert row.state == "warn" and "'-3'" in row.fix


def test_unknown_compile_mode_fails():
    row = doctor_checks.check_compiler(_toolchain(mode="hipcc"))
    assert row.state == "fail"
    assert "nvrtc or nvcc" in row.fix


def test_headers_of_another_major_version_are_pointed_out():
    headers = Headers(Path("/x/include"), Path("/x/include"), "12.4", "2.3.0")
    row = doctor_checks.check_headers(_toolchain(headers=headers))
    assert row.state == "warn"
    assert "NVRTC is 13.5.37" in row.fix


def test_headers_without_those_of_wmma_are_pointed_out():
    row = doctor_checks.check_headers(_toolchain(headers=dataclasses.replace(HEADERS, wmma=False)))
    assert row.state == "warn" and "nvidia-cuda-crt" in row.fix


@pytest.mark.parametrize("name", ["nvcc", "nvdisasm"])
@pytest.mark.parametrize("present", [True, False])
def test_optional_tools_never_fail(name, present):
    tools = {"nvcc": None, "nvdisasm": None} | ({name: NVCC} if present else {})
    toolchain = Toolchain("nvrtc", NVRTC, ptxas=None, headers=HEADERS, **tools)
    row = doctor_checks.check_optional_tool(toolchain, name, "Not needed.")
    assert row.state == ("ok" if present else "warn")


@pytest.mark.parametrize(
    ("driver", "state"),
    [
        (Driver("system", "libcuda.so.1", "13.0"), "ok"),
        (Driver("system", "libcuda.so.1", "14.2"), "ok"),
        (Driver("system", "libcuda.so.1", "12.8"), "warn"),
        (Driver("no-device", "/x/lib.so"), "warn"),
        (Driver("none", "why"), "fail"),
        (None, "fail"),
    ],
)
def test_driver(driver, state):
    assert doctor_checks.check_driver(driver).state == state


def test_reason_of_a_missing_driver_is_shown():
    row = doctor_checks.check_driver(Driver("none", "the very reason"))
    assert "the very reason" in row.finding


@pytest.mark.parametrize(
    ("device", "state"),
    [(Device("H200", "9.0"), "ok"), (Device("A100", "8.0"), "warn"), (None, "warn")],
)
def test_device(device, state):
    row = doctor_checks.check_device(device)
    assert row.state == state
    assert device is None or device.name in row.finding


def test_arch_of_a_hopper_is_sm_90a():
    assert "sm_90a" in doctor_checks.check_device(Device("H100", "9.0")).finding


@pytest.mark.parametrize(
    ("versions", "state"),
    [
        ({"apache-tvm": "0.27.0", "apache-tvm-ffi": "0.1.14.post1"}, "ok"),
        ({"apache-tvm": "0.27.0", "apache-tvm-ffi": "0.1.15"}, "fail"),
        ({"apache-tvm": "0.28.0", "apache-tvm-ffi": "0.1.14.post1"}, "fail"),
        ({"apache-tvm": "0.27.0"}, "fail"),
    ],
)
def test_tvm(versions, state):
    def version_of(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    row = doctor_checks.check_tvm(version_of)
    assert row.state == state
    assert all(version in row.finding for version in versions.values())
    assert (PIP_FIX in row.fix) == (state == "fail")


@pytest.mark.parametrize(("needed", "state"), [(True, "fail"), (False, "warn")])
def test_missing_distribution(needed, state):
    def version_of(name):
        raise importlib.metadata.PackageNotFoundError(name)

    row = doctor_checks.check_distribution("numpy", needed, version_of)
    assert (row.state, row.fix) == (state, "Run: pip install numpy")


def test_native_library_that_does_not_load():
    def load():
        raise ToolchainError("libwarploom.so is of version 0; run pip")

    row = doctor_checks.check_native(load)
    assert row.state == "fail"
    assert "of version 0" in row.fix


@pytest.mark.parametrize("states", list(itertools.product(doctor_checks.STATES, repeat=3)))
def test_exit_status_is_one_if_anything_failed(states):
    rows = [Row("x", state, "y", "" if state == "ok" else "z") for state in states]
    assert doctor.exit_status(rows) == int("fail" in states)


@pytest.mark.parametrize(("state", "fix"), [("ok", "do this"), ("warn", ""), ("fail", "")])
def test_a_row_has_a_fix_exactly_if_it_needs_one(state, fix):
    with pytest.raises(AssertionError):
        Row("x", state, "y", fix)


def test_rendering_shows_every_word(capsys):
    rows = [
        Row("one", "ok", "a/path/with[brackets]/in"),
        Row("two", "fail", "x" * 300, "Do this [now]."),
    ]
    doctor.render(rows)
    text = "".join(capsys.readouterr().out.split())
    assert "a/path/with[brackets]/in" in text
    assert "x" * 300 in text
    assert "Dothis[now]." in text
    assert "Cannotwork:two." in text


_DOCTOR = "from warploom.cli import main\nraise SystemExit(main(['doctor']))\n"


def test_this_environment_can_work(run_python):
    result = run_python(_DOCTOR)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Kernels can be compiled." in result.stdout
    for name in ("python", "tvm", "native library", "compiler", "headers", "GPU", "emulator"):
        assert name in result.stdout


def test_a_broken_environment_is_told_and_not_worked_around(run_python, tmp_path):
    result = run_python(_DOCTOR, CUDA_PATH=str(tmp_path))
    assert result.returncode == 1
    assert "Cannot work: headers." in result.stdout
    assert result.stderr == ""


def test_a_wrong_tvm_ffi_is_diagnosed_by_the_command(run_python, tmp_path):
    info = tmp_path / "fake/apache_tvm_ffi-0.1.15.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: apache-tvm-ffi\nVersion: 0.1.15\n")
    result = run_python(
        f"import sys\nsys.path.insert(0, {str(info.parent)!r})\nsys.argv[0] = 'warploom'\n{_DOCTOR}"
    )
    assert result.returncode == 1, result.stderr
    assert "apache-tvm-ffi 0.1.15" in result.stdout
    assert "Cannot work: tvm" in result.stdout
    assert result.stderr == ""
