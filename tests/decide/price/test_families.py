"""The work of quantised, block-scaled and grouped GEMMs by formulas is that of their programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.decide.price.test_same_work import same
from warploom.decide.config import Config
from warploom.decide.families.block_scaled import BlockScaledProblem, block_scaled_configs
from warploom.decide.families.grouped import grouped_configs
from warploom.decide.families.grouped_problem import GroupedBlockScaledProblem, GroupedProblem
from warploom.decide.families.quantised import QuantisedProblem, quantised_configs
from warploom.decide.machine import H200
from warploom.decide.price.block_scaled import block_scaled_work, grouped_block_scaled_work
from warploom.decide.price.grouped import grouped_work
from warploom.decide.price.quantised import quantised_work
from warploom.decide.price.read import read
from warploom.decide.price.work import Work
from warploom.programs import (
    gemm_block_scaled,
    gemm_grouped,
    gemm_grouped_block_scaled,
    gemm_quantised,
)
from warploom.programs.gemm_block_scaled import options_of
from warploom.programs.gemm_grouped import options_of as options_of_grouped
from warploom.programs.group_slots import slots


def _drawn(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def _rows(rng: np.random.Generator) -> int | None:
    return _drawn(rng, (None, 1, int(2 ** rng.uniform(0, 13))))


def _columns(rng: np.random.Generator) -> int:
    return 8 * int(2 ** rng.uniform(1, 10))


def _check(problem: object, config: Config, expected: Work, program: Any) -> None:
    print(problem, config)
    found = read(program)
    for name, one, other in zip(expected._fields, expected, found, strict=True):
        assert same(one, other), (name, one, other)


@pytest.mark.parametrize("number", range(8))
def test_of_quantised_weights(rng: np.random.Generator, number: int) -> None:
    problem = QuantisedProblem(
        _rows(rng), _columns(rng), 128 * int(2 ** rng.uniform(0, 5)), _drawn(rng, (4, 8)),
        group=_drawn(rng, (32, 64, 128)),
    )  # fmt: skip
    p, config = problem, _drawn(rng, quantised_configs(problem, H200))
    program = gemm_quantised(
        p.n, p.k, p.m, p.bits, p.group, tile=(config.tile_m, config.tile_n, config.tile_k),
        stages=config.stages, **config.hints(usual=False),
    )  # fmt: skip
    work = quantised_work(p.m, p.n, p.k, p.bits, p.group, p.dtype, config)
    _check(problem, config, work, program)


@pytest.mark.parametrize("number", range(8))
def test_of_block_scales(rng: np.random.Generator, number: int) -> None:
    p = BlockScaledProblem(_rows(rng), _columns(rng), 16 * int(2 ** rng.uniform(1, 9)))
    config = _drawn(rng, block_scaled_configs(p, H200))
    program = gemm_block_scaled(
        p.n, p.k, p.m, scale_layout=_drawn(rng, ("MK", "KM")), **options_of(config)
    )
    _check(p, config, block_scaled_work(p.m, p.n, p.k, p.dtype, p.out_dtype, config), program)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("number", range(5))
def test_of_groups(rng: np.random.Generator, number: int, scaled: bool) -> None:
    of = GroupedBlockScaledProblem if scaled else GroupedProblem
    groups, m = _drawn(rng, (1, 3, 8, 40)), _rows(rng) or 4096
    p = of(groups, m, _columns(rng), 16 * int(2 ** rng.uniform(1, 9)))
    config = _drawn(rng, grouped_configs(p, H200))
    make = gemm_grouped_block_scaled if scaled else gemm_grouped
    options = {"tile": (config.tile_m, config.tile_n), "stages": config.stages,
               **config.hints(usual=False)}  # fmt: skip
    options = options if scaled else options_of_grouped(config)
    program = make(groups, p.n, p.k, m, p.dtype, p.out_dtype, **options)
    # A launch has numbers for the most tiles that there could be, and all of them are read.
    formulas = grouped_block_scaled_work if scaled else grouped_work
    work = formulas(
        groups, m, p.n, p.k, p.dtype, p.out_dtype, config, int(slots(m, groups, config.tile_m))
    )
    _check(p, config, work, program)
