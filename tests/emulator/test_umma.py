"""tcgen05.mma of the emulator: every kind, shape, layout and option, to the last bit.

Each test runs one instruction on random operands (umma_model.py) and compares D with numpy, and
everything else in tensor memory with what it was.
"""

import dataclasses

import numpy as np
import pytest

from tests.emulator.native import emulator_function
from tests.emulator.umma_model import E4M3, E8M0, KINDS, NARROW, OPERANDS, Mma, run
from warploom.target.swizzle import Major, Swizzle

DENSE = ["f16", "tf32", "f8f6f4", "i8"]
SCALED = {"mxf8f6f4": [(1, E8M0)], "mxf4": [(2, E8M0)],
          "mxf4nvf4": [(2, E8M0), (4, E8M0), (4, E4M3)]}  # fmt: skip


def shapes(kind):
    """Every legal (cta_group, ws, m) with its legal n (PTX ISA, "Matrix Shape")."""
    if kind in SCALED:
        yield from (
            (1, False, 128, range(8, 257, 8)),
            (2, False, 128, range(16, 257, 16)),
            (2, False, 256, range(16, 257, 16)),
        )
        return
    integer = kind == "i8"
    one = [8, 16, 24, *range(32, 257, 16)] if integer else range(8, 257, 8)
    two = range(32, 257, 32) if integer else range(16, 257, 16)
    yield from ((1, False, m, one) for m in (64, 128))
    yield from ((2, False, m, two) for m in (128, 256))
    yield from ((1, True, m, (64, 128, 256)) for m in (32, 64, 128))


def forms(kinds):
    return [(kind, *shape) for kind in kinds for shape in shapes(kind)]


def form_id(value):
    return value if isinstance(value, str) else None


def accumulators(kind, a, b):
    if kind == "i8":
        return ["s32"]
    both = kind == "f8f6f4" or (a, b) == ("f16", "f16")
    return ["f32", "f16"] if both else ["f32"]


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def random_mma(rng, kind, cta_group, ws, m, n, **options):
    """An instruction of random types, with K-major operands unless `majors` is given."""
    a, b = (pick(rng, list(OPERANDS[kind])) for _ in range(2))
    values = {"a": a, "b": b, "cta_group": cta_group, "ws": ws, "m": m, "n": n}
    values["d"] = pick(rng, accumulators(kind, a, b))
    values["swizzles"] = tuple(pick(rng, list(Swizzle)) for _ in range(2))
    if kind in SCALED:
        values["vectors"], values["scale"] = pick(rng, SCALED[kind])
        values["ids"] = tuple(pick(rng, range(0, 4, values["vectors"])) for _ in range(2))
    if kind != "i8":
        values["negate"] = tuple(bool(rng.integers(2)) for _ in range(2))
    return Mma(kind, **{**values, **options})


def check(result, context):
    np.testing.assert_array_equal(result.actual, result.expected, err_msg=str(context))


@pytest.mark.parametrize(("kind", "cta_group", "ws", "m", "all_n"), forms(KINDS), ids=form_id)
@pytest.mark.some(9)
def test_every_shape_with_a_in_shared_and_in_tensor_memory(kind, cta_group, ws, m, all_n, rng):
    for n in {all_n[0], all_n[-1], pick(rng, all_n)}:
        for a_in_tensor_memory in (False, True):
            mma = random_mma(rng, kind, cta_group, ws, m, n, a_in_tensor_memory=a_in_tensor_memory)
            result = run(rng, mma)
            check(result, mma)
            lane, column = mma.places
            for before, after in zip(result.before, result.after, strict=True):
                untouched = np.ones(before.shape, bool)
                untouched[lane, result.d_column + column] = False
                np.testing.assert_array_equal(before[untouched], after[untouched])


