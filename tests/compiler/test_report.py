"""compile_report and ``warploom inspect cubin``, on a machine without a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tvm
import tvm_ffi

from tests.shared.compiler_kernels import (
    LOCAL_ARRAY,
    SOURCES,
    SPILLS,
    TARGET,
    compile_uncached,
    doubled,
)
from warploom.compiler import inspect, sass
from warploom.compiler import report as report_module
from warploom.compiler.cubin import architecture, find_cubins, read_kernels
from warploom.compiler.kernel_report import ProblemKind
from warploom.compiler.report import compile_report, report_binary
from warploom.errors import ToolchainError, WarploomError
from warploom.target import default_target

pytestmark = pytest.mark.usefixtures("machine_code")


@pytest.fixture(autouse=True)
def cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path / "cache"))


def compiled(dtype: str = "float16"):
    return tvm.compile(tvm.IRModule({"main": doubled(dtype)}), TARGET, tir_pipeline="tirx")


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float16", 2), ("float8_e4m3fn", 1)])
def test_a_program_is_compiled_and_timed(dtype, size):
    report = compile_report(doubled(dtype), TARGET)
    assert report.arch == "sm_90a" and report.problems == ()
    assert [stage.name for stage in report.stages] == ["lower", "codegen", "nvrtc"]
    assert all(stage.seconds > 0 and not stage.cached for stage in report.stages)
    (kernel,) = report.kernels
    assert kernel.name == "double_kernel" and kernel.info.max_threads == 128
    assert kernel.dynamic_shared_bytes == 128 * size
    assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (0, 0)
    text = str(report)
    assert kernel.name in text and f"{128 * size} B" in text and "problems: none found" in text


def test_programs_and_compiled_modules_give_the_same_kernel():
    program = compile_report(tvm.IRModule({"main": doubled("float16")}), TARGET)
    executable = compile_report(compiled(), TARGET)
    module = compile_report(compiled().mod, TARGET)
    assert executable == module
    assert [stage.name for stage in module.stages] == ["nvrtc"] and module.stages[0].cached
    assert program.kernels[0].info == module.kernels[0].info
    assert program.kernels[0].sass == module.kernels[0].sass
    assert module.kernels[0].dynamic_shared_bytes is None


def test_the_target_may_be_the_current_one_or_a_dict():
    executable = compiled()
    with TARGET:
        current = compile_report(executable)
    assert current == compile_report(executable, {"kind": "cuda", "arch": "sm_90a"})


def test_without_a_target_the_default_one_is_meant():
    executable = compiled()
    assert compile_report(executable) == compile_report(executable, default_target()[0])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.some(1)
def test_a_compiled_module_is_reported_on_for_its_own_architecture(arch, monkeypatch):
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    program = tvm.IRModule({"main": doubled("float16")})
    executable = tvm.compile(program, target, tir_pipeline="tirx")
    report = compile_report(executable)
    assert report.arch == arch and str(report).startswith(f"{arch}: ")
    assert compile_report(executable.mod.imports[0]).arch == arch
    with TARGET:
        assert compile_report(executable).arch == arch
    other = {"kind": "cuda", "arch": "sm_100a" if arch != "sm_100a" else "sm_90a"}
    with pytest.raises(WarploomError, match=f"was compiled for {arch}, .* leave the target out"):
        compile_report(executable, other)
    ptx = f"\n.version 9.0\n.target {arch}\n".encode()
    packed = SimpleNamespace(numpy=lambda: np.frombuffer(ptx, "uint8"))
    monkeypatch.setattr(tvm_ffi, "get_global_func", lambda _: lambda _: packed)
    assert report_module._architecture_of(executable.mod) == arch


@pytest.mark.parametrize(("option", "abi", "flags", "arch"), [
    (b"-v -arch sm_90a -m 64", 8, 0x6005A04, "sm_90a"), (b"-arch=sm_100f ", 8, 0, "sm_100f"),
    (b"", 8, 0x6006402, "sm_100"), (b"", 7, 0x5A055A, "sm_90"), (b"", 7, 0x500550, "sm_80"),
])  # fmt: skip
def test_the_architecture_is_read_from_the_cubin(option, abi, flags, arch):
    cubin = bytearray(compile_uncached(LOCAL_ARRAY).binary)
    assert architecture(bytes(cubin)) == TARGET.attrs["arch"]
    note = b"-arch sm_90a"
    at = cubin.index(note)
    cubin[at : at + len(note)] = bytes(len(note))
    cubin[8] = abi
    cubin[48:52] = flags.to_bytes(4, "little")
    assert architecture(bytes(cubin) + option) == arch


def test_what_is_no_cubin_has_no_architecture():
    with pytest.raises(WarploomError, match="no cubin"):
        architecture(b"-arch sm_90a")


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_a_target_without_cuda_architecture_is_rejected(target):
    with pytest.raises(WarploomError, match="arch"):
        compile_report(doubled("float32"), target)


def test_a_module_without_kernels_is_rejected():
    executable = compiled()
    executable.mod.clear_imports()
    with pytest.raises(WarploomError, match="no CUDA kernels"):
        compile_report(executable, TARGET)


def test_instruction_counts_add_up_to_the_code_size():
    for source in SOURCES.values():
        binary = compile_uncached(source).binary
        counts = sass.histogram(sass.listing(binary))
        sizes = {info.name: info.instructions for info in read_kernels(binary)}
        assert {name: sum(opcodes.values()) for name, opcodes in counts.items()} == sizes


def test_tensor_core_and_local_memory_instructions_are_counted():
    wgmma = report_binary(compile_uncached(SOURCES["wgmma"]).binary).kernels[0].sass
    assert wgmma["HGMMA"] == 1 and wgmma["WARPGROUP.ARRIVE"] == 1
    spills = report_binary(compile_uncached(SPILLS).binary).kernels[0].sass
    assert spills["STL"] > 0 and spills["LDL"] > 0


def test_a_missing_disassembler_leaves_out_the_counts(monkeypatch):
    monkeypatch.setattr(sass, "disassembler", lambda: None)
    report = compile_report(doubled("float32"), TARGET)
    assert report.kernels[0].sass is None and "nvdisasm was not found" in str(report)
    with pytest.raises(ToolchainError, match="nvidia-cuda-nvdisasm"):
        sass.listing(b"")


def test_the_disassembler_s_refusal_is_an_error():
    with pytest.raises(ToolchainError, match="rejects the cubin"):
        sass.listing(b"not a cubin")


def test_a_binary_alone_shows_local_memory():
    report = report_binary(compile_uncached(LOCAL_ARRAY).binary)
    assert [problem.kind for problem in report.problems] == [ProblemKind.LOCAL_MEMORY]
    assert "local memory" in str(report)


def test_inspect_prints_a_report_of_an_exported_library(tmp_path, capsys):
    library = tmp_path / "kernel.so"
    compiled().export_library(str(library))
    assert len(find_cubins(library.read_bytes())) == 1
    assert inspect.main([str(library)]) == 0
    report = capsys.readouterr().out
    assert "double_kernel" in report and "EXIT" not in report
    assert inspect.main([str(library), "--sass"]) == 0
    assert "EXIT" in capsys.readouterr().out


def test_inspect_tells_of_problems_by_its_exit_status(tmp_path, capsys):
    path = tmp_path / "kernels.cubin"
    path.write_bytes(compile_uncached(LOCAL_ARRAY).binary)
    assert inspect.main([str(path)]) == 1
    assert "local_array: local memory" in capsys.readouterr().out


def test_inspect_explains_files_it_cannot_use(tmp_path):
    with pytest.raises(WarploomError, match="cannot be read"):
        inspect.main([str(tmp_path / "absent.cubin")])
    (tmp_path / "text.cubin").write_text("no cubin in here")
    with pytest.raises(WarploomError, match="contains no cubin"):
        inspect.main([str(tmp_path / "text.cubin")])
