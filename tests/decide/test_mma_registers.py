"""ptxas compiles each MMA for the registers of a launch; ``setmaxnreg`` does not help it."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from tests.decide.price.random_configs import random_configs
from warploom.decide.config import Config
from warploom.decide.ranking import ranked
from warploom.errors import StockScheduleWarning
from warploom.gemm.workloads import problem_of
from warploom.gemm_shape import GemmShape
from warploom.target import SM90A
from warploom_bench.competitors import default

_LARGE = problem_of(GemmShape("g", 4096, 4096, 4096, "float16"))
#: Configs with as many columns of an MMA as their threads can have, and with 8 more.
_BORDERS = {
    "three consumers": (Config(192, 200, 64, stages=3, consumers=3), {"tile_n": 208}),
    "two CTAs of an SM": (
        Config(128, 104, 64, stages=2, consumers=2, ctas_per_sm=2), {"tile_n": 112},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _BORDERS)
def test_more_columns_than_registers_are_refused(name: str) -> None:
    config, more = _BORDERS[name]
    assert config.why_not(_LARGE) is None
    assert "An MMA of" in str(replace(config, **more).why_not(_LARGE))


@pytest.mark.parametrize("shape", [(2048, 2048, 2048), (8933, 1152, 6272), (4579, 2176, 30720)])
@pytest.mark.some(1)
def test_large_gemms_compile_for_a_gpu(shape: tuple[int, int, int], machine_code: None) -> None:
    """Their best tiles need more registers than ptxas had: TVM's schedule took 28 times as long."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", StockScheduleWarning)
        default(GemmShape("g", *shape, "float16"))


def test_choices_have_the_registers(rng: np.random.Generator) -> None:
    for _ in range(60):
        m, n, k = (int(2 ** rng.uniform(3, 14)) // 8 * 8 for _ in range(3))
        problem = replace(_LARGE, m=m, n=n, k=k)
        for config in [*(one for _, one in ranked(problem, 3)), *random_configs(problem, rng, 4)]:
            needed = config.mma_registers(problem)
            assert needed <= config.launch_registers(SM90A), (problem, config)
