"""redux of floats: one result for all lanes of a warp."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, elementwise, kernel, load


def lanes(rng: np.random.Generator, special: list[float]) -> np.ndarray:
    values = (rng.standard_normal(32) * 2.0 ** rng.integers(-20, 20, 32)).astype(np.float32)
    values[: len(special)] = special
    return rng.permutation(values)


@pytest.mark.parametrize("special", [[], [np.nan, np.nan], [-np.inf], [np.nan, np.inf]])
@pytest.mark.parametrize("nan", ["", ".NaN"])
@pytest.mark.parametrize("absolute", ["", ".abs"])
@pytest.mark.parametrize("operation", ["min", "max"])
def test_extremum_of_a_warp(rng, operation, absolute, nan, special):
    values = lanes(rng, special)
    instruction = f"redux.sync.{operation}{absolute}{nan}.f32 {{d}}, {{0}}, 0xffffffff"
    actual = elementwise(instruction, np.uint32, values)
    operands = np.abs(values) if absolute else values
    reduce = {"min": np.fmin, "max": np.fmax}[operation].reduce
    expected = np.float32(reduce(operands)).view(np.uint32)
    if nan and np.isnan(operands).any():
        expected = np.uint32(0x7FFFFFFF)
    np.testing.assert_array_equal(actual, expected)


def test_zeros_have_an_order_and_nothing_but_nan_is_nan():
    zeros = np.where(np.arange(32) % 2, np.float32(-0.0), np.float32(0.0))
    for operation, bits in (("min", 0x80000000), ("max", 0)):
        instruction = f"redux.sync.{operation}.f32 {{d}}, {{0}}, 0xffffffff"
        np.testing.assert_array_equal(elementwise(instruction, np.uint32, zeros), bits)
        nothing = np.full(32, np.nan, np.float32)
        np.testing.assert_array_equal(elementwise(instruction, np.uint32, nothing), 0x7FFFFFFF)


def test_sums_of_floats_do_not_exist():
    with pytest.raises(EmulatorError, match=r"for \.min\.f32 and \.max\.f32"):
        load(kernel(0, "redux.sync.add.f32 %r1, %r2, 0xffffffff;"))
