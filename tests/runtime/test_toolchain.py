"""The CUDA toolchain: what is set up for TVM, what is found, and that it compiles."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import struct
from pathlib import Path

import pytest
import tvm
from tvm import te
from tvm.s_tir import dlight

from warploom.runtime import toolchain

OPTIONS = "TVM_CUDA_NVRTC_EXTRA_OPTS"


def _touch(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def _headers(include: Path, cccl: Path) -> None:
    _touch(include / "cuda_runtime.h")
    _touch(include / "cuda_runtime_api.h", "#define CUDART_VERSION  13050\n")
    _touch(cccl / "cuda/std/cstdint")
    _touch(cccl / "cuda/std/__cccl/version.h", "#define CCCL_VERSION 3005001\n")


@pytest.fixture
def machine(tmp_path):
    """Directories as they are on users' machines; each ``PATH`` value names one with its nvcc."""
    target = f"targets/{os.uname().machine}-linux"
    _headers(tmp_path / "wheels/include", tmp_path / "wheels/include/cccl")
    toolkit = tmp_path / "toolkit"
    _touch(toolkit / "bin/nvcc")
    _headers(toolkit / target / "include", toolkit / target / "include/cccl")
    # Before CUDA 13, CCCL lies beside the other headers.
    older = tmp_path / "older"
    _touch(older / "bin/nvcc")
    _headers(older / "include", older / "include")
    _touch(tmp_path / "wrapper/bin/nvcc", "#!/bin/sh\n")
    (tmp_path / "linked/bin").mkdir(parents=True)
    (tmp_path / "linked/bin/nvcc").symlink_to(toolkit / "bin/nvcc")
    (tmp_path / "nothing/bin").mkdir(parents=True)
    return tmp_path


ON_PATH = ("toolkit", "older", "wrapper", "linked", "nothing")
COMPLETE = ("toolkit", "older", "linked")
CUDA_PATHS = (None, "toolkit", "older", "wheels", "nothing")
USER_OPTIONS = (None, "--ftz=false", "-I/some/where --ftz=false")


@pytest.fixture(params=itertools.product(ON_PATH, CUDA_PATHS, USER_OPTIONS), ids=str)
def environ(request, machine, monkeypatch):
    """The environment of a user, and what is on the machine."""
    on_path, cuda_path, options = request.param
    # Whether this machine has /usr/local/cuda must not matter.
    monkeypatch.setattr(toolchain, "_DEFAULT_ROOT", machine / "absent")
    environ = {"PATH": str(machine / on_path / "bin")}
    if cuda_path:
        environ["CUDA_PATH"] = str(machine / cuda_path)
    if options:
        environ[OPTIONS] = options
    return environ


def test_what_the_user_set_is_kept(environ, machine):
    additions = toolchain.environment_additions(environ, machine / "wheels")
    assert additions.keys() <= {"CUDA_PATH", OPTIONS}
    if "CUDA_PATH" in environ:
        assert "CUDA_PATH" not in additions
    if OPTIONS in additions:
        given = shlex.split(environ.get(OPTIONS, ""))
        assert shlex.split(additions[OPTIONS])[: len(given)] == given


def test_a_second_set_up_changes_nothing(environ, machine):
    environ |= toolchain.environment_additions(environ, machine / "wheels")
    assert toolchain.environment_additions(environ, machine / "wheels") == {}


def test_headers_are_found_afterwards(environ, machine):
    environ |= toolchain.environment_additions(environ, machine / "wheels")
    headers = toolchain.find_headers(environ)
    if environ.get("CUDA_PATH") == str(machine / "nothing"):
        assert headers is None  # the user's choice is not overridden
        return
    assert (headers.version, headers.cccl_version) == ("13.5", "3.5.1")
    assert (headers.runtime / "cuda_runtime.h").is_file()
    assert (headers.cccl / "cuda/std/cstdint").is_file()


def test_only_what_is_missing_is_added(environ, machine):
    chosen = Path(environ.get("CUDA_PATH") or Path(environ["PATH"]).parent).name
    missing = set() if chosen in COMPLETE else {OPTIONS}
    if chosen not in COMPLETE and "CUDA_PATH" not in environ:
        missing.add("CUDA_PATH")
    assert toolchain.environment_additions(environ, machine / "wheels").keys() == missing


def test_without_toolkit_and_wheels_nothing_is_made_up(machine, monkeypatch):
    monkeypatch.setattr(toolchain, "_DEFAULT_ROOT", machine / "absent")
    environ = {"PATH": str(machine / "wrapper/bin")}
    assert toolchain.environment_additions(environ, None) == {}
    assert toolchain.find_headers(environ) is None