@pytest.mark.parametrize("kind", KINDS)
def test_every_pair_of_types(kind, rng):
    for a in OPERANDS[kind]:
        for b in OPERANDS[kind]:
            for d in accumulators(kind, a, b):
                for vectors, scale in SCALED.get(kind, [(0, E8M0)]):
                    for a_in_tensor_memory in (False, True):
                        mma = Mma(
                            *(kind, a, b, d, 128, 32),
                            vectors=vectors,
                            scale=scale,
                            a_in_tensor_memory=a_in_tensor_memory,
                        )
                        check(run(rng, mma), mma)


@pytest.mark.parametrize("cta_group", [1, 2])
@pytest.mark.parametrize("kind", ["f16", "f8f6f4", "i8", "mxf8f6f4"])
def test_every_major_and_swizzle(kind, cta_group, rng):
    wide = [name for name in OPERANDS[kind] if name not in NARROW]
    for majors in ((x, y) for x in Major for y in Major):
        for swizzle in Swizzle:
            mma = random_mma(
                *(rng, kind, cta_group, False, 128 * cta_group, 96),
                a=pick(rng, wide),
                b=pick(rng, wide),
                d={"i8": "s32"}.get(kind, "f32"),
                majors=majors,
                swizzles=(swizzle, pick(rng, list(Swizzle))),
            )
            check(run(rng, mma), mma)


@pytest.mark.parametrize("kind", ["f16", "tf32", "f8f6f4"])
def test_input_is_dropped_or_scaled(kind, rng):
    for accumulate in (False, True):
        for scale_input in (0, 1, 15) if kind != "f8f6f4" else (0,):
            mma = random_mma(
                *(rng, kind, 1, False, 64, 40), accumulate=accumulate, scale_input=scale_input
            )
            check(run(rng, mma), mma)


def test_integers_wrap_around_or_saturate(rng):
    for saturate in (False, True):
        mma = random_mma(rng, "i8", 1, False, 128, 64, a="u8", b="u8", saturate=saturate)
        # Each repetition adds about half a million to every element: 10,000 leave the range.
        result = run(rng, mma, repeat=10_000)
        exact = 10_000 * (result.expected.astype("int64") - first_input(result, mma))
        exact += first_input(result, mma)
        assert (exact > np.iinfo("int32").max).any()
        limit = np.minimum(exact, np.iinfo("int32").max) if saturate else exact
        np.testing.assert_array_equal(result.actual, limit.astype("int32"))


def first_input(result, mma):
    lane, column = mma.places
    return result.before[0][lane, result.d_column + column].view("int32").astype("int64")


