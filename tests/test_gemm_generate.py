"""Tile programs of recognised functions: right on the emulator, for many knobs."""

from __future__ import annotations

import numpy as np
import pytest

import gemm_functions
from gemm_functions import FUNCTIONS, Function
from warploom import emulator
from warploom.gemm import GemmKnobs, recognise
from warploom.gemm.choose import candidates
from warploom.gemm.generate import tile_program
from warploom.transform.lower import lower


def _check(function: Function, knobs: GemmKnobs, rng: np.random.Generator, **sizes: int) -> None:
    gemm = recognise(function.func)
    kernel = lower(tile_program(gemm, knobs)).with_attr("global_symbol", "main")
    arguments = function.arguments(rng, **sizes)
    found = emulator.run(kernel, arguments).outputs
    for array, wanted in zip(
        found[len(found) - function.outputs :], function.expected(*arguments), strict=True
    ):
        scale = np.abs(wanted).max()
        bound = 0 if array.dtype.kind == "i" else {2: 8e-3, 4: 1e-3}[array.dtype.itemsize] * scale
        worst = np.abs(array.astype(np.float64) - wanted).max()
        assert worst <= bound, (str(gemm.problem), knobs, worst, scale)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_computed(name: str, rng: np.random.Generator) -> None:
    function = FUNCTIONS[name]()
    problem = recognise(function.func).problem
    found = [one for one in candidates(problem) if one.ctas_per_sm == 1]
    for number in rng.choice(len(found), 2, replace=False):
        _check(function, found[number], rng)


@pytest.mark.parametrize("rows", [1, 7, 64, 150])
def test_numbers_of_rows_of_the_launch(rows: int, rng: np.random.Generator) -> None:
    function = gemm_functions.matmul(None)
    for knobs in (
        GemmKnobs(64, 64, 32, 3, consumers=1),
        GemmKnobs(16, 64, 64, 2, consumers=1, swap_ab=True),
        GemmKnobs(128, 48, 32, 4, cluster_m=2, split_k=2),
    ):
        _check(function, knobs, rng, m=rows)
