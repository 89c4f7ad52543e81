"""Hand-written tile programs: the interpreter against numpy, printing and parsing."""

from __future__ import annotations

import functools
import itertools
from functools import partial

import numpy as np
import pytest
import tvm
import tvm_ffi

from tests.shared import tile_programs
from warploom import language as wl

_OPERANDS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")
CASES = {
    **{
        f"gemm {layout} {dtype}": partial(tile_programs.gemm, layout=layout, dtype=dtype)
        for layout, dtype in itertools.product(("NT", "NN", "TN", "TT"), _OPERANDS)
    },
    "gemm ragged": partial(tile_programs.gemm, 100, 72, 40),
    "gemm ragged TN": partial(tile_programs.gemm, 100, 72, 40, layout="TN"),
    "gemm symbolic": partial(tile_programs.gemm, 70, 64, 64, symbolic=True),
    "gemm symbolic TT": partial(tile_programs.gemm, 130, 64, 64, layout="TT", symbolic=True),
    "gemm one tile": partial(tile_programs.gemm, 64, 64, 32),
    "gemm bfloat16 out": partial(tile_programs.gemm, out_dtype="bfloat16"),
    "gemm float8 out": partial(tile_programs.gemm, out_dtype="float8_e4m3fn", k=8),
    "gemm stages": partial(tile_programs.gemm, stages=4),
    **{
        f"epilogue {kind}": partial(tile_programs.epilogue, kind)
        for kind in tile_programs.EPILOGUES
    },
    "epilogue bfloat16": partial(tile_programs.epilogue, "gelu", dtype="bfloat16", stages=3),
    "two outputs": tile_programs.two_outputs,
    "row sums": tile_programs.row_sums,
    "dequantised int8": partial(tile_programs.dequantised, 8),
    "dequantised int4": partial(tile_programs.dequantised, 4),
    "dequantised int4 group": partial(tile_programs.dequantised, 4, group=128, stages=2),
    "dequantised int8 fragment": partial(tile_programs.dequantised, 8, through="fragment"),
    "dequantised int4 fragment": partial(tile_programs.dequantised, 4, through="fragment"),
    "block scaled": tile_programs.block_scaled,
    "block scaled float16": partial(tile_programs.block_scaled, 64, 128, 128, out_dtype="float16"),
    "grouped": tile_programs.grouped,
    "grouped even": partial(tile_programs.grouped, (64, 64), stages=2),
    "swiglu": tile_programs.swiglu,
    "swiglu bfloat16": partial(tile_programs.swiglu, dtype="bfloat16", stages=3),
    "attention": tile_programs.attention,
    "attention causal": partial(tile_programs.attention, causal=True),
    "attention 128": partial(tile_programs.attention, 130, 128, causal=True, tile=(64, 32)),
    "attention groups": partial(tile_programs.attention, 64, 64, 6, 2, batch=2, stages=2),
    "attention wide": partial(tile_programs.attention, 200, tile=(128, 64), causal=True),
    "attention bfloat16": partial(tile_programs.attention, 64, dtype="bfloat16"),
}


@functools.cache
def build(name: str) -> tile_programs.Case:
    return CASES[name]()


def worst_errors(case: tile_programs.Case, arguments: list) -> dict[int, float]:
    """For each output, its largest error as a fraction of what is allowed."""
    found = {}
    for index, expected in case.expected(arguments).items():
        error = np.abs(arguments[index].astype(np.float64) - expected)
        allowed = case.tolerance * np.abs(expected).max(initial=0.0)
        worst = error.max(initial=0.0)
        found[index] = worst / allowed if allowed else float(worst != 0)
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.some(12)
def test_interpreter_agrees_with_numpy(name, rng):
    case = build(name)
    arguments = case.arguments(rng)
    before = [np.copy(a) for a in arguments]
    wl.interpret(case.func, arguments)
    worst = worst_errors(case, arguments)
    assert worst and all(fraction <= 1 for fraction in worst.values()), worst
    for index in set(range(len(before))) - set(worst):
        np.testing.assert_array_equal(arguments[index], before[index])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.some(12)
def test_program_is_short_and_survives_printing(name):
    func = build(name).func
    script = func.script()
    assert len(script.splitlines()) <= 60
    assert tvm_ffi.structural_equal(tvm.script.from_source(script), func)
