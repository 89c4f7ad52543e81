"""Grids that CUDA cannot launch as they are written: four dimensions, or a long second one."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx

from tests.gemm.test_generate import check
from tests.shared import gemm_functions, tile_programs
from tests.shared.lowered_programs import after_passes, hinted
from warploom.decide import Config
from warploom.gemm import recognise
from warploom.lower.grid.join_dimensions import MOST_CTAS
from warploom.lower.passes.choose_grid import choose_grid


@pytest.mark.parametrize("specialise", [True, False])
def test_four_dimensions_are_joined(specialise: bool, rng: np.random.Generator) -> None:
    function = gemm_functions.heads()
    assert len(recognise(function.func).batch) == 2, "beside rows and columns"
    config = Config(64, 64, 32, 3, consumers=1, persistent=False, specialise=specialise)
    check(function, config, rng)


@pytest.mark.parametrize(("columns", "dimensions"), [(MOST_CTAS, 2), (MOST_CTAS + 1, 1)])
def test_a_long_second_dimension_is_joined_to_the_first(columns: int, dimensions: int) -> None:
    case = tile_programs.gemm(128, 64 * columns, 64, (64, 64, 64))
    program = after_passes(hinted(case.func, persistent=False), choose_grid)
    extents = program.id("cta").extents
    assert len(extents) == dimensions
    count = np.prod([int(extent) for extent in extents], dtype=np.int64)
    assert count == 2 * columns and all(isinstance(e, tirx.IntImm) for e in extents)
