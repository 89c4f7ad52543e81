"""The rules of tensor maps, each broken on its own and all of them kept."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.errors import IllegalCombination
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target import TMA, Swizzle, box_bytes, box_error, shared_align, tensor_error
from warploom.target.dtypes import bits_of
from warploom.target.swizzle import Major

DTYPES = ("float4_e2m1fn", "int8", "float8_e4m3fn", "float16", "bfloat16", "float32", "float64")
EXTENTS = st.one_of(st.integers(-1, 300), st.sampled_from((16, 32, 64, 128, 256)))


@given(
    dtype=st.sampled_from(DTYPES),
    box=st.lists(EXTENTS, min_size=0, max_size=6),
    swizzle=st.sampled_from(Swizzle),
)
def test_box_rules(dtype, box, swizzle):
    legal = 1 <= len(box) <= 5 and all(1 <= extent <= 256 for extent in box)
    row_bits = box[-1] * bits_of(dtype) if box else 0
    legal = legal and row_bits % 128 == 0
    if swizzle is not Swizzle.NONE:
        legal = legal and row_bits // 8 <= swizzle.row_bytes
    error = box_error(dtype, box, swizzle)
    assert (error is None) == legal, error
    if error is None and prod(box) * bits_of(dtype) // 8 < 1 << 20:
        assert box_bytes(dtype, box) == prod(box) * bits_of(dtype) // 8


@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.one_of(st.integers(0, 4096), st.just(1 << 33)), min_size=0, max_size=6),
    padding=st.integers(0, 64),
    address=st.sampled_from((0, 8, 16, 256)),
)
def test_tensor_rules(dtype, shape, padding, address):
    strides, pitch = [], 1
    for d, extent in enumerate(reversed(shape)):
        strides.insert(0, pitch)
        pitch *= extent + (padding if d == 0 else 0)
    legal = (
        1 <= len(shape) <= 5
        and all(1 <= extent <= 1 << 32 for extent in shape)
        and address % 16 == 0
        and all(
            s * bits_of(dtype) % 128 == 0 and 0 < s * bits_of(dtype) // 8 < 1 << 40
            for s in strides[:-1]
        )
    )
    error = tensor_error(dtype, shape, strides, address)
    assert (error is None) == legal, error
    if padding == 0:
        assert tensor_error(dtype, shape, None, address) == error


@pytest.mark.parametrize(
    "error, words",
    [
        (box_error("float16", (8, 65), Swizzle.NONE), ("65 float16", "130 bytes", "16")),
        (box_error("float16", (8, 128), Swizzle.B128), ("128 float16", "256 bytes", "B128")),
        (box_error("float16", (257, 64)), ("257", "dimension 0", "256")),
        (box_error("float16", (1,) * 6), ("6 dimensions", "1 to 5")),
        (box_error("float16", (8, 64), element_strides=(1, 9)), ("stride 9", "dimension 1", "8")),
        (box_error("float16", (8, 64), element_strides=(1,)), ("1 element strides", "2")),
        (tensor_error("float16", (8, 12)), ("stride 12", "24 bytes of float16", "16")),
        (tensor_error("float16", (8, 64), (1, 8)), ("contiguous", "8")),
        (tensor_error("float16", (8, 64), (64,)), ("1 strides", "2 dimensions")),
        (tensor_error("float16", (8, 64), address=24), ("0x18", "16")),
    ],
)
def test_a_refusal_names_value_and_rule(error, words):
    assert error.count(".") - error.count("0.") == 1 and error.startswith("TMA: ")
    assert all(word in error for word in words)


def test_a_legal_stride_of_elements_is_no_error():
    assert box_error("float16", (8, 64), Swizzle.B128, (1, 8)) is None


def test_bytes_of_an_illegal_or_excessive_box_are_refused():
    with pytest.raises(IllegalCombination, match="box row of 3 float16"):
        box_bytes("float16", (8, 3))
    with pytest.raises(IllegalCombination, match=f"at most {TMA.transaction_bytes}"):
        box_bytes("float32", (16, 256, 256))


@pytest.mark.parametrize("swizzle", Swizzle)
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
def test_one_box_fills_one_column_of_swizzle_atoms(swizzle, dtype):
    columns = 8 * swizzle.row_bytes // bits_of(dtype)
    matrix = SharedMatrix(dtype, Major.K, swizzle, 256, 4 * columns)
    box = (256, columns)
    assert box_error(dtype, box, swizzle) is None
    assert box_bytes(dtype, box) == matrix.byte_offset(0, columns)
    assert shared_align(swizzle) % swizzle.atom_bytes == 0
