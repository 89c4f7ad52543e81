"""``setp`` and ``set`` of 16-bit floats, alone and in pairs, against numpy; also ``min``/``max`` of
three numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, elementwise

COUNT = 512
COMPARISONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": lambda a, b: a < b,
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~np.isnan(a) & ~np.isnan(b),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
ONE = {"f16": 0x3C00, "bf16": 0x3F80}


def halves(rng: np.random.Generator, count: int = COUNT) -> np.ndarray:
    """Random bits: every class of numbers, and pairs that are equal."""
    bits = rng.integers(0, 1 << 16, count, dtype=np.uint16)
    edges = np.array([0, 0x8000, 1, 0x8001, 0x7C00, 0x7F80, 0x7FFF, 0xFFFF, 0x3C00], np.uint16)
    return np.where(rng.random(count) < 0.3, rng.choice(edges, count), bits)


@np.errstate(invalid="ignore")
def numbers(bits: np.ndarray, kind: str, flush: bool = False) -> np.ndarray:
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if flush:
        bits = np.where(bits & 0x7C00 == 0, bits & 0x8000, bits).astype(np.uint16)
    return bits.view(np.float16).astype(np.float64)


@pytest.mark.parametrize("comparison", COMPARISONS)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_results_of_one_comparison(rng, kind, comparison):
    a, b = halves(rng), halves(rng)
    expected = COMPARISONS[comparison](numbers(a, kind), numbers(b, kind))
    for result, true in (("u16", 0xFFFF), ("s32", 0xFFFFFFFF), (kind, ONE[kind])):
        dtype = np.uint32 if result == "s32" else np.uint16
        got = elementwise(f"set.{comparison}.{result}.{kind} {{d}}, {{0}}, {{1}}", dtype, a, b)
        np.testing.assert_array_equal(got, np.where(expected, true, 0))
    text = f"setp.{comparison}.{kind} %q1, {{0}}, {{1}}; selp.b32 {{d}}, 1, 0, %q1"
    np.testing.assert_array_equal(elementwise(text, np.uint32, a, b), expected)


@pytest.mark.parametrize("combine", ["", "and", "or", "xor"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_pairs_are_two_comparisons(rng, kind, combine):
    a, b = (halves(rng).reshape(-1, 2).copy() for _ in range(2))
    results = COMPARISONS["lt"](numbers(a, kind), numbers(b, kind))
    choice = rng.integers(0, 2, len(a), dtype=np.uint32)
    if combine:
        operation = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[combine]
        results = operation(results, choice[:, None])
    words = [x.view(np.uint32).ravel() for x in (a, b)]
    dot = f".{combine}" if combine else ""
    third = ", %q2" if combine else ""
    start = "setp.ne.u32 %q2, {2}, 0; "
    for result, true in (("u32", 0xFFFF), (f"{kind}x2", ONE[kind])):
        text = f"{start}set.lt{dot}.{result}.{kind}x2 {{d}}, {{0}}, {{1}}{third}"
        got = elementwise(text, np.uint32, *words, choice).view(np.uint16).reshape(-1, 2)
        np.testing.assert_array_equal(got, np.where(results, true, 0))
    text = (
        f"{start}setp.lt{dot}.{kind}x2 %q0|%q1, {{0}}, {{1}}{third}; selp.b32 {{d}}, 1, 0, %q0; "
        "@%q1 add.u32 {d}, {d}, 2"
    )
    got = elementwise(text, np.uint32, *words, choice)
    np.testing.assert_array_equal(got, results[:, 0] + 2 * results[:, 1])


def test_ftz_makes_subnormal_f16_zeros(rng):
    a = rng.integers(0, 0x800, COUNT, dtype=np.uint16)
    b = rng.integers(0, 0x800, COUNT, dtype=np.uint16) | np.uint16(0x8000)
    got = elementwise("set.gt.ftz.u16.f16 {d}, {0}, {1}", np.uint16, a, b)
    expected = numbers(a, "f16", flush=True) > numbers(b, "f16", flush=True)
    assert 0 < expected.sum() < COUNT
    np.testing.assert_array_equal(got, np.where(expected, 0xFFFF, 0))


@pytest.mark.parametrize("result", ["f16", "bf16"])
def test_halves_can_be_the_result_of_comparing_other_types(rng, result):
    a, b = (rng.integers(-4, 4, COUNT, dtype=np.int32) for _ in range(2))
    got = elementwise(f"set.le.{result}.s32 {{d}}, {{0}}, {{1}}", np.uint16, a, b)
    np.testing.assert_array_equal(got, np.where(a <= b, ONE[result], 0))


@pytest.mark.parametrize(
    "text",
    [
        "setp.lt.f16 %q1|%q2, {0}, {0}",
        "set.lt.ftz.u16.bf16 {d}, {0}, {0}",
        "set.lt.f32.f16 %r1, {0}, {0}",
        "set.lt.u16.s16 {d}, {0}, {0}",
        "max.f16 {d}, {0}, {0}, {0}",
    ],
)
def test_what_the_isa_does_not_have(text):
    with pytest.raises(EmulatorError, match=rf"line \d+: '{text.split()[0]}'"):
        elementwise(text, np.uint16, np.zeros(32, np.uint16))


@np.errstate(invalid="ignore")
def extremum(name: str, modifiers: str, operands: list[np.ndarray]) -> np.ndarray:
    """The least or largest of some f32, a NaN only where ``.NaN`` or all operands make it so."""
    values = np.stack(operands)
    if ".ftz" in modifiers:
        values = np.where(np.abs(values) < np.float32(2**-126), np.copysign(0, values), values)
    if ".abs" in modifiers:
        values = np.abs(values)
    nan = np.isnan(values)
    sign = 1 if name == "max" else -1
    # Zeros are ordered by sign: by it, if the numbers are equal.
    keys = np.where(nan, -np.inf, sign * values.astype(np.float64))
    ties = np.where(nan, -np.inf, np.where(np.signbit(values), -sign, sign))
    best = np.lexsort((ties, keys), axis=0)[-1]
    result = np.take_along_axis(values, best[None], 0)[0].astype(np.float32)
    lost = nan.any(0) if ".NaN" in modifiers else nan.all(0)
    return np.where(lost, np.uint32(0x7FFFFFFF), result.view(np.uint32))


@pytest.mark.parametrize("modifiers", ["", ".ftz", ".NaN", ".abs", ".ftz.NaN.abs"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremum_of_three(rng, name, modifiers):
    edges = np.array([0, 0x80000000, 1, 0x80000001, 0x7F800000, 0x7FC00001, 0xFFFFFFFF], np.uint32)
    operands = []
    for _ in range(3):
        bits = rng.integers(0, 1 << 32, COUNT, dtype=np.uint32)
        bits = np.where(rng.random(COUNT) < 0.4, rng.choice(edges, COUNT), bits)
        operands.append(bits.view(np.float32))
    text = f"{name}{modifiers}.f32 {{d}}, {{0}}, {{1}}, {{2}}"
    got = elementwise(text, np.float32, *operands, arch="sm_100a").view(np.uint32)
    np.testing.assert_array_equal(got, extremum(name, modifiers, operands))
