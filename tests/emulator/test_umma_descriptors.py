"""Descriptors of tcgen05.mma: layouts that warploom does not make, and everything illegal."""

import itertools
import re

import numpy as np
import pytest

from tests.emulator.native import SHARED_START, emulator_function
from tests.emulator.umma_model import COLUMNS, LANES, Mma, accumulate, call, random_codes, read_d
from tests.shared.reference import random_array
from warploom.target.swizzle import Major
from warploom.target.tcgen05 import TCGEN05_KINDS

CONSTANT = 1 << 46


def swizzled(offset, atoms, atom_bytes, base=0):
    """Where a byte lies: the atoms of a 128-byte row are permuted by the number of the row."""
    return offset ^ (((offset >> 7) - base & atoms - 1) * atom_bytes)


def fields(start, leading, stride, code, base=0):
    distances = leading >> 4 << 16 | stride >> 4 << 32
    return start >> 4 | distances | CONSTANT | base << 49 | code << 61


def run_placed(rng, mma, places, descriptors):
    """Execute on operands whose elements lie at ``places`` (byte offsets ``[rows, k]``)."""
    memory = np.frombuffer(rng.bytes(1 << 16), "uint8").copy()
    values = []
    for dtype, offsets in zip((mma.a, mma.b), places, strict=True):
        stored, exact = random_codes(rng, offsets.shape, dtype)
        raw = np.ascontiguousarray(stored)[..., None].view("uint8")
        memory[offsets[..., None] + np.arange(raw.shape[-1])] = raw
        values.append(exact)
    cells = np.zeros((1, LANES, COLUMNS), "uint32")
    words = [*descriptors, 0, mma.instruction, *(0,) * 12]
    after = call(mma, words, [memory.tobytes()], cells)
    expected = accumulate(mma, values[0][None], values[1], np.zeros((mma.m, mma.n), "float32"), ())
    np.testing.assert_array_equal(read_d(mma, after), expected)


@pytest.mark.parametrize("n", [8, 40, 64])
def test_mn_major_tf32_in_atoms_of_32_bytes(n, rng):
    mma = Mma("tf32", "tf32", "tf32", "f32", 64, n, majors=(Major.MN, Major.MN))
    leading, stride, places, descriptors = 1024 + 512, 512, [], []
    for start, rows in ((4096, 64), (16384, n)):
        row, k = np.ogrid[:rows, :8]
        linear = start + row % 32 * 4 + row // 32 * leading + k % 4 * 128 + k // 4 * stride
        places.append(swizzled(linear, 4, 32))
        descriptors.append(fields(start, leading, stride, 1))
    run_placed(rng, mma, places, descriptors)


def test_k_major_in_atoms_of_32_bytes(rng):
    mma = Mma("f16", "f16", "f16", "f32", 64, 24)
    places, descriptors = [], []
    for start, rows in ((4096, 64), (16384 + 64, 24)):
        row, k = np.ogrid[:rows, :16]
        linear = start + row % 8 * 128 + row // 8 * 1024 + k * 2
        places.append(swizzled(linear, 4, 32))
        descriptors.append(fields(start, 0, 1024, 1))
    run_placed(rng, mma, places, descriptors)


