"""Conversions to and from ue8m0x2, the scale factors of block-scaled formats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, elementwise, kernel, load

COUNT = 512


def values(rng: np.random.Generator, dtype: np.dtype) -> np.ndarray:
    """Values of every magnitude of the type and both signs, powers of two and special ones."""
    exponents = rng.integers(-140, 128, COUNT)
    result = np.ldexp(rng.uniform(1, 2, COUNT), exponents) * rng.choice([-1, 1], COUNT)
    result[: COUNT // 4] = np.ldexp(1.0, exponents[: COUNT // 4])
    special = [0, np.inf, -np.inf, np.nan, 2.0**-127, 2.0**-126, 2.0**-128, 3.38e38, 2.0**127]
    result[-len(special) :] = special
    with np.errstate(over="ignore"):
        return result.astype(np.float32).astype(dtype)


def expected_scale(x: np.ndarray, up: bool, satfinite: bool) -> np.ndarray:
    """Exponents by the logarithm of the magnitude, in f64."""
    size = np.abs(x.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        mantissa, exponent = np.frexp(size)  # size = mantissa * 2**exponent, mantissa in [0.5, 1)
    floor = exponent - 1
    power = np.where(up & (mantissa != 0.5), floor + 1, floor)
    power = np.where(size == 0, -127, np.clip(power, -127, 128))
    power = np.where(np.isinf(size), 128, power)
    if satfinite:
        power = np.minimum(power, 127)
    return np.where(np.isnan(size), 255, power + 127).astype(np.uint8)


@pytest.mark.parametrize("satfinite", [False, True])
@pytest.mark.parametrize("rounding", ["rz", "rp"])
def test_scales_of_floats(rng, rounding, satfinite):
    high, low = values(rng, np.float32), rng.permutation(values(rng, np.float32))
    modifiers = rounding + (".satfinite" if satfinite else "")
    instruction = f"cvt.{modifiers}.ue8m0x2.f32 {{d}}, {{0}}, {{1}}"
    actual = elementwise(instruction, np.uint16, high, low)
    up = rounding == "rp"
    np.testing.assert_array_equal(actual >> 8, expected_scale(high, up, satfinite))
    np.testing.assert_array_equal(actual & 255, expected_scale(low, up, satfinite))


@pytest.mark.parametrize("satfinite", [False, True])
@pytest.mark.parametrize("rounding", ["rz", "rp"])
def test_scales_of_bf16(rng, rounding, satfinite):
    bf16 = np.dtype(ml_dtypes.bfloat16)
    pairs = values(rng, bf16).reshape(-1, 2)
    modifiers = rounding + (".satfinite" if satfinite else "")
    packed = np.ascontiguousarray(pairs).view(np.uint32).ravel()
    actual = elementwise(f"cvt.{modifiers}.ue8m0x2.bf16x2 {{d}}, {{0}}", np.uint16, packed)
    expected = expected_scale(pairs.astype(np.float32), rounding == "rp", satfinite)
    np.testing.assert_array_equal(actual.view(np.uint8).reshape(-1, 2), expected)


def test_bf16_of_scales():
    scales = np.arange(256, dtype=np.uint16)
    actual = elementwise("cvt.rn.bf16x2.ue8m0x2 {d}, {0}", np.uint32, scales | (255 - scales) << 8)
    halves = actual.view(ml_dtypes.bfloat16).reshape(-1, 2).astype(np.float64)
    expected = np.ldexp(1.0, np.arange(256) - 127)
    expected[255] = np.nan
    np.testing.assert_array_equal(halves[:, 0], expected)
    np.testing.assert_array_equal(halves[:, 1], expected[::-1])


@pytest.mark.parametrize(
    "instruction",
    [
        "cvt.rn.ue8m0x2.f32 %h1, %r1, %r2",
        "cvt.rz.bf16x2.ue8m0x2 %r1, %h1",
        "cvt.rp.ue8m0x2.f16x2 %h1, %r1",
    ],
)
def test_conversions_that_do_not_exist(instruction):
    with pytest.raises(EmulatorError, match=r"needs \.rz or \.rp, and to \.bf16x2 \.rn"):
        load(kernel(0, f"{instruction};"))
