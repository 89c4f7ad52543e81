"""Arithmetic on pairs of f32, carry chains, and values of 128 bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, elementwise, kernel, launch, load

COUNT = 256


def pairs(rng: np.random.Generator) -> np.ndarray:
    """Pairs of f32 of many magnitudes, with special values among them, as 64-bit patterns."""
    values = rng.standard_normal(2 * COUNT) * 2.0 ** rng.integers(-30, 30, 2 * COUNT)
    values = values.astype(np.float32)
    values[:8] = [np.inf, -np.inf, np.nan, 0.0, -0.0, 2.0**-149, -(2.0**-140), 3.4e38]
    return rng.permutation(values).view(np.uint64)


def floats(patterns: np.ndarray) -> np.ndarray:
    return patterns.view(np.float32)


def flushed(values: np.ndarray) -> np.ndarray:
    return np.where(np.abs(values) < 2.0**-126, np.copysign(np.float32(0), values), values)


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits, and 0x7fffffff for NaN."""
    expected = expected.astype(np.float32)
    bits = np.where(np.isnan(expected), np.uint32(0x7FFFFFFF), expected.view(np.uint32))
    np.testing.assert_array_equal(actual.view(np.uint32), bits)


OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
}


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_pairs_of_floats(rng, operation, ftz):
    a, b = pairs(rng), pairs(rng)
    instruction = f"{operation}.rn{ftz}.f32x2 {{d}}, {{0}}, {{1}}"
    actual = elementwise(instruction, np.uint64, a, b)
    flush = flushed if ftz else lambda x: x
    with np.errstate(all="ignore"):
        # The exact sum or product of two f32 may need more than f64, but the rounding of f32
        # operations by numpy is that of the hardware.
        expected = OPERATIONS[operation](flush(floats(a)), flush(floats(b)))
    same(floats(actual), flush(expected))


def test_pairs_of_floats_are_fused(rng):
    a, b = pairs(rng), pairs(rng)
    # c cancels the rounded product, so that only its error is left.
    with np.errstate(all="ignore"):
        c = -(floats(a) * floats(b))
        exact = floats(a).astype(np.longdouble) * floats(b) + c
    actual = elementwise("fma.rn.f32x2 {d}, {0}, {1}, {2}", np.uint64, a, b, c.view(np.uint64))
    same(floats(actual), exact)


def test_pairs_of_floats_round_in_each_direction(rng):
    a, b = pairs(rng), pairs(rng)
    down, up, zero = (
        floats(elementwise(f"mul.{mode}.f32x2 {{d}}, {{0}}, {{1}}", np.uint64, a, b))
        for mode in ("rm", "rp", "rz")
    )
    with np.errstate(all="ignore"):
        exact = floats(a).astype(np.float64) * floats(b)
    finite = np.isfinite(exact)
    assert finite.sum() > COUNT
    assert (down[finite] <= exact[finite]).all()
    assert (up[finite] >= exact[finite]).all()
    np.testing.assert_array_equal(zero[finite], np.where(exact < 0, up, down)[finite])
    assert (down[finite] != up[finite]).any()


def integers(rng: np.random.Generator, dtype: type, count: int = COUNT) -> np.ndarray:
    values = rng.integers(0, 256, (count, np.dtype(dtype).itemsize), dtype=np.uint8)
    values = values.view(dtype).ravel()
    values[:4] = [0, 1, np.iinfo(dtype).max, np.iinfo(dtype).max - 1]
    return rng.permutation(values)


@pytest.mark.parametrize("name", ["u32", "u64", "s32"])
@pytest.mark.parametrize("operation", ["add", "sub"])
def test_carry_chains(rng, operation, name):
    bits = int(name[1:])
    dtype = np.dtype(f"uint{bits}")
    low_a, high_a, low_b, high_b = (integers(rng, dtype) for _ in range(4))
    chain = f"{operation}.cc.{name} {{d}}, {{0}}, {{2}};\n{operation}c.{name} {{d}}, {{1}}, {{3}}"
    high = elementwise(chain, dtype, low_a, high_a, low_b, high_b)
    for i in range(COUNT):
        a = int(high_a[i]) << bits | int(low_a[i])
        b = int(high_b[i]) << bits | int(low_b[i])
        exact = a + b if operation == "add" else a - b
        assert int(high[i]) == exact >> bits & ((1 << bits) - 1)


