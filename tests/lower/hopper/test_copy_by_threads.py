"""Tensors that TMA cannot describe: threads copy them, into the stages of a ring on Hopper."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tvm

from tests.shared import tile_programs
from tests.shared.lowered_programs import check, hinted, run, worst_error
from warploom.errors import Decline
from warploom.lower.emit import copy_by_threads
from warploom.lower.hopper import consume
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.target import cuda_target
from warploom.tile import ir

ARCHS = ("sm_90a", "sm_100a")
#: Elements of a row, dtype, and bytes of a cp.async; 0 where elements go through registers.
ROWS = [
    (75, "float16", 0), (74, "float16", 4), (76, "bfloat16", 8), (99, "int8", 0),
    (100, "float8_e4m3fn", 4), (104, "int8", 8), (66, "float32", 8), (65, "float32", 4),
]  # fmt: skip


def gemm(k: int, dtype: str = "float16", **sizes: Any) -> tile_programs.Case:
    case = tile_programs.gemm(70, 72, k, (64, 64, 32), dtype, **sizes)
    # The tensor core ignores the low 13 bits of float32.
    return dataclasses.replace(case, tolerance=2e-3) if dtype == "float32" else case


def cuda(func: Any, arch: str = "sm_90a") -> str:
    module = tvm.IRModule({"main": lower(func, arch, quiet=True)})
    built = tvm.compile(module, cuda_target(arch), tir_pipeline="tirx")
    return built.mod.imports[0].inspect_source()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("k", "dtype", "size"), ROWS)
@pytest.mark.some(6)
def test_rows_of_any_length_are_copied(k, dtype, size, arch, rng):
    if dtype == "float32":  # no tcgen05 schedule takes it
        arch = "sm_90a"
    check(gemm(k, dtype), rng, arch)


@pytest.mark.parametrize(("k", "dtype", "size"), ROWS)
@pytest.mark.some(4)
def test_copies_are_as_wide_as_rows_allow(k, dtype, size):
    source = cuda(gemm(k, dtype).func)
    assert ("cp.async.c" in source) == (size >= 4)


@pytest.mark.parametrize("layout", ["NT", "NN", "TN", "TT"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(4)
def test_one_operand_by_tma_and_one_by_threads(layout, arch, rng):
    # K is even and N a multiple of 8: operands whose rows lie along N or M come by TMA.
    check(tile_programs.gemm(72, 136, 74, (64, 64, 32), layout=layout), rng, arch)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("k", [2, 32, 34, 98, 130])
@pytest.mark.some(4)
def test_trip_counts_around_the_stages(stages, k, rng):
    check(tile_programs.gemm(128, 64, k, (128, 64, 32), stages=stages), rng)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_matrix_of_one_row(arch, rng):
    check(tile_programs.gemm(1, 64, 64), rng, arch)


def test_the_reason_is_told_and_followed():
    func = gemm(75).func
    told = [one for step in lower_trace(func, "sm_90a") for one in step.decisions]
    assert any("A_s is loaded from, have 150 bytes; TMA wants multiples" in one for one in told)
    with pytest.raises(Decline, match=r"150 bytes; .* Threads copy it"):
        lower(hinted(func, specialise=True), "sm_90a")


def test_the_emulator_misses_the_proxy_fence(monkeypatch, rng):
    # Of stores by threads: the emulator knows that cp.async needs none in practice.
    for module in (copy_by_threads, consume):
        monkeypatch.setattr(module, "see_copied", lambda: ir.evaluate(0))
    case = gemm(75)
    with pytest.raises(Exception, match="proxy"):
        run(lower(case.func, "sm_90a", quiet=True), case.arguments(rng))


@pytest.mark.parametrize("arch", ARCHS)
def test_the_launch_chooses_the_kernel_of_symbolic_rows(arch, rng):
    case = tile_programs.gemm(70, 72, 75, symbolic_k=True)
    kernel = lower(case.func, arch, quiet=True)
    for k in (75, 72, 74, 8):
        sized = tile_programs.gemm(70, 72, k, symbolic_k=True)
        before = sized.arguments(rng)
        after = run(kernel, [np.copy(one) for one in before], arch)
        assert worst_error(sized, before, after) <= 1
