"""One function for any number of rows: the host launches the kernel of the right bucket."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule

import warploom
from tests.shared import gemm_functions
from warploom import emulator
from warploom.decide import Config
from warploom.gemm import recognise
from warploom.gemm.annotations import annotate

#: The largest number of rows -> config, which differ in the kernels' tiles and grids.
BUCKETS = {
    16: Config(16, 64, 64, 2, consumers=1, swap_ab=True),
    128: Config(64, 48, 32, 3, consumers=1, ctas_per_sm=2),
    512: Config(64, 80, 32, 2, consumers=1, split_k=2),
    None: Config(128, 72, 32, 3, consumers=2, cluster_m=2),
}


#: The kernel of each bucket; parts of a sum need no other one.
KERNELS = {
    16: ["main_kernel"],
    128: ["main_kernel_1"],
    512: ["main_kernel_2"],
    None: ["main_kernel_3"],
}


@pytest.fixture(scope="module")
def compiled() -> SimpleNamespace:
    function = gemm_functions.matmul(None)
    schedule = Schedule(function.func)
    block = schedule.get_sblock(recognise(function.func).anchor)
    for limit, config in BUCKETS.items():
        annotate(schedule, block, config.values(), limit)
    executable = tvm.compile(schedule.mod, target=warploom.cuda_target("h200"))
    # An executable of this process is for the GPU where there is one.
    program = executable if emulator.is_enabled() else schedule.mod
    return SimpleNamespace(function=function, program=program)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "bucket"),
    [(1, 16), (16, 16), (17, 128), (128, 128), (129, 512), (513, None)],
)
@pytest.mark.some(3)
def test_each_number_of_rows_has_its_kernel(
    rows: int, bucket: int | None, compiled: Any, rng: np.random.Generator
) -> None:
    arguments = compiled.function.arguments(rng, m=rows)
    result = emulator.run(compiled.program, arguments, kernel="main", report=True)
    assert [one.counts["kernel"] for one in result.launches] == KERNELS[bucket]
    compiled.function.assert_right(result.outputs[-1:], arguments)