@pytest.mark.parametrize(("code", "row_bytes"), [(2, 128), (4, 64), (6, 32)])
def test_a_pattern_that_starts_off_its_boundary_has_a_base_offset(code, row_bytes, rng):
    # The manual: base offset = (address where the pattern starts >> 7) & 7.
    mma = Mma("f16", "bf16", "f16", "f32", 64, 16)
    places, descriptors = [], []
    for start, rows in ((4096 + 3 * 128, 64), (16384 + 5 * 128, 16)):
        base = start >> 7 & 7
        row, k = np.ogrid[:rows, :16]
        linear = start + row % 8 * row_bytes + row // 8 * 8 * row_bytes + k * 2
        places.append(swizzled(linear, row_bytes // 16, 16, base))
        descriptors.append(fields(start, 0, 8 * row_bytes, code, base))
    run_placed(rng, mma, places, descriptors)


F16 = Mma("f16", "f16", "f16", "f32", 128, 64)
F8 = Mma("f8f6f4", "e4m3", "e2m1", "f32", 128, 64)
I8 = Mma("i8", "s8", "u8", "s32", 128, 64)
MX = Mma("mxf8f6f4", "e4m3", "e4m3", "f32", 128, 64, vectors=1)
MX4 = Mma("mxf4", "e2m1", "e2m1", "f32", 128, 64, vectors=2)
NV4 = Mma("mxf4nvf4", "e2m1", "e2m1", "f32", 128, 64, vectors=4, scale="ue4m3")
WS = Mma("f16", "f16", "f16", "f32", 64, 64, ws=True)
PAIR = Mma("f16", "f16", "f16", "f32", 256, 64, cta_group=2)
TENSOR_A = Mma("f16", "f16", "f16", "f32", 128, 64, a_in_tensor_memory=True)


def fault(mma, words=(), **changes):
    """The message of the fault that an instruction with changed operands ends in."""
    operands = dict.fromkeys(("a", "b"), fields(SHARED_START, 16, 1024, 2))
    operands |= {"d": 0, "instruction": mma.instruction, "zero": 0, "scale_a": 0, "scale_b": 0}
    if mma.a_in_tensor_memory:
        operands["a"] = 256
    for name, change in changes.items():
        operands[name] = change(operands[name]) if callable(change) else change
    cells = np.zeros((mma.cta_group, LANES, COLUMNS), "uint32")
    memories = [bytes(1 << 16)] * mma.cta_group
    with pytest.raises(ValueError) as error:
        call(mma, [*operands.values(), *(0,) * 9], memories, cells)
    return str(error.value)


def bits(value):
    return lambda word: word ^ value


@pytest.mark.parametrize(
    ("operand", "value", "message"),
    [
        ("b", 1 << 46, "has 0 in bits 46-48; it must be the constant 1"),
        ("a", 3 << 47, "has 7 in bits 46-48"),
        ("b", 1 << 52, "bit 52, the mode of the leading offset; it must be 0"),
        ("b", 5 << 53, "has 5 in bits 53-60; it must be 0"),
        ("a", 1 << 61, "has 3 in bits 61-63, the swizzle; it must be 0 (none)"),
        ("b", 7 << 61, "has 5 in bits 61-63"),
        ("b", 1 << 14, "has 1 in bits 14-15"),
        ("a", 1 << 31, "has 2 in bits 30-31"),
    ],
)
def test_illegal_matrix_descriptors(operand, value, message):
    text = fault(F16, **{operand: bits(value)})
    assert text.startswith("the matrix descriptor 0x") and message in text


def test_matrix_descriptors_that_do_not_fit_their_swizzle():
    no_swizzle = fields(SHARED_START, 128, 256, 0, base=2)
    assert "base offset; it must be 0 without a swizzle" in fault(F16, b=no_swizzle)
    odd = fields(SHARED_START + 16, 128, 256, 1)
    assert "must be even: this swizzle moves 32 bytes" in fault(F16, b=odd)
    transposed = bits(1 << 16)
    wide = fields(SHARED_START, 128, 256, 1)
    text = fault(F16, b=wide, instruction=transposed)
    assert "operand of f16 cannot have the swizzle of 128 bytes in atoms of 32" in text
    tf32 = Mma("tf32", "tf32", "tf32", "f32", 128, 64)
    assert "operand of tf32 needs the swizzle" in fault(tf32, instruction=transposed)


def test_operands_beyond_shared_memory():
    assert "out of bounds" in fault(F16, a=fields((1 << 16) - 1024, 16, 1024, 2))


@pytest.mark.parametrize(
    ("mma", "value", "message"),
    [
        (F16, 1 << 2, "has 1 in bit 2; for kind::f16 it must be 0: a sparse A belongs to"),
        (F16, 1 << 3, "in bit 3; for kind::f16 only integers saturate"),
        (F16, 3 << 4, "has 2 in bits 4-5; for kind::f16 the types are 0 (f16), 1 (f32)"),
        (F16, 1 << 6, "in bit 6; for kind::f16 it must be 0: it is reserved"),
        (F16, 2 << 7, "has 2 in bits 7-9; for kind::f16 the types are 0 (f16), 1 (bf16)"),
        (F16, 1 << 4 | 1 << 7, "an accumulator of f16 takes operands of f16"),
        (F16, 1 << 23, "in bit 23"),
        (F16, 1 << 29, "in bit 29"),
        (F16, 1 << 30, "a maximum shift belongs to .ws"),
        (F8, 2 << 10, "has 7 in bits 10-12"),
        (F8, 1 << 16, "operands of e2m1 are K-major"),
        (I8, 1 << 13, "operands cannot be negated"),
        (MX, 1 << 23, "the format is ue8m0, which has 1 there"),
        (MX, 1 << 24, "in bits 24-26"),
        (MX, 1 << 0, "in bit 0"),
        (MX4, 1 << 31, "sm_100 has no K of 96"),
        (MX4, 1 << 15, "operands are K-major"),
        (MX4, 1 << 29, "the first of 2 scale factors lies in a byte whose number is a multiple"),
        (NV4, 2 << 4, "the first of 4 scale factors"),
        (MX4, 1 << 7, "has 0 in bits 7-9; for kind::mxf4 the types are 1 (e2m1)"),
        (TENSOR_A, 1 << 15, "A in tensor memory is K-major"),
    ],
)
def test_illegal_instruction_descriptors(mma, value, message):
    text = fault(mma, instruction=bits(value))
    assert text.startswith("the instruction descriptor 0x") and message in text


@pytest.mark.parametrize(
    ("mma", "m", "n", "message"),
    [
        (F16, 256, 64, "M of 64 128 and N of 8 to 256 in steps of 8"),
        (F16, 128, 0, "no shape with M = 128 and N = 0"),
        (F16, 128, 264, "no shape with M = 128 and N = 264"),
        (I8, 128, 40, "N of 16 to 256 in steps of 16 or 8 or 24"),
        (WS, 64, 192, "N of 64, 128 or 256"),
        (WS, 256, 64, "M of 32 64 128"),
        (PAIR, 64, 64, "M of 128 256"),
        (PAIR, 256, 24, "in steps of 16"),
        (MX, 256, 64, "M of 128 and"),
    ],
)
def test_illegal_shapes(mma, m, n, message):
    size = m // 16 << 24 | n // 8 << 17
    text = fault(mma, instruction=lambda word: word & ~(31 << 24 | 63 << 17) | size)
    assert message in text


TVM = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "int32": "s32", "int8": "s8",
       "uint8": "u8", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float6_e2m3fn": "e2m3",
       "float6_e3m2fn": "e3m2", "float4_e2m1fn": "e2m1"}  # fmt: skip
SCALES = {"float8_e8m0fnu": "ue8m0", "float8_e4m3fn": "ue4m3"}


@pytest.mark.parametrize("facts", TCGEN05_KINDS, ids=lambda facts: f"{facts.kind}-{facts.d[0]}")
def test_every_instruction_that_warploom_uses_is_legal(facts):
    name = {**TVM, "float32": "tf32"} if facts.kind == "tf32" else TVM
    scales = [(facts.k // s.vector, SCALES[s.dtype]) for s in facts.scales] or [(0, "ue8m0")]
    for shapes in facts.shapes:
        cases = itertools.product(facts.operands, facts.operands, facts.d, scales, shapes.m)
        for a, b, d, (vectors, scale), m in cases:
            for n in shapes.n(m):
                types = name[a], name[b], TVM[d], m, n, shapes.cta_group
                mma = Mma(facts.kind, *types, vectors=vectors, scale=scale)
                shape = emulator_function("umma_shape")(
                    facts.kind, shapes.cta_group, vectors, "", mma.instruction
                )
                assert list(shape) == [m, n, facts.k]


def test_mn_major_bytes_have_n_in_larger_steps():
    both = Mma("f8f6f4", "e4m3", "e4m3", "f32", 128, 24, majors=(Major.K, Major.MN))
    assert "has N in steps of 16" in fault(both)


def test_lanes_of_d_a_and_scale_factors():
    assert "D of tcgen05.mma with M = 128 starts at lane 16; it must start at lane 0" in fault(
        F16, d=16 << 16
    )
    half = Mma("f16", "f16", "f16", "f32", 64, 64)
    assert "it must start at lane 0 or 16" in fault(half, d=8 << 16)
    text = fault(TENSOR_A, a=32 << 16)
    assert re.search("A of tcgen05.mma starts at lane 32.* and D at lane 0", text)
    assert "scale factors of tcgen05.mma start at lane 3" in fault(MX, scale_b=3 << 16)


def test_masks_of_zero_columns():
    assert "sets bits 36-38 or 62-63" in fault(WS, zero=1 << 37)
    text = fault(WS, zero=9 << 56, instruction=bits(1 << 30))
    assert "shifts by 9 columns; the instruction descriptor and M = 64 allow 8" in text
    narrow = Mma("f16", "f16", "f16", "f32", 32, 64, ws=True, max_shift=32)
    assert "M = 32 allow 16" in fault(narrow, zero=17 << 56)


@pytest.mark.parametrize(
    ("mma", "message"),
    [
        (Mma("mxf4", "e2m1", "e2m1", "f32", 128, 64, vectors=4), "has no 4 scale factors"),
        (Mma("mxf4", "e2m1", "e2m1", "f32", 128, 64), "needs .block_scale"),
        (Mma("f16", "f16", "f16", "f32", 128, 64, vectors=1), "has no .block_scale"),
        (Mma("mxf4", "e2m1", "e2m1", "f32", 64, 64, vectors=2, ws=True), "mxf4 has no .ws"),
        (Mma("f16", "f16", "f16", "f32", 128, 64, cta_group=2, ws=True), "cta_group::1 only"),
        (Mma("f16", "f16", "f16", "f32", 128, 64, ashift=True), "needs A in tensor memory"),
        (Mma("i8", "s8", "s8", "s32", 128, 64, scale_input=1), "scale-input-d is allowed"),
    ],
)
def test_forms_that_do_not_exist(mma, message):
    assert message in fault(mma)


def test_ashift_needs_whole_data_paths():
    mma = Mma("f16", "f16", "f16", "f32", 64, 64, a_in_tensor_memory=True, ashift=True)
    assert ".ashift needs M of 128 or 256" in fault(mma)


def test_the_poison_of_unused_bytes_is_never_read(rng):
    # Rows of A and B surrounded by NaN: with and without a swizzle, only they are read.
    mma = Mma("f16", "f16", "f16", "f32", 64, 8)
    memory = np.full(1 << 14, 0xFF, "uint8")  # NaN in every type
    values = []
    for start, rows in ((2048, 64), (12288, 8)):
        row, k = np.ogrid[:rows, :16]
        offsets = start + row % 8 * 16 + row // 8 * 128 + k // 8 * rows * 16 + k % 8 * 2
        stored = random_array(rng, (rows, 16), "float16")
        memory[offsets[..., None] + np.arange(2)] = stored[..., None].view("uint8")
        values.append(stored.astype("float64"))
    words = [fields(2048, 1024, 128, 0), fields(12288, 128, 128, 0), 0, mma.instruction]
    cells = np.zeros((1, LANES, COLUMNS), "uint32")
    after = call(mma, [*words, *(0,) * 12], [memory.tobytes()], cells)
    np.testing.assert_allclose(read_d(mma, after), values[0] @ values[1].T, rtol=1e-5, atol=1e-5)


def manual_has_shape(kind, group, m, n):
    """PTX ISA, table "Various combinations of .kind and shapes", dense and without ``.ws``."""
    scaled = kind.startswith("mx")
    rows = {(1, False): (64, 128), (1, True): (128,), (2, False): (128, 256), (2, True): (128, 256)}
    if m not in rows[group, scaled] or not 0 < n <= 256:
        return False
    if kind == "i8":
        return n % (16 * group) == 0 or (group == 1 and n in (8, 24))
    return n % (8 * group) == 0


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("facts", TCGEN05_KINDS, ids=lambda facts: f"{facts.kind}-{facts.d[0]}")
def test_shapes_are_those_of_the_manual_and_warploom_has_those_that_tvm_takes(facts, group):
    name = {**TVM, "float32": "tf32"} if facts.kind == "tf32" else TVM
    a = name[facts.operands[0]]
    vectors = facts.k // facts.scales[0].vector if facts.scaled else 0
    for m, n in itertools.product(range(0, 273, 32), range(0, 273, 8)):
        mma = Mma(facts.kind, a, a, TVM[facts.d[0]], m, n, group, vectors=vectors)
        arguments = facts.kind, group, vectors, "", mma.instruction
        if manual_has_shape(facts.kind, group, m, n):
            assert list(emulator_function("umma_shape")(*arguments)) == [m, n, facts.k]
        else:
            with pytest.raises(ValueError, match=r"has no shape|is reserved"):
                emulator_function("umma_shape")(*arguments)
        # TVM's encoder wants a multiple of 16 with 128 rows in one block, of 32 in two.
        step = 8 if facts.scaled else 32 if group == 2 else 16 if m == 128 else 8
        shapes = facts.shapes[group - 1]
        listed = m in shapes.m and n in shapes.n(m)
        taken = n % step == 0 or facts.kind == "i8"
        assert listed == (manual_has_shape(facts.kind, group, m, n) and taken), (m, n)