@pytest.mark.parametrize(("cta_group", "m"), [(1, 64), (1, 128), (2, 128), (2, 256)])
def test_disabled_lanes_are_not_written(cta_group, m, rng):
    disabled = tuple(int(x) for x in rng.integers(0, 1 << 32, 8))
    mma = random_mma(rng, "f16", cta_group, False, m, 64, disabled=disabled)
    result = run(rng, mma)
    lane, column = mma.places
    words = np.array(disabled, "uint32").reshape(2, 4)
    for cta, (before, after) in enumerate(zip(result.before, result.after, strict=True)):
        rows = slice(cta * mma.rows, (cta + 1) * mma.rows)
        off = words[cta][lane // 32] >> (lane % 32).astype("uint32") & 1 != 0
        assert off.any() and not off.all()
        np.testing.assert_array_equal(result.actual[rows][~off], result.expected[rows][~off])
        here = lane[off], result.d_column + column[off]
        np.testing.assert_array_equal(before[here], after[here])


@pytest.mark.parametrize(("m", "max_shift"), [(32, 16), (64, 32), (128, 8)])
def test_zero_columns_of_ws(m, max_shift, rng):
    for _ in range(4):
        spans = rng.integers(0, 9, 2)
        bits = sum(int(rng.integers(0, 8)) << 8 * i for i in range(4))
        bits |= int(rng.integers(0, 16)) << 32 | 1 << 39 | int(spans[0]) << 40
        bits |= int(spans[1]) << 48 | int(rng.integers(0, max_shift + 1)) << 56
        mma = random_mma(rng, "f16", 1, True, m, 128, zero_columns=bits, max_shift=max_shift)
        check(run(rng, mma), f"{bits:#x}")


@pytest.mark.parametrize(
    ("m", "bits", "masks"),
    [
        (128, 4 << 40 | 3 << 48, [""]),
        (128, 1 << 39 | 2 << 40 | 3 << 48, ["00001110000111"]),
        (64, 1 << 39 | 2 << 40 | 3 << 48 | 1 << 32, ["111000011100", "000011100001"]),
        (
            32,
            1 << 39 | 2 << 40 | 3 << 48 | 3 << 32 | 1 << 8 | 2 << 16 | 1 << 24,
            ["1110000111", "1100001110", "0011100001", "0001110000"],
        ),
    ],
)
def test_zero_columns_of_the_manuals_examples(m, bits, masks, rng):
    # D of ones by ones counts K where B is used; the masks are written with column 0 first.
    mma = Mma("f16", "f16", "f16", "f32", m, 64, ws=True, zero_columns=bits, accumulate=False)
    result = run(rng, mma)
    width = 64 * m // 128
    for i, mask in enumerate(masks):
        for j, digit in enumerate(mask):
            zero = (result.actual[:, i * width + j] == 0).all()
            assert zero == (digit == "1"), (i, j)
    if not any(masks):
        assert not (result.actual == 0).all(axis=0).any()


@pytest.mark.parametrize("cta_group", [1, 2])
def test_ashift_moves_the_rows_of_a_afterwards(cta_group, rng):
    mma = random_mma(
        *(rng, "f16", cta_group, False, 128 * cta_group, 32),
        a_in_tensor_memory=True,
        ashift=True,
    )
    result = run(rng, mma)
    check(result, mma)
    columns = slice(result.a_column, result.a_column + 8)
    for before, after in zip(result.before, result.after, strict=True):
        expected = before[:, columns].reshape(4, 32, 8)
        expected = np.concatenate([expected[:, 1:], expected[:, 31:]], axis=1)
        np.testing.assert_array_equal(after[:, columns], expected.reshape(128, 8))


def test_scale_addresses_may_carry_the_number_of_the_byte(rng):
    mma = Mma("mxf8f6f4", "e4m3", "e4m3", "f32", 128, 64, vectors=1, ids=(3, 2))
    marked = dataclasses.replace(mma, a_in_tensor_memory=True)
    for one in (mma, marked):
        check(run(rng, one), one)


def test_the_loops_give_the_same_bits_on_every_instruction_set(rng):
    kernels = [str(name) for name in emulator_function("row_kernels")()]
    for rows, columns, k in [(1, 8, 16), (7, 24, 8), (128, 256, 16), (33, 136, 64)]:
        sizes = (rows, k), (k, columns), (rows, columns)
        a, b, d = (rng.standard_normal(size, "float32") for size in sizes)
        a, b = (x.astype("float16").astype("float32") for x in (a, b))
        data = a.tobytes(), b.tobytes(), d.tobytes()
        product = emulator_function("row_product")
        results = {bytes(product(name, rows, columns, k, *data)) for name in kernels}
        assert len(results) == 1
        total = d.copy()
        for i in range(k):
            total = (total + a[:, i, None].astype("float64") * b[i]).astype("float32")
        np.testing.assert_array_equal(np.frombuffer(results.pop(), "float32"), total.ravel())
    row, scale = rng.standard_normal((2, 40), "float32"), np.exp2(rng.integers(-300, 300, 40) * 1.0)
    scaled = emulator_function("add_scaled")
    data = 2.0**100, row[0].tobytes(), scale.tobytes(), row[1].tobytes()
    assert len({bytes(scaled(name, *data)) for name in kernels}) == 1
