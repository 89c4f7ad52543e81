"""``tvm.compile`` compiles for the target it is given, on machines with and without a GPU."""

import os

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from warploom.compiler.codegen import make_build_cuda
from warploom.runtime.driver import Driver


@T.prim_func
def add_one(a: T.handle):
    A = T.match_buffer(a, (128,), "float32")
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([128])
    A[thread] = A[thread] + T.float32(1)


def _is_compiled(target: tvm.target.Target, path) -> bool:
    """Whether the exported library has a cubin, or PTX for the emulator."""
    executable = tvm.compile(tvm.IRModule({"main": add_one}), target=target, tir_pipeline="tirx")
    executable.export_library(str(path))
    content = path.read_bytes()
    return content.count(b"\x7fELF") > 1 or b".visible .entry" in content


def test_the_given_target_is_compiled_without_a_with_block(tmp_path):
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    assert tvm.target.Target.current(allow_none=True) is None
    assert _is_compiled(target, tmp_path / "kernel.so")


@pytest.mark.skipif(tvm.cuda(0).exist, reason="stock TVM compiles every architecture with a GPU")
def test_other_architectures_stay_source_without_a_gpu(tmp_path):
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_50"})
    assert not _is_compiled(target, tmp_path / "kernel.so")
    assert "TVM_COMPILE_FORCE_FALLBACK" not in os.environ


@pytest.mark.parametrize("before", [None, "0", "1"])
@pytest.mark.parametrize("kind", ["system", "no-device", "none"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_80"])
def test_environment_is_as_before(monkeypatch, before, kind, arch):
    """The variable is set only while stock generates code that it must not compile."""
    variable = "TVM_COMPILE_FORCE_FALLBACK"
    if before is None:
        monkeypatch.delenv(variable, raising=False)
    else:
        monkeypatch.setenv(variable, before)
    seen = []

    def stock(mod, target):
        seen.append((os.environ.get(variable), tvm.target.Target.current().attrs["arch"]))
        raise RuntimeError("stop")

    build = make_build_cuda(stock, lambda: Driver(kind, ""))
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    with pytest.raises(RuntimeError, match="stop"):
        build(tvm.IRModule({}), target)
    source_only = kind != "system" and arch == "sm_80"
    assert seen == [("1" if source_only else before, arch)]
    assert os.environ.get(variable) == before


@T.prim_func
def least_numbers(A: T.Buffer((128,), "int32"), B: T.Buffer((128,), "int32")):
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([128])
    B[thread] = T.max(T.Select(thread > 7, A[thread], T.min_value("int32")), thread - 5)


@pytest.mark.gpu
def test_the_least_integer_is_an_int(rng):
    """C++ reads -2147483648 as a long, and has no maximum of an int and a long."""
    a = rng.integers(-99, 99, 128).astype(np.int32)
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    kernel = tvm.compile(tvm.IRModule({"main": least_numbers}), target, tir_pipeline="tirx")
    arrays = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in (a, np.full_like(a, 99))]
    kernel["main"](*arrays)
    threads = np.arange(128)
    expected = np.where(threads > 7, np.maximum(a, threads - 5), threads - 5)
    np.testing.assert_array_equal(arrays[1].numpy(), expected)
