"""Conversions of the emulator against numpy, ml_dtypes and a table of all representable numbers."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.native import cvt

# Overflow and NaN are what is being tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")

FLOAT = {
    "f16": np.dtype("float16"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
}
WIDTH = {"e4m3": 8, "e5m2": 8, "e2m1": 4, "e2m3": 6, "e3m2": 6}
#: Bits that one element of the packed type occupies.
SLOT = {"e4m3": 8, "e5m2": 8, "e2m1": 4, "e2m3": 8, "e3m2": 8}
CANONICAL_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "tf32": 0x7FFFFFFF, "e4m3": 0x7F, "e5m2": 0x7F}
INTEGERS = [f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64)]


def patterns(name):
    """All bit patterns of a format of up to 16 bits, and their values in float64."""
    bits = np.arange(1 << WIDTH.get(name, 16), dtype="uint64")
    storage = bits.astype("uint8" if name in WIDTH else "uint16")
    return bits, storage.view(FLOAT[name]).astype("float64")


def positive_values(name):
    """The finite numbers from 0 up, and one step beyond the largest; the index is the pattern."""
    if name == "tf32":
        bits = np.arange(0, 0x7F800000, 1 << 13, dtype="uint32")
        values = bits.view("float32").astype("float64")
    else:
        bits, values = patterns(name)
        values = values[: 1 << (WIDTH.get(name, 16) - 1)]
        values = values[np.isfinite(values)]
    return np.append(values, 2 * values[-1] - values[-2])


def rounded(name, x, rounding, satfinite=False):
    """Bit patterns of float64 ``x`` in a format, by looking the neighbours up in its table."""
    table = positive_values(name)
    size, negative = np.minimum(np.abs(x), table[-1]), np.signbit(x)
    low = np.minimum(np.searchsorted(table, size, "right") - 1, table.size - 2)
    exact = table[low] == size
    middle = (table[low] + table[low + 1]) / 2
    nearer = (size > middle) | ((size == middle) & ((low & 1 == 1) | (rounding == "rna")))
    up = {"rn": nearer, "rna": nearer, "rz": False, "rm": negative, "rp": ~negative}[rounding]
    index = low + (up & ~exact)
    index = np.where(np.abs(x) >= table[-1], low + (1 if satfinite else up), index)
    index = np.where(np.isinf(x), table.size - 1, index)
    largest = table.size - 2
    index = np.minimum(index, largest) if satfinite else index
    width = WIDTH.get(name, 16)
    bits = index.astype("uint64") << (13 if name == "tf32" else 0)
    sign = negative.astype("uint64") << (31 if name == "tf32" else width - 1)
    return np.where(np.isnan(x), CANONICAL_NAN.get(name, largest), bits | sign)


def interesting_floats(rng, name):
    """float32 values: all of a format, the middles, their neighbours, special and random ones."""
    table = positive_values(name)
    values = np.concatenate([table, (table[1:] + table[:-1]) / 2]).astype("float32")
    values = values if values.size < 200_000 else rng.choice(values, 200_000)
    special = np.array([0, 1, np.inf, np.nan, 1e-45, 3.4e38, 65520, 448, 464, 57344], "float32")
    anything = rng.integers(0, 1 << 32, 50_000, "uint32").view("float32")
    with np.errstate(all="ignore"):
        values = np.concatenate(
            [values, np.nextafter(values, np.inf), np.nextafter(values, 0), special, anything],
            dtype="float32",
        )
    return np.concatenate([values, -values])


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_every_half_to_f32_and_back(name):
    bits, values = patterns(name)
    wide = cvt("f32", name, bits).astype("uint32")
    expected = values.astype("float32").view("uint32")
    nan = bits.astype("uint32") << 16 if name == "bf16" else 0x7FFFFFFF
    np.testing.assert_array_equal(wide, np.where(np.isnan(values), nan, expected))
    back = cvt(name, "f32", wide, rounding="rn")
    np.testing.assert_array_equal(back, np.where(np.isnan(values), 0x7FFF, bits))
    doubles = cvt("f64", name, bits).view("float64")
    np.testing.assert_array_equal(doubles, values)


@pytest.mark.parametrize("name", sorted(WIDTH))
def test_every_narrow_number_to_f16(name):
    bits, values = patterns(name)
    pairs = np.array(list(itertools.product(bits, bits)), "uint64")
    packed = cvt("f16x2", f"{name}x2", pairs[:, 1] << SLOT[name] | pairs[:, 0], rounding="rn")
    expected = values.astype("float16").view("uint16").astype("uint64")
    expected = np.where(np.isnan(values), 0x7FFF, expected)
    np.testing.assert_array_equal(packed & 0xFFFF, expected[pairs[:, 0].astype(int)])
    np.testing.assert_array_equal(packed >> 16, expected[pairs[:, 1].astype(int)])


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("satfinite", [False, True])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_f32_to_half(name, satfinite, rounding, rng):
    values = interesting_floats(rng, name)
    modifiers = "satfinite" if satfinite else ""
    actual = cvt(name, "f32", values.view("uint32"), rounding=rounding, modifiers=modifiers)
    expected = rounded(name, values.astype("float64"), rounding, satfinite)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_the_table_agrees_with_numpy(name, rng):
    values = interesting_floats(rng, name)
    values = values[~np.isnan(values)]
    with np.errstate(over="ignore"):
        expected = values.astype(FLOAT[name]).view("uint16")
    np.testing.assert_array_equal(rounded(name, values.astype("float64"), "rn"), expected)


@pytest.mark.parametrize("rounding", ["rn", "rna", "rz"])
@pytest.mark.parametrize("satfinite", [False, True])
@pytest.mark.some(3)
def test_f32_to_tf32(rounding, satfinite, rng):
    values = interesting_floats(rng, "tf32")
    modifiers = "satfinite" if satfinite else ""
    actual = cvt("tf32", "f32", values.view("uint32"), rounding=rounding, modifiers=modifiers)
    expected = rounded("tf32", values.astype("float64"), rounding, satfinite)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("name", sorted(WIDTH))
@pytest.mark.parametrize("relu", [False, True])
def test_pairs_of_f32_to_narrow(name, relu, rng):
    values = interesting_floats(rng, name)
    others = rng.permutation(values)
    modifiers = "satfinite relu" if relu else "satfinite"
    words = (x.view("uint32") for x in (values, others))
    actual = cvt(f"{name}x2", "f32", *words, rounding="rn", modifiers=modifiers)

    def expected(x):
        clipped = np.where(relu & (x < 0) | relu & (x == 0), 0.0, x.astype("float64"))
        return rounded(name, clipped, "rn", satfinite=True)

    np.testing.assert_array_equal(actual >> SLOT[name], expected(values))
    np.testing.assert_array_equal(actual & ((1 << SLOT[name]) - 1), expected(others))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_every_pair_of_halves_to_fp8(name):
    bits, values = patterns(name)
    swapped = bits[::-1]
    for narrow in ("e4m3", "e5m2"):
        packed = swapped << np.uint64(16) | bits
        actual = cvt(f"{narrow}x2", f"{name}x2", packed, rounding="rn", modifiers="satfinite")
        expected = rounded(narrow, values, "rn", satfinite=True)
        np.testing.assert_array_equal(actual, expected[::-1] << np.uint64(8) | expected)


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_f64_to_f32(rounding, rng):
    values = np.concatenate(
        [
            rng.integers(0, 1 << 64, 50_000, "uint64").view("float64"),
            rng.standard_normal(50_000) * 10.0 ** rng.integers(-46, 40, 50_000),
            rng.standard_normal(1000).astype("float32").astype("float64"),
        ]
    )
    actual = cvt("f32", "f64", values.view("uint64"), rounding=rounding).astype("uint32")
    with np.errstate(all="ignore"):
        nearest = values.astype("float32")
        step = {"rn": 0, "rz": 0, "rm": -np.inf, "rp": np.inf}[rounding]
        wrong_side = {
            "rn": np.zeros(values.shape, bool),
            "rz": np.abs(nearest.astype("float64")) > np.abs(values),
            "rm": nearest.astype("float64") > values,
            "rp": nearest.astype("float64") < values,
        }[rounding]
        expected = np.where(wrong_side, np.nextafter(nearest, np.float32(step)), nearest)
    bits = values.view("uint64")
    payload = (bits >> 32 & 0x80000000 | 0x7FC00000 | bits >> 29 & 0x3FFFFF).astype("uint32")
    expected = np.where(np.isnan(values), payload, expected.view("uint32"))
    zero = expected << 1 == 0
    np.testing.assert_array_equal(actual[~zero], expected[~zero])
    assert not (actual[zero] << 1).any()


def test_flushing_keeps_the_sign_of_subnormals():
    bits = np.array([1, 0x007FFFFF, 0x80000001, 0x00800000, 0x80800000], "uint64")
    expected = [0, 0, 0x80000000, 0x00800000, 0x80800000]
    for to, modifiers in (("f32", "ftz"), ("f32", "ftz satfinite")):
        np.testing.assert_array_equal(cvt(to, "f32", bits, modifiers=modifiers), expected)
    small = np.array([1e-40, -1e-40]).view("uint64")
    flushed = cvt("f32", "f64", small, rounding="rn", modifiers="ftz")
    np.testing.assert_array_equal(flushed, [0, 0x80000000])
    assert cvt("f32", "f64", small, rounding="rn")[0] != 0


def test_saturation_to_the_unit_interval():
    values = np.array([-np.inf, -1, -0.0, 0.25, 1, 1.0000001, 7, 2.0**100, np.inf, np.nan])
    expected = np.array([0, 0, 0, 0.25, 1, 1, 1, 1, 1, 0], "float32")
    single = values.astype("float32").view("uint32")
    actual = cvt("f32", "f32", single, modifiers="sat").astype("uint32")
    np.testing.assert_array_equal(actual, expected.view("uint32"))


@pytest.mark.parametrize("rounding", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_float_to_integer(source, rounding, rng):
    dtype = {"f16": "float16", "f32": "float32", "f64": "float64"}[source]
    raw = f"uint{8 * np.dtype(dtype).itemsize}"
    exponents = 2.0 ** rng.integers(-3, 70, 4000)
    with np.errstate(over="ignore"):
        values = (rng.standard_normal(4000) * exponents).astype(dtype)
        edges = [
            s * (2.0**e + d)
            for s in (1, -1)
            for e in (7, 8, 15, 16, 31, 32, 63, 64)
            for d in (-1, -0.5, 0, 0.5)
        ]
        ties = np.arange(-8, 8, 0.25)
        values = np.concatenate([values, np.array([*edges, *ties, 0, np.inf, -np.inf], dtype)])
    integral = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding]
    for to in INTEGERS:
        width, signed = int(to[1:]), to[0] == "s"
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
        exact = [
            high if x == np.inf else low if x == -np.inf else int(x)
            for x in integral(values.astype("float64"))
        ]
        expected = [min(max(x, low), high) & (1 << 64) - 1 for x in exact]
        actual = cvt(to, source, values.view(raw), rounding=rounding)
        np.testing.assert_array_equal(actual, np.array(expected, "uint64"))


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("source, nan", [("f32", 0x7FC00000), ("f64", 0x7FF8 << 48)])
def test_nan_to_integer(to, source, nan):
    width = int(to[1:])
    wide = source == "f64" or width == 64
    top = 1 << width - 1
    expected = 0 if not wide else -top & (1 << 64) - 1 if to[0] == "s" else top
    assert cvt(to, source, [nan], rounding="rzi")[0] == expected


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_integer_to_half(source, to, rounding, rng):
    width = int(source[1:])
    dtype = ("u" if source[0] == "u" else "") + f"int{width}"
    shifts = rng.integers(0, width, 4000).astype(f"uint{width}")
    bits = rng.integers(0, 1 << width, 4000, f"uint{width}", endpoint=False) >> shifts
    values = bits.view(dtype)
    # Of the integers that float64 cannot hold, only whether there is a remainder matters here.
    size = [abs(int(x)) for x in values]
    sticky = [float(x >> 12 << 12 | (x & 0xFFF != 0) << 11) if x >> 53 else float(x) for x in size]
    exact = np.copysign(np.array(sticky), values.astype("float64"))
    np.testing.assert_array_equal(
        cvt(to, source, bits, rounding=rounding), rounded(to, exact, rounding)
    )


@pytest.mark.parametrize("source", INTEGERS)
def test_integer_to_f32_and_f64(source, rng):
    width = int(source[1:])
    dtype = ("u" if source[0] == "u" else "") + f"int{width}"
    values = rng.integers(0, 1 << width, 4000, f"uint{width}", endpoint=False).view(dtype)
    bits = values.view(f"uint{width}")
    single = cvt("f32", source, bits, rounding="rn").astype("uint32").view("float32")
    np.testing.assert_array_equal(single, values.astype("float32"))
    double = cvt("f64", source, bits, rounding="rn").view("float64")
    np.testing.assert_array_equal(double, values.astype("float64"))


@pytest.mark.parametrize("source, to", list(itertools.product(INTEGERS, INTEGERS)))
def test_integer_to_integer(source, to, rng):
    width = int(source[1:])
    dtype = ("u" if source[0] == "u" else "") + f"int{width}"
    values = rng.integers(0, 1 << width, 500, f"uint{width}", endpoint=False).view(dtype)
    values = np.concatenate([values, np.array([0, 1, np.iinfo(dtype).max], dtype)])
    target = ("u" if to[0] == "u" else "") + f"int{to[1:]}"
    limits = np.iinfo(target)
    bits = values.view(f"uint{width}")
    extend = "int64" if to[0] == "s" else "uint64"
    wrapped = values.astype(target).astype(extend).view("uint64")
    np.testing.assert_array_equal(cvt(to, source, bits), wrapped)
    clamped = [min(max(int(x), limits.min), limits.max) & (1 << 64) - 1 for x in values]
    saturated = cvt(to, source, bits, modifiers="sat")
    np.testing.assert_array_equal(saturated, np.array(clamped, "uint64"))


@pytest.mark.parametrize("rounding", ["rni", "rzi", "rmi", "rpi"])
def test_rounding_a_float_to_an_integral_float(rounding, rng):
    values = np.concatenate([rng.standard_normal(2000) * 100, np.arange(-4, 4, 0.25), [-0.0]])
    values = values.astype("float32")
    integral = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding]
    actual = cvt("f32", "f32", values.view("uint32"), rounding=rounding).astype("uint32")
    np.testing.assert_array_equal(actual, integral(values).view("uint32"))


@pytest.mark.parametrize(
    "to, source, rounding, modifiers, message",
    [
        ("f16", "f32", "", "", "narrowing conversion must round"),
        ("f16", "f32", "rna", "", "rna is for tf32"),
        ("s32", "f32", "rn", "", "takes .rni"),
        ("f32", "s32", "", "", "takes .rn"),
        ("e4m3x2", "f32", "rn", "", "takes .satfinite"),
        ("e4m3", "f32", "rn", "satfinite", "in pairs"),
        ("e5m2x2", "f32", "rz", "satfinite", "takes .rn"),
        ("f16", "f64", "rn", "ftz", ".ftz needs an f32"),
        ("f16x2", "f32", "rs", "", "stochastic"),
        ("s8", "s32", "rn", "", "integers do not round"),
        ("b32", "f32", "rn", "", "types are not supported"),
        ("f32", "f16x2", "", "", "packed source"),
    ],
)
def test_forms_that_do_not_exist(to, source, rounding, modifiers, message):
    with pytest.raises(ValueError, match=f"cvt from {source} to {to} .*{message}"):
        cvt(to, source, [0], rounding=rounding, modifiers=modifiers)
