"""``cvt.rs``: results are neighbours of the exact value, and as likely as they are near."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, elementwise

#: Of a type: numbers in a result, bits of the place of one, random bits, and the decoder of one.
COUNT = 1024


def minifloat(exponent: int, mantissa: int, top: int) -> np.ndarray:
    """The finite numbers that are not negative, by their bits."""
    bits = np.arange(top + 1)
    fields, rest = bits >> mantissa, bits & ((1 << mantissa) - 1)
    bias = (1 << (exponent - 1)) - 1
    significand = np.where(fields > 0, rest + (1 << mantissa), rest)
    return significand * 2.0 ** (np.maximum(fields, 1) - bias - mantissa)


FORMATS = {
    "f16": (2, 16, 13, minifloat(5, 10, 0x7BFF)),
    "bf16": (2, 16, 16, minifloat(8, 7, 0x7F7F)),
    "e4m3": (4, 8, 8, minifloat(4, 3, 0x7E)),
    "e5m2": (4, 8, 8, minifloat(5, 2, 0x7B)),
    "e2m3": (4, 8, 8, minifloat(2, 3, 0x1F)),
    "e3m2": (4, 8, 8, minifloat(3, 2, 0x1F)),
    "e2m1": (4, 4, 8, minifloat(2, 1, 0x7)),
}


def convert(kind: str, inputs: np.ndarray, random: np.ndarray, modifiers: str = "") -> np.ndarray:
    """Codes of ``inputs``, an array with a row for each number of a result, the topmost first."""
    count, place, _, _ = FORMATS[kind]
    packed = f"{kind}x{count}"
    if count == 4:
        text = f"cvt.rs{modifiers}.satfinite.{packed}.f32 {{d}}, {{{{{{0}}, {{1}}, {{2}}, {{3}}}}}}"
        text += ", {4}"
    else:
        text = f"cvt.rs{modifiers}.{packed}.f32 {{d}}, {{0}}, {{1}}, {{2}}"
    dtype = np.uint16 if count * place == 16 else np.uint32
    words = elementwise(text, dtype, *inputs, random, arch="sm_100a").astype(np.uint64)
    shifts = place * np.arange(count - 1, -1, -1, dtype=np.uint64)
    return words >> shifts[:, None] & np.uint64((1 << place) - 1)


def values_of(kind: str, codes: np.ndarray) -> np.ndarray:
    numbers = FORMATS[kind][3]
    width = {"e2m1": 4, "e2m3": 6, "e3m2": 6}.get(kind, FORMATS[kind][1])
    sign = 1 << (width - 1)
    codes = codes.astype(np.int64)
    return np.where(codes & sign, -1.0, 1.0) * numbers[codes & (sign - 1)]


def samples(rng: np.random.Generator, kind: str, count: int = COUNT) -> np.ndarray:
    """Numbers within the range of a format, subnormal ones among them."""
    numbers = FORMATS[kind][3]
    low, high = np.log2(numbers[1]) - 3, np.log2(numbers[-1])
    magnitudes = 2.0 ** rng.uniform(low, high, (FORMATS[kind][0], count))
    return (magnitudes * rng.choice([-1, 1], magnitudes.shape)).astype(np.float32)


@pytest.mark.parametrize("kind", FORMATS)
def test_results_are_one_of_the_two_neighbours(rng, kind):
    inputs = samples(rng, kind)
    random = rng.integers(0, 1 << 32, COUNT, dtype=np.uint32)
    got = values_of(kind, convert(kind, inputs, random))
    numbers, magnitudes = FORMATS[kind][3], np.abs(inputs.astype(np.float64))
    below = np.searchsorted(numbers, magnitudes, side="right") - 1
    above = np.where(numbers[below] == magnitudes, below, np.minimum(below + 1, len(numbers) - 1))
    is_neighbour = (np.abs(got) == numbers[below]) | (np.abs(got) == numbers[above])
    assert is_neighbour.all()
    assert ((np.sign(got) == np.sign(inputs)) | (got == 0)).all()


@pytest.mark.parametrize("kind", FORMATS)
def test_the_probability_of_rounding_up_is_the_fraction(rng, kind):
    """All values of the random bits of an element, in order: so many of them round up."""
    count, _, bits, numbers = FORMATS[kind]
    cases = 1024
    for place in range(count):
        index = int(rng.integers(1, min(len(numbers) - 1, 200)))
        fraction = float(rng.integers(1, 64)) / 64
        exact = numbers[index] + fraction * (numbers[index + 1] - numbers[index])
        inputs = np.zeros((count, cases), np.float32)
        inputs[place] = exact
        step = max((1 << bits) // cases, 1)
        values = (np.arange(cases) * step % (1 << bits)).astype(np.uint32)
        # The other bits are noise, which must not matter.
        stride = 32 // count
        shift = np.uint32(stride * (count - 1 - place))
        noise = rng.integers(0, 1 << 32, cases, dtype=np.uint32)
        field = np.uint32(((1 << bits) - 1) << int(shift))
        random = (noise & ~field) | values << shift
        got = values_of(kind, convert(kind, inputs, random))[place]
        share = (got == numbers[index + 1]).mean()
        assert ((got == numbers[index]) | (got == numbers[index + 1])).all()
        assert abs(share - fraction) <= 2 / cases, (kind, place, exact)


@pytest.mark.parametrize("kind", FORMATS)
def test_numbers_of_the_format_do_not_change(rng, kind):
    count, _, _, numbers = FORMATS[kind]
    inputs = rng.choice(numbers, (count, COUNT)).astype(np.float32)
    random = rng.integers(0, 1 << 32, COUNT, dtype=np.uint32)
    np.testing.assert_array_equal(values_of(kind, convert(kind, inputs, random)), inputs)


@pytest.mark.parametrize("kind", FORMATS)
def test_relu_and_numbers_beyond_the_format(rng, kind):
    count, _, _, numbers = FORMATS[kind]
    random = rng.integers(0, 1 << 32, COUNT, dtype=np.uint32)
    inputs = samples(rng, kind)
    plain, rectified = (convert(kind, inputs, random, m) for m in ("", ".relu"))
    np.testing.assert_array_equal(rectified, np.where(inputs < 0, 0, plain))
    large = np.full((count, COUNT), np.inf, np.float32)
    modifiers = "" if count == 4 else ".satfinite"
    np.testing.assert_array_equal(
        values_of(kind, convert(kind, large, random, modifiers)), numbers[-1]
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cvt.rs.e4m3x4.f32 {d}, {{{0}, {0}, {0}, {0}}}, {0}", "takes .satfinite"),
        ("cvt.rs.satfinite.e4m3x4.f32 {d}, {{{0}, {0}}}, {0}", "wrong number of registers"),
        ("cvt.rs.tf32.f32 {d}, {0}, {0}, {0}", "rounds .f32 to"),
        ("cvt.rs.f16x2.f32 {d}, {0}, {0}", "3 operands"),
    ],
)
def test_what_the_isa_does_not_have(text, reason):
    with pytest.raises(EmulatorError, match=reason):
        elementwise(text, np.uint32, np.zeros(32, np.uint32), arch="sm_100a")
