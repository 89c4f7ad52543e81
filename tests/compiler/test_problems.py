"""The log of ptxas: equal to what the binary says, and each problem is named."""

from __future__ import annotations

import functools

import pytest

from tests.shared.compiler_kernels import SOURCES, TARGET, compile_uncached
from warploom.compiler.cubin import read_kernels
from warploom.compiler.invoke import current_request
from warploom.compiler.kernel_report import ProblemKind, advice_problem, report_kernel
from warploom.compiler.ptxas_log import Advice, parse
from warploom.runtime.toolchain import find_executable

pytestmark = pytest.mark.usefixtures("machine_code")


@functools.cache
def output(name: str):
    return compile_uncached(SOURCES[name])


def problems(name: str):
    log = parse(output(name).log)
    found = [problem for item in log.advice if (problem := advice_problem(item))]
    for info in read_kernels(output(name).binary):
        found += report_kernel(info, log, None, {}).problems()
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_log_and_binary_agree(name):
    infos = {info.name: info for info in read_kernels(output(name).binary)}
    logged = {kernel.name: kernel for kernel in parse(output(name).log).kernels}
    assert infos and infos.keys() == logged.keys()
    for key, kernel in logged.items():
        for field in ("registers", "barriers", "shared_bytes", "frame_bytes", "stack_bytes"):
            assert getattr(infos[key], field) == getattr(kernel, field), (key, field)


def test_the_launch_bound_is_read():
    bounds = {info.name: info.max_threads for info in read_kernels(output("shared").binary)}
    assert bounds == {"shared_rows": 256, "plain": 0}


@pytest.mark.parametrize(
    ("name", "kernel", "kind"),
    [
        ("spills", "spilling", ProblemKind.SPILL),
        ("local_array", "local_array", ProblemKind.LOCAL_MEMORY),
        ("setmaxnreg", None, ProblemKind.SETMAXNREG_IGNORED),
        ("wgmma_touched_early", "hasty", ProblemKind.WGMMA_SERIALISED),
    ],
)
def test_a_bad_kernel_is_reported_with_its_problem(name, kernel, kind):
    found = problems(name)
    assert [(problem.kernel, problem.kind) for problem in found] == [(kernel, kind)]
    assert kind.value in str(found[0])


@pytest.mark.parametrize("name", ["shared", "wgmma"])
def test_a_good_kernel_has_no_problem(name):
    assert problems(name) == []


def test_spilled_bytes_come_from_the_log():
    (kernel,) = parse(output("spills").log).kernels
    assert kernel.spill_store_bytes > 0 and kernel.spill_load_bytes > 0
    text = str(problems("spills")[0])
    assert f"{kernel.spill_store_bytes} bytes stored" in text


def test_nvcc_is_listened_to_as_well(monkeypatch):
    if find_executable("nvcc") is None:
        pytest.skip("no nvcc")
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")
    with TARGET:
        request = current_request(SOURCES["spills"])
        assert (request.mode, request.format) == ("nvcc", "fatbin")
    found = compile_uncached(SOURCES["spills"])
    (kernel,) = parse(found.log).kernels
    (info,) = read_kernels(found.binary)
    assert kernel.spill_store_bytes > 0 and kernel.registers == info.registers


def test_a_device_function_does_not_hide_the_kernel_before_it():
    log = """ptxas info    : Compiling entry function 'entry' for 'sm_90a'
ptxas info    : Function properties for entry
ptxas         .     16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 2 barriers, 32 bytes cumulative stack size, 128 bytes smem
ptxas info    : Function properties for helper
ptxas         .     512 bytes stack frame, 64 bytes spill stores, 64 bytes spill loads
"""
    (kernel,) = parse(log).kernels
    assert (kernel.name, kernel.frame_bytes, kernel.stack_bytes) == ("entry", 16, 32)
    assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (4, 8)
    assert (kernel.registers, kernel.barriers, kernel.shared_bytes) == (40, 2, 128)


def test_advice_that_costs_nothing_is_no_problem():
    assert advice_problem(Advice("C7999", "kernel", "The moon is full.")) is None