@pytest.mark.parametrize("name", ["u32", "s32", "u64", "s64"])
def test_multiplication_with_carry(rng, name):
    bits = int(name[1:])
    dtype = np.dtype(f"{'int' if name[0] == 's' else 'uint'}{bits}")
    a, b, low = (integers(rng, dtype) for _ in range(3))
    chain = f"mad.lo.cc.{name} {{d}}, {{0}}, {{1}}, {{2}};\nmadc.hi.{name} {{d}}, {{0}}, {{1}}, 0"
    high = elementwise(chain, dtype, a, b, low)
    mask = (1 << bits) - 1
    for i in range(COUNT):
        product = int(a[i]) * int(b[i])
        carry = ((product & mask) + (int(low[i]) & mask)) >> bits
        assert int(high[i]) & mask == ((product >> bits) + carry) & mask


def test_a_carry_that_goes_on(rng):
    a, b = integers(rng, np.uint32), integers(rng, np.uint32)
    chain = "add.cc.u32 {d}, {0}, {1};\naddc.cc.u32 {d}, 0xffffffff, 0;\naddc.u32 {d}, 5, 0"
    carries = (a.astype(np.uint64) + b) >> 32
    np.testing.assert_array_equal(elementwise(chain, np.uint32, a, b), 5 + carries)


PLACES = """
.reg .b128 %w<3>;
mul.wide.u32 %d1, %t, 16;
add.u64 %d2, %p0, %d1;
add.u64 %d3, %p1, %d1;
ld.global.b128 %w1, [%d2];
"""


def run_wide(body: str, *arrays: np.ndarray) -> list[np.ndarray]:
    return launch(kernel(2, PLACES + body), list(arrays), block=(32, 1, 1))


def test_128_bits_move_between_memory_and_registers(rng):
    source = rng.integers(0, 1 << 63, (32, 2), dtype=np.uint64)
    body = "mov.b128 {%d4, %d5}, %w1;\nmov.b128 %w2, {%d5, %d4};\nst.global.b128 [%d3], %w2;"
    _, result = run_wide(body, source, np.zeros((32, 2), np.uint64))
    np.testing.assert_array_equal(result, source[:, ::-1])


def test_atomic_exchange_of_128_bits(rng):
    source = rng.integers(0, 1 << 63, (32, 2), dtype=np.uint64)
    target = rng.integers(0, 1 << 63, (32, 2), dtype=np.uint64)
    body = "atom.global.exch.b128 %w2, [%d3], %w1;\nst.global.b128 [%d2], %w2;"
    first, second = run_wide(body, source, target)
    np.testing.assert_array_equal(first, target)
    np.testing.assert_array_equal(second, source)


def test_compare_and_swap_of_128_bits(rng):
    source = rng.integers(0, 1 << 63, (32, 2), dtype=np.uint64)
    target = source.copy()
    target[::2, 1] ^= 1  # differs in the upper half only
    body = """
mov.b128 %w2, {%d2, %d3};
atom.global.cas.b128 %w2, [%d3], %w1, %w2;
st.global.b128 [%d2], %w2;
"""
    first, second = run_wide(body, source, target)
    np.testing.assert_array_equal(first, target)
    np.testing.assert_array_equal(second[::2], target[::2])
    assert (second[1::2] != target[1::2]).any(axis=1).all()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("mov.b64 %d1, %w1;", "128"),
        ("add.u32 %w1, %r1, %r2;", "a register of 128 bits takes .b128"),
        ("atom.global.add.b128 %w1, [%d1], %w1;", "128 bits are for .exch and .cas"),
        ("mov.b128 %w1, {%r1, %r2, %r3, %r4};", "128 bits are two of 64"),
        ("mov.b128 %w1, 5;", "a literal has 64 bits at most"),
    ],
)
def test_misuse_of_128_bits(body, reason):
    with pytest.raises(EmulatorError, match=reason):
        load(kernel(0, ".reg .b128 %w<3>;\n" + body))


@pytest.mark.parametrize("shape", ["v8.b32", "v4.b64"])
def test_256_bits_at_a_time(rng, shape):
    source = rng.integers(0, 1 << 63, (32, 4), dtype=np.uint64)
    prefix, count = ("%r", 8) if shape == "v8.b32" else ("%d", 4)
    registers = ", ".join(f"{prefix}{i}" for i in range(10, 10 + count))
    body = f"""
mul.wide.u32 %d1, %t, 32;
add.u64 %d2, %p0, %d1;
add.u64 %d3, %p1, %d1;
ld.global.L2::evict_first.{shape} {{{registers}}}, [%d2];
st.global.{shape} [%d3], {{{registers}}};
"""
    result = launch(kernel(2, body), [source, np.zeros_like(source)], block=(32, 1, 1))[1]
    np.testing.assert_array_equal(result, source)
