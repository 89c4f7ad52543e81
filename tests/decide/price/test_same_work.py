"""A GEMM's work by formulas is that of its tile program, field by field."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.decide.price.random_configs import random_configs
from tests.gemm.convolutions import CONVOLUTIONS
from tests.shared import gemm_functions
from tests.shared.gemm_functions import FUNCTIONS, Function
from warploom.decide.price.gemm import work_of
from warploom.decide.price.model import price
from warploom.decide.price.read import read
from warploom.errors import Decline
from warploom.gemm import recognise
from warploom.gemm.generate import tile_program

#: Functions of which a problem says less than the program -> fields in which they differ.
_PROBLEM_SAYS_LESS = {
    # An operand that several of a batch share is as many in a problem.
    "heads": {"loads"},
    "into heads": {"loads"},
    # The axes of a sum are one in a problem; a program steps through the inner one.
    "two summed axes": {"loads", "steps"},
}


def same(one: Any, other: Any) -> bool:
    """Whether fields are equal, floats to their last digits."""
    if isinstance(one, tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(same(a, b) for a, b in pairs)
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return one == other


def _check(function: Function, rng: np.random.Generator, count: int, but: set[str]) -> None:
    gemm = recognise(function.func)
    for config in random_configs(gemm.problem, rng, count):
        print(gemm.problem, config)
        expected = work_of(gemm.problem, config)
        try:
            program = tile_program(gemm, config)
        except Decline as reason:  # no program to compare with
            print(reason)
            continue
        found = read(program)
        for name, a, b in zip(expected._fields, expected, found, strict=True):
            assert name in but or same(a, b), (name, a, b)
        if not but:
            assert math.isclose(price(expected).total, price(found).total, rel_tol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_formulas_and_statements_say_the_same(name: str, rng: np.random.Generator) -> None:
    _check(FUNCTIONS[name](), rng, 6, _PROBLEM_SAYS_LESS.get(name, set()))


def test_of_gemms_of_any_size(rng: np.random.Generator) -> None:
    for _ in range(6):
        m = int(2 ** rng.uniform(0, 13))
        n, k = (8 * int(2 ** rng.uniform(0, 10)) for _ in range(2))
        layout = ("N", "T")[rng.integers(2)] + ("N", "T")[rng.integers(2)]
        if layout[0] == "T":
            m = -(-m // 8) * 8
        print(m, n, k, layout)
        _check(gemm_functions.matmul(m, n, k, layout=layout), rng, 4, set())


def test_of_sizes_that_the_launch_knows(rng: np.random.Generator) -> None:
    _check(gemm_functions.matmul(None, 256, 512), rng, 6, set())
    _check(gemm_functions.batched("b", "m", 72), rng, 4, set())


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_of_convolutions(name: str, rng: np.random.Generator) -> None:
    """All but the loads: a program does not say how many pixels of its boxes there are."""
    one = CONVOLUTIONS[name]
    function = replace(one, n=one.n or 3).function()
    _check(function, rng, 4, {"loads", "epilogue"} if one.epilogue else {"loads"})
    gemm = recognise(function.func)
    for config in random_configs(gemm.problem, rng, 4):
        by_formulas = price(work_of(gemm.problem, config)).total
        # A residual's chunks are those of the transpose, or not, in one of the two.
        near = pytest.approx(by_formulas, rel=0.2 if one.epilogue else 0.1)
        assert price(read(tile_program(gemm, config))).total == near
