"""Passes up to the layouts keep the sequential meaning: what is interpreted stays the same."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.shared import tile_programs
from tests.shared.control_programs import CONTROL
from warploom import language as wl
from warploom.language.exits import without_exits
from warploom.lower.grid.persistent import persistent_grid
from warploom.lower.hopper.k_major_operands import k_major_operands
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.infer_layouts import infer_layouts
from warploom.lower.passes.squeeze_vectors import squeeze_vectors
from warploom.tile.read import read

#: Without stores of unknown extent: their guarded nests are no part of the language.
PROGRAMS = {
    **{f"random {seed}": seed for seed in range(16)},
    **CONTROL,
    "bias": partial(tile_programs.epilogue, "bias column"),
    "row sums": tile_programs.row_sums,
    "dequantised": partial(tile_programs.dequantised, 4, tile=(64, 64, 64)),
    "attention": partial(tile_programs.attention, 130, causal=True),
}


def copies(arguments: list[Any]) -> list[Any]:
    return [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]


def interpreted(func: Any, arguments: list[Any]) -> list[Any]:
    after = copies(arguments)
    wl.interpret(func, after)
    return after


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.some(7)
def test_passes_keep_the_sequential_meaning(name, rng):
    source = PROGRAMS[name]
    case = tile_programs.random_program(np.random.default_rng(source)) if isinstance(
        source, int
    ) else source()  # fmt: skip
    arguments = case.arguments(rng)
    expected = interpreted(case.func, arguments)
    # Any number of CTAs and any order visit every tile once.
    ctas, group = int(rng.integers(1, 9)), (None, 1, 2, 3)[rng.integers(4)]
    program = read(without_exits(case.func))
    program = canonicalize(program)
    canonical = interpreted(program.to_func(), arguments)
    for a, b in zip(canonical, expected, strict=True):
        # A nest rounds after every operation, the primitive silu once.
        scale = np.abs(np.asarray(b, np.float64)).max(initial=0)
        wide = [np.asarray(value, np.float64) for value in (a, b)]
        np.testing.assert_allclose(*wide, rtol=1e-2, atol=1e-6 * scale)
    grid = partial(persistent_grid, ctas=ctas, group=group)
    for run in (squeeze_vectors, grid, k_major_operands, infer_layouts):
        program = run(program)
        found = interpreted(program.to_func(), arguments)
        for parameter, a, b in zip(case.func.params, found, canonical, strict=True):
            # numpy adds float32 in an order that depends on how a tile lies in memory.
            rounding = 2.0**-22 if np.asarray(a).dtype.kind == "f" else 0.0
            np.testing.assert_allclose(
                np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=rounding,
                err_msg=f"{parameter.name} after {run}",
            )  # fmt: skip
