"""Hand-written tile programs: the interpreter against numpy, printing and parsing."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi

import tile_programs
from warploom import language as wl

CASES = {
    f"gemm {layout} {dtype}": lambda layout=layout, dtype=dtype: tile_programs.gemm(
        layout=layout, dtype=dtype
    )
    for layout in ("NT", "NN", "TN", "TT")
    for dtype in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")
} | {
    "gemm ragged": lambda: tile_programs.gemm(100, 72, 40),
    "gemm ragged TN": lambda: tile_programs.gemm(100, 72, 40, layout="TN"),
    "gemm symbolic": lambda: tile_programs.gemm(70, 64, 64, symbolic=True),
    "gemm symbolic TT": lambda: tile_programs.gemm(130, 64, 64, layout="TT", symbolic=True),
    "gemm one tile": lambda: tile_programs.gemm(64, 64, 32),
    "gemm bfloat16 out": lambda: tile_programs.gemm(out_dtype="bfloat16"),
    "gemm float8 out": lambda: tile_programs.gemm(out_dtype="float8_e4m3fn", k=8),
    "gemm stages": lambda: tile_programs.gemm(stages=4),
}


def mismatches(case: tile_programs.Case, arguments: list) -> dict[int, float]:
    """For each output, its largest error as a fraction of what is allowed."""
    found = {}
    for index, expected in case.expected(arguments).items():
        error = np.abs(arguments[index].astype(np.float64) - expected)
        allowed = case.tolerance * np.abs(expected).max(initial=0.0)
        worst = error.max(initial=0.0)
        found[index] = worst / allowed if allowed else float(worst != 0)
    return found


@pytest.mark.parametrize("name", CASES)
def test_interpreter_agrees_with_numpy(name, rng):
    case = CASES[name]()
    arguments = case.arguments(rng)
    untouched = [np.copy(a) for a in arguments]
    wl.interpret(case.func, arguments)
    worst = mismatches(case, arguments)
    assert worst and all(fraction <= 1 for fraction in worst.values()), worst
    for index, before in enumerate(untouched):
        if index not in worst:
            np.testing.assert_array_equal(arguments[index], before)


@pytest.mark.parametrize("name", CASES)
def test_program_survives_printing(name):
    func = CASES[name]().func
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)
