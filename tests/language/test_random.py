"""Random tile programs: the interpreter against a model of whole matrices, printing, parsing."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm
import tvm_ffi

from tests.shared import tile_programs
from tests.shared.tile_programs.statements import random_statements, statement_table
from warploom import language as wl

SEEDS = range(50)


@functools.cache
def program(seed: int) -> tuple[tile_programs.Case, np.random.Generator]:
    """The program of a seed, and the generator for its data."""
    rng = np.random.default_rng(seed)
    return tile_programs.random_program(rng), rng


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.some(10)
def test_interpreter_agrees_with_the_model(seed):
    case, rng = program(seed)
    arguments = case.arguments(rng)
    # Before: a program may update what it is given.
    results = case.expected([np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments])
    wl.interpret(case.func, arguments)
    assert results
    for index, expected in results.items():
        error = np.abs(arguments[index].astype(np.float64) - expected)
        allowed = case.tolerance * np.abs(expected).max()
        assert (error <= allowed).all(), f"{case.func.params[index].name}: {error.max()} {allowed}"
    assert tvm_ffi.structural_equal(tvm.script.from_source(case.func.script()), case.func)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.some(10)
def test_interpreter_agrees_with_the_model_of_statements(seed):
    rng = np.random.default_rng(seed)
    case, _ = random_statements(rng, with_mma=seed % 3 == 0)
    arguments = case.arguments(rng)
    results = case.expected([np.copy(a) for a in arguments])
    wl.interpret(case.func, arguments)
    assert results
    for index, expected in results.items():
        name = case.func.params[index].name
        np.testing.assert_array_equal(arguments[index].astype(np.float64), expected, name)


def test_statements_are_diverse():
    """Every statement is drawn in some programs, and in some it is not."""
    programs = [set(random_statements(np.random.default_rng(s), s % 3 == 0)[1]) for s in range(90)]
    for statement in statement_table():
        found = sum(statement.__name__ in names for names in programs)
        assert 0 < found < len(programs), f"{statement.__name__} is in {found} programs"


def test_a_seed_names_a_program():
    first, again, other = (
        tile_programs.random_program(np.random.default_rng(seed)).func for seed in (7, 7, 8)
    )
    assert tvm_ffi.structural_equal(first, again) and not tvm_ffi.structural_equal(first, other)


def test_programs_are_diverse():
    scripts = [program(seed)[0].func.script() for seed in SEEDS]
    for feature in (
        "steps: T.int32",
        '"warploom.stages"',
        "True, False,",
        "False, True,",
        "T.cta.max(best",
        "T.cta.add(acc[",
        "Reduced",
        "T.cta.sum(reduced",
        "[0, 1], False)",
        "Reduced[bi",
        "T.cta.cum",
        "atomic_add(C",
        "A_c",
        "B_c",
        "B2",
        "if bi % 2",
        '"int8"',
        '"float8_e4m3fn"',
        '("m"',
        "tanh",
        "T.cta.silu",
        "T.serial(1,",
        "T.serial(9,",
        "R_s",
        "Steps[",
        "T.cta.cast(out",
    ):
        found = sum(feature in script for script in scripts)
        assert 0 < found < len(scripts), f"{feature!r} is in {found} of {len(scripts)} programs"