def test_paths_with_spaces_survive(tmp_path, monkeypatch):
    monkeypatch.setattr(toolchain, "_DEFAULT_ROOT", tmp_path / "absent")
    wheels = tmp_path / "with space"
    _headers(wheels / "include", wheels / "include/cccl")
    additions = toolchain.environment_additions({"PATH": ""}, wheels)
    assert shlex.split(additions[OPTIONS]) == [f"-I{wheels}/include/cccl"]
    assert toolchain.find_headers({"PATH": ""} | additions).cccl == wheels / "include/cccl"


def test_tvm_looks_where_we_think_it_looks(environ, monkeypatch):
    from tvm.support import nvcc

    for name in ("PATH", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", environ["PATH"] + os.pathsep + os.defpath)  # for `which`
    try:
        expected = Path(nvcc.find_cuda_path())
    except RuntimeError:
        expected = None
    if expected == Path("/usr/local/cuda"):
        expected = None  # the fixture hides it from us, but not from TVM
    assert toolchain._tvm_root(os.environ) == expected


def test_the_toolchain_of_this_environment_can_compile():
    found = toolchain.find_toolchain()
    assert found.compiler is not None
    assert found.compiler.path.is_file()
    assert found.headers is not None
    assert found.headers.version.split(".")[0] == found.nvrtc.version.split(".")[0]


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90"])
def test_tensor_core_kernels_of_tvm_compile(arch):
    """They include mma.h, which includes crt/mma.h, which is in a wheel of its own."""
    assert toolchain.find_headers().wmma
    x, w = (te.placeholder((1024, 1024), "float16", name) for name in "xw")
    r = te.reduce_axis((0, 1024), "r")
    y = te.compute((1024, 1024), lambda i, j: te.sum(x[i, r] * w[j, r], r), "y")
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    with target:
        mod = tvm.IRModule({"main": te.create_prim_func([x, w, y])})
        mod = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul())(mod)
    source = tvm.compile(mod, target).mod.imports[0].inspect_source()
    assert "#include <mma.h>" in source and "wmma::mma_sync" in source


def test_nvrtc_version_is_that_of_the_library():
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    assert toolchain.find_nvrtc().version.split(".")[:2] == [str(major), str(minor)]


def test_fingerprint_names_no_path_of_this_machine():
    text = toolchain.compiler_fingerprint()
    assert "/" not in text
    assert text == toolchain.compiler_fingerprint(dict(os.environ))
    assert toolchain.find_nvrtc().version in text


def test_fingerprint_distinguishes_the_compilers(tmp_path):
    _touch(tmp_path / "nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    environ = dict(os.environ) | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    assert toolchain.compiler_fingerprint(environ | {"TVM_CUDA_COMPILE_MODE": "nvcc"}) == (
        "nvcc 13.0.88"
    )
    assert toolchain.compiler_fingerprint(environ).startswith("nvrtc")


def test_a_program_that_fails_is_not_found(tmp_path):
    _touch(tmp_path / "nvcc", "#!/bin/sh\nexit 1\n")
    assert toolchain.find_executable("nvcc", {"PATH": str(tmp_path)}) is None


_EXPORT = """
import tvm
import warploom
from tvm.script import tirx as T

@T.prim_func
def double_all(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (256,), "float32")
    B = T.match_buffer(b, (256,), "float32")
    T.device_entry()
    block = T.cta_id([2])
    thread = T.thread_id([128])
    B[block * 128 + thread] = A[block * 128 + thread] * T.float32(2)

target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
module = tvm.compile(tvm.IRModule({"double_all": double_all}), target=target, tir_pipeline="tirx")
module.export_library(LIBRARY)
"""

_ELF_MAGIC = b"\x7fELF"
_EM_CUDA = 190


def _cubins(data: bytes) -> list[bytes]:
    """The cubins inside a file: ELF images whose machine is CUDA, each up to the end of the file.

    ELF header: e_machine is a 16-bit field at byte 18.
    """
    starts = [i for i in range(1, len(data) - 20) if data.startswith(_ELF_MAGIC, i)]
    return [
        data[start:]
        for start in starts
        if struct.unpack_from("<H", data, start + 18)[0] == _EM_CUDA
    ]


@pytest.mark.skipif(shutil.which("g++") is None, reason="export_library links with g++")
@pytest.mark.parametrize("cuda_path", ["of the user", "unset"])
def test_a_machine_without_gpu_exports_a_cubin(run_python, tmp_path, cuda_path):
    library = tmp_path / "double_all.so"
    code = f"LIBRARY = {str(library)!r}\n{_EXPORT}"
    unset = {"CUDA_PATH": None, OPTIONS: None} if cuda_path == "unset" else {}
    result = run_python(code, WARPLOOM_CACHE="0", **unset)
    assert result.returncode == 0, result.stderr
    cubins = _cubins(library.read_bytes())
    assert cubins, "the exported library has no cubin"
    assert any(b".text.double_all_kernel" in cubin for cubin in cubins)
