"""Programs with random configs of their families: results, and what ptxas says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.programs.test_programs import run
from tests.shared import tile_programs
from tests.shared.lowered_programs import exact as few_bits
from warploom import compile_report, cuda_target
from warploom.decide.config import Config
from warploom.decide.families.block_scaled import BlockScaledProblem, block_scaled_configs
from warploom.decide.families.grouped import grouped_configs
from warploom.decide.families.grouped_problem import GroupedBlockScaledProblem, GroupedProblem
from warploom.decide.families.quantised import QuantisedProblem, quantised_configs
from warploom.decide.machine import H200
from warploom.programs import (
    gemm_block_scaled,
    gemm_grouped,
    gemm_grouped_block_scaled,
    gemm_quantised,
)
from warploom.programs.gemm_block_scaled import options_of
from warploom.programs.gemm_grouped import options_of as options_of_grouped

pytestmark = pytest.mark.gpu


def _drawn(rng: np.random.Generator, configs: list[Config]) -> Config:
    config = configs[int(rng.integers(len(configs)))]
    print(config)
    return config


def _options(config: Config) -> dict[str, Any]:
    tile = (config.tile_m, config.tile_n, config.tile_k)
    return {"tile": tile, "stages": config.stages, **config.hints(usual=False)}


def _quantised(rng: np.random.Generator) -> Any:
    m, n, k, bits = int(rng.integers(2, 140)), 136, 512, (4, 8)[rng.integers(2)]
    config = _drawn(rng, quantised_configs(QuantisedProblem(m, n, k, bits), H200))
    return tile_programs.packed(m, n, k, bits, **_options(config))


def _block_scaled(rng: np.random.Generator) -> Any:
    m, n, k = int(rng.integers(2, 260)), 200, 272
    config = _drawn(rng, block_scaled_configs(BlockScaledProblem(m, n, k), H200))
    return tile_programs.block_scaled(m, n, k, **options_of(config))


def _grouped(rng: np.random.Generator) -> Any:
    sizes, n, k = tuple(int(size) for size in rng.integers(0, 130, 3)), 264, 144
    problem = GroupedProblem(3, max(1, sum(sizes)), n, k)
    config = _drawn(rng, grouped_configs(problem, H200))
    return tile_programs.grouped(sizes, n, k, **options_of_grouped(config))


_CASES: dict[str, Callable[[np.random.Generator], Any]] = {
    "quantised": _quantised, "block scales": _block_scaled, "grouped": _grouped,
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
@pytest.mark.parametrize("number", range(6))
@pytest.mark.some(3)
def test_random_configs_compute_right(rng: np.random.Generator, number: int, name: str) -> None:
    case = _CASES[name](rng)
    arguments = case.arguments(rng)
    arguments = arguments if name == "quantised" else few_bits(arguments)
    (exact,) = case.expected(arguments).values()
    found = run(case.func, arguments)[-1].astype(float)
    assert np.abs(found - exact).max() <= np.abs(exact).max() * case.tolerance


@pytest.mark.parametrize("number", range(4))
@pytest.mark.some(1)
def test_random_configs_of_groups_with_block_scales_compute_right(
    rng: np.random.Generator, number: int
) -> None:
    sizes, n, k = rng.integers(0, 150, 3), 264, 272
    m, groups = max(1, int(sizes.sum())), len(sizes)
    sizes[0] += m - sizes.sum()
    problem = GroupedBlockScaledProblem(groups, m, n, k)
    options = _options(_drawn(rng, grouped_configs(problem, H200)))
    func = gemm_grouped_block_scaled(groups, n, k, m, **{**options, "tile": options["tile"][:2]})
    x, w = (rng.integers(-4, 5, shape) / 2 for shape in ((m, k), (groups, n, k)))
    sx, sw = rng.uniform(0.5, 2, (m, 3)), rng.uniform(0.5, 2, (groups, 3, 3))
    sx, sw = (scale.astype(np.float32) for scale in (sx, sw))
    group = np.repeat(np.arange(groups), sizes)
    wide_w = w * np.repeat(np.repeat(sw, 128, 1)[:, :n], 128, 2)[:, :, :k]
    exact = np.einsum("mk,mnk->mn", x * np.repeat(sx, 128, 1)[:, :k], wide_w[group])
    arguments = [
        *(one.astype(ml_dtypes.float8_e4m3fn) for one in (x, w)), sx, sw,
        np.cumsum((0, *sizes)).astype(np.int32),
        np.full((m, n), np.nan, np.float32).astype(ml_dtypes.bfloat16),
    ]  # fmt: skip
    found = run(func, arguments)[-1].astype(float)
    assert np.abs(found - exact).max() <= np.abs(exact).max() * 2**-8


_DEFAULTS: dict[str, Callable[[int | None, str], Any]] = {
    "quantised": lambda m, arch: gemm_quantised(1024, 1024, m, arch=arch),
    "block scales": lambda m, arch: gemm_block_scaled(1024, 1024, m, arch=arch),
    "grouped": lambda m, arch: gemm_grouped(8, 1024, 1024, m, "bfloat16", arch=arch),
    # The architecture of the current target.
    "grouped, block scales": lambda m, _: gemm_grouped_block_scaled(8, 1024, 1024, m),
}


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("rows", [None, 1, 100, 600, 4096, 8000])
@pytest.mark.parametrize("name", _DEFAULTS)
@pytest.mark.some(2)
def test_defaults_need_no_more_registers_and_shared_memory_than_there_are(
    machine_code: None, name: str, rows: int | None, arch: str
) -> None:
    with cuda_target(arch):
        report = compile_report(_DEFAULTS[name](rows, arch), cuda_target(arch))
    assert not report.problems, "\n".join(map(str, report.problems))
    assert report.kernels
    for kernel in report.kernels:
        assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (0, 0)
