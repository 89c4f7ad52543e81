"""Arithmetic of the emulator against numpy, on random values and on the values at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import elementwise

COUNT = 256
INTEGERS = ("s16", "u16", "s32", "u32", "s64", "u64")
DTYPES = {name: np.dtype(f"{'int' if name[0] == 's' else 'uint'}{name[1:]}") for name in INTEGERS}


def integers(rng: np.random.Generator, dtype: np.dtype, count: int = COUNT) -> np.ndarray:
    """Random bits, with the extreme values among them."""
    values = rng.integers(0, 256, (count, dtype.itemsize), dtype=np.uint8).view(dtype).ravel()
    info = np.iinfo(dtype)
    edges = [0, 1, info.min, info.max, info.max - 1]
    values[: len(edges)] = edges
    return rng.permutation(values)


def as_python(values: np.ndarray) -> list[int]:
    return [int(value) for value in values]


def wrapped(values: list[int], dtype: np.dtype) -> np.ndarray:
    """Python integers modulo 2**bits, as ``dtype``."""
    bits = 8 * dtype.itemsize
    unsigned = np.array([value % (1 << bits) for value in values], dtype=f"uint{bits}")
    return unsigned.view(dtype)


BINARY = {
    "add": lambda a, b, bits: a + b,
    "sub": lambda a, b, bits: a - b,
    "mul.lo": lambda a, b, bits: a * b,
    "mul.hi": lambda a, b, bits: (a * b) >> bits,
    "min": lambda a, b, bits: min(a, b),
    "max": lambda a, b, bits: max(a, b),
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("operation", BINARY)
def test_integer_binary(rng, operation, name):
    dtype = DTYPES[name]
    a, b = integers(rng, dtype), integers(rng, dtype)
    actual = elementwise(f"{operation}.{name} {{d}}, {{0}}, {{1}}", dtype, a, b)
    reference = BINARY[operation]
    pairs = zip(as_python(a), as_python(b), strict=True)
    expected = wrapped([reference(x, y, 8 * dtype.itemsize) for x, y in pairs], dtype)
    np.testing.assert_array_equal(actual, expected)


def truncated_division(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_division_truncates(rng, name):
    dtype = DTYPES[name]
    a, b = integers(rng, dtype), integers(rng, dtype)
    b[b == 0] = 3
    pairs = list(zip(as_python(a), as_python(b), strict=True))
    quotients = [truncated_division(x, y) for x, y in pairs]
    actual = elementwise(f"div.{name} {{d}}, {{0}}, {{1}}", dtype, a, b)
    np.testing.assert_array_equal(actual, wrapped(quotients, dtype))
    remainders = [x - q * y for (x, y), q in zip(pairs, quotients, strict=True)]
    actual = elementwise(f"rem.{name} {{d}}, {{0}}, {{1}}", dtype, a, b)
    np.testing.assert_array_equal(actual, wrapped(remainders, dtype))


@pytest.mark.parametrize("name", ("s16", "u16", "s32", "u32"))
def test_wide_products_are_exact(rng, name):
    dtype = DTYPES[name]
    wide = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")
    a, b, c = integers(rng, dtype), integers(rng, dtype), integers(rng, wide)
    rows = list(zip(as_python(a), as_python(b), as_python(c), strict=True))
    actual = elementwise(f"mul.wide.{name} {{d}}, {{0}}, {{1}}", wide, a, b)
    np.testing.assert_array_equal(actual, wrapped([x * y for x, y, _ in rows], wide))
    actual = elementwise(f"mad.wide.{name} {{d}}, {{0}}, {{1}}, {{2}}", wide, a, b, c)
    np.testing.assert_array_equal(actual, wrapped([x * y + z for x, y, z in rows], wide))


@pytest.mark.parametrize("name", INTEGERS)
def test_shifts_by_any_amount(rng, name):
    dtype = DTYPES[name]
    bits = 8 * dtype.itemsize
    a = integers(rng, dtype)
    n = rng.integers(0, 2 * bits, COUNT, dtype=np.uint32)
    rows = list(zip(as_python(a), as_python(n), strict=True))
    actual = elementwise(f"shr.{name} {{d}}, {{0}}, {{1}}", dtype, a, n)
    np.testing.assert_array_equal(actual, wrapped([x >> s for x, s in rows], dtype))
    actual = elementwise(f"shl.b{bits} {{d}}, {{0}}, {{1}}", dtype, a, n)
    np.testing.assert_array_equal(actual, wrapped([x << s for x, s in rows], dtype))


@pytest.mark.parametrize("table", (0x00, 0xFF, 0x80, 0x96, 0xE8, 0x1B))
def test_lop3_is_its_truth_table(rng, table):
    a, b, c = (integers(rng, np.dtype(np.uint32)) for _ in range(3))
    actual = elementwise(f"lop3.b32 {{d}}, {{0}}, {{1}}, {{2}}, {table}", np.uint32, a, b, c)
    expected = np.zeros_like(a)
    for bit in range(32):
        index = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)
        expected |= (np.uint32(table) >> index & 1) << np.uint32(bit)
    np.testing.assert_array_equal(actual, expected)


def test_prmt_selects_bytes_and_signs(rng):
    a, b, selector = (integers(rng, np.dtype(np.uint32)) for _ in range(3))
    actual = elementwise("prmt.b32 {d}, {0}, {1}, {2}", np.uint32, a, b, selector)
    expected = []
    for x, y, s in zip(as_python(a), as_python(b), as_python(selector), strict=True):
        source = x.to_bytes(4, "little") + y.to_bytes(4, "little")
        nibbles = [s >> 4 * i & 15 for i in range(4)]
        chosen = [source[n & 7] if n < 8 else 0xFF * (source[n & 7] >> 7) for n in nibbles]
        expected.append(int.from_bytes(bytes(chosen), "little"))
    np.testing.assert_array_equal(actual, np.array(expected, np.uint32))


@pytest.mark.parametrize("name", ("s32", "u32", "s64", "u64"))
def test_bit_fields(rng, name):
    dtype = DTYPES[name]
    bits = 8 * dtype.itemsize
    a, b = integers(rng, dtype), integers(rng, dtype)
    position = rng.integers(0, bits + 8, COUNT, dtype=np.uint32)
    length = rng.integers(0, bits + 8, COUNT, dtype=np.uint32)
    extracted, inserted = [], []
    columns = zip(*map(as_python, (a, b, position, length)), strict=True)
    for x, y, start, count in columns:
        unsigned = x % (1 << bits)
        sign = 0
        if name[0] == "s" and count:
            sign = unsigned >> min(start + count - 1, bits - 1) & 1
        field = [
            unsigned >> (start + i) & 1 if i < count and start + i < bits else sign
            for i in range(bits)
        ]
        extracted.append(sum(bit << i for i, bit in enumerate(field)))
        mask = ((1 << count) - 1) << start
        inserted.append((y & ~mask) | ((unsigned << start) & mask))
    actual = elementwise(f"bfe.{name} {{d}}, {{0}}, {{1}}, {{2}}", dtype, a, position, length)
    np.testing.assert_array_equal(actual, wrapped(extracted, dtype))
    instruction = f"bfi.b{bits} {{d}}, {{0}}, {{1}}, {{2}}, {{3}}"
    actual = elementwise(instruction, dtype, a, b, position, length)
    np.testing.assert_array_equal(actual, wrapped(inserted, dtype))


@pytest.mark.parametrize("bits", (32, 64))
def test_bit_counts(rng, bits):
    dtype = np.dtype(f"uint{bits}")
    a = integers(rng, dtype) >> rng.integers(0, bits, COUNT).astype(dtype)
    actual = elementwise(f"popc.b{bits} {{d}}, {{0}}", np.uint32, a)
    np.testing.assert_array_equal(actual, [value.bit_count() for value in as_python(a)])
    actual = elementwise(f"clz.b{bits} {{d}}, {{0}}", np.uint32, a)
    np.testing.assert_array_equal(actual, [bits - value.bit_length() for value in as_python(a)])
    actual = elementwise(f"brev.b{bits} {{d}}, {{0}}", dtype, a)
    expected = [int(f"{value:0{bits}b}"[::-1], 2) for value in as_python(a)]
    np.testing.assert_array_equal(actual, np.array(expected, dtype))


def floats(rng: np.random.Generator, dtype: type, count: int = COUNT) -> np.ndarray:
    """Numbers of all magnitudes, with zeros, infinities, subnormals and NaN among them."""
    values = rng.standard_normal(count) * np.exp2(rng.integers(-20, 20, count))
    tiny = np.finfo(dtype).smallest_subnormal
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, tiny, -tiny, 1.0]
    values = values.astype(dtype)
    values[: len(edges)] = edges
    return rng.permutation(values)


FLOAT_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div.rn": np.divide,
    "min": np.fmin,
    "max": np.fmax,
    "min.NaN": np.minimum,
    "max.NaN": np.maximum,
}


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        (operation, dtype)
        for operation in FLOAT_BINARY
        for dtype in (np.float32, np.float64)
        if not (operation.endswith("NaN") and dtype is np.float64)  # PTX has .NaN up to f32
    ],
)
def test_float_binary(rng, operation, dtype):
    a, b = floats(rng, dtype), floats(rng, dtype)
    if operation.startswith("m") and "mul" not in operation:
        equal = a == b
        a[equal] = 2  # the order of zeros is tested below
    bits = 8 * np.dtype(dtype).itemsize
    with np.errstate(all="ignore"):
        expected = FLOAT_BINARY[operation](a, b)
    actual = elementwise(f"{operation}.f{bits} {{d}}, {{0}}, {{1}}", dtype, a, b)
    np.testing.assert_array_equal(actual, expected)


def test_negative_zero_is_less_than_zero():
    a = np.array([0.0, -0.0], np.float32)
    b = -a
    low = elementwise("min.f32 {d}, {0}, {1}", np.float32, a, b)
    high = elementwise("max.f32 {d}, {0}, {1}", np.float32, a, b)
    assert np.signbit(low).all() and not np.signbit(high).any()


def test_fma_rounds_once(rng):
    a, b = (rng.standard_normal(COUNT).astype(np.float32) for _ in range(2))
    c = -(a * b)
    actual = elementwise("fma.rn.f32 {d}, {0}, {1}, {2}", np.float32, a, b, c)
    exact = a.astype(np.float64) * b + c
    np.testing.assert_array_equal(actual, exact.astype(np.float32))
    assert np.count_nonzero(actual) > COUNT // 2


def test_ftz_flushes_operands_and_results():
    tiny = np.float32(1e-39)
    a = np.array([tiny, -tiny, 1e-30, 3.0], np.float32)
    b = np.array([1.0, 1.0, 1e-9, 2.0], np.float32)
    actual = elementwise("mul.ftz.f32 {d}, {0}, {1}", np.float32, a, b)
    np.testing.assert_array_equal(actual, np.array([0.0, -0.0, 0.0, 6.0], np.float32))
    np.testing.assert_array_equal(np.signbit(actual), [False, True, False, False])
    kept = elementwise("mul.f32 {d}, {0}, {1}", np.float32, a, b)
    assert (kept != 0).all()


@pytest.mark.parametrize("direction", ("rz", "rm", "rp"))
def test_directed_rounding(rng, direction):
    a, b = (rng.standard_normal(COUNT).astype(np.float32) for _ in range(2))
    exact = a.astype(np.float64) * b
    near = exact.astype(np.float32)
    down = np.where(near > exact, np.nextafter(near, np.float32(-np.inf)), near)
    up = np.where(near < exact, np.nextafter(near, np.float32(np.inf)), near)
    expected = {"rm": down, "rp": up, "rz": np.where(exact > 0, down, up)}[direction]
    actual = elementwise(f"mul.{direction}.f32 {{d}}, {{0}}, {{1}}", np.float32, a, b)
    np.testing.assert_array_equal(actual, expected)
    assert (actual != near).any()


def test_half_fma_rounds_once(rng):
    a, b, c = (rng.standard_normal(COUNT).astype(np.float16) for _ in range(3))
    exact = a.astype(np.float64) * b + c
    actual = elementwise("fma.rn.f16 {d}, {0}, {1}, {2}", np.float16, a, b, c)
    np.testing.assert_array_equal(actual, exact.astype(np.float16))
    packed = elementwise(
        "fma.rn.f16x2 {d}, {0}, {1}, {2}", np.uint32, *(x.view(np.uint32) for x in (a, b, c))
    )
    np.testing.assert_array_equal(packed.view(np.float16), actual)


COMPARISONS = {
    "eq": np.equal,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": np.less,
    "ge": np.greater_equal,
    "equ": lambda a, b: (a == b) | np.isnan(a) | np.isnan(b),
    "gtu": lambda a, b: ~(a <= b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_comparisons_of_floats(rng, comparison):
    a = rng.choice(floats(rng, np.float32, 8), COUNT)
    b = rng.choice(a, COUNT)
    actual = elementwise(
        f"setp.{comparison}.f32 %q0, {{0}}, {{1}};\nselp.u32 {{d}}, 1, 0, %q0", np.uint32, a, b
    )
    expected = COMPARISONS[comparison](a, b)
    np.testing.assert_array_equal(actual, expected)
    assert 0 < np.count_nonzero(expected) < COUNT


def test_comparison_with_two_results_and_a_third_predicate(rng):
    a, b = (rng.integers(-2, 3, COUNT, dtype=np.int32) for _ in range(2))
    actual = elementwise(
        "setp.gt.s32 %q1, {1}, 0;\nsetp.lt.and.s32 %q2|%q3, {0}, {1}, !%q1;\n"
        "selp.u32 %r20, 1, 0, %q2;\nselp.u32 %r21, 2, 0, %q3;\nor.b32 {d}, %r20, %r21",
        np.uint32,
        a,
        b,
    )
    third = ~(b > 0)
    expected = ((a < b) & third) + 2 * (~(a < b) & third)
    np.testing.assert_array_equal(actual, expected)
