"""What an emitter was not made for is refused in one sentence, before anything is issued."""

from __future__ import annotations

import pytest
import tvm
from tvm.tirx import decl_buffer

from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.target import Swizzle

PRODUCT = wl.WgmmaEmitter.of(64, 128, 64, "float16")
FROM_REGISTERS = wl.WgmmaEmitter.of(128, 40, 32, "int8", a_in_registers=True)


def shared(shape, dtype="float16", layout=None, name="S"):
    return decl_buffer(shape, dtype, name, scope="shared", layout=layout)


def local(shape, dtype, layout, name="R"):
    return decl_buffer(shape, dtype, name, scope="local", layout=layout)


A = shared((2, 64, 64), layout=PRODUCT.a_shared_layout(2), name="A")
B = shared((2, 128, 64), layout=PRODUCT.b_shared_layout(2), name="B")
D = local((64, 128), "float32", PRODUCT.d_layout, "D")
HELD = local((128, 32), "int8", FROM_REGISTERS.a_layout, "P")
SUMS = local((128, 40), "int32", FROM_REGISTERS.d_layout, "C")
B8 = shared((40, 32), "int8", FROM_REGISTERS.b_shared_layout(), "B8")
INDEX = tvm.tirx.Var("i", "int32")
A_REGION, B_REGION = A[0, 0:64, 0:64], B[1, 0:128, 0:64]


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: PRODUCT.ss(D, A[0, 0:64, 0:32], B_REGION), "A is 64 x 32, .* needs 64 x 64"),
        (lambda: PRODUCT.ss(D, A_REGION, B[0, 0:64, 0:64]), "B is 64 x 64, .* needs 128 x 64"),
        (lambda: PRODUCT.ss(D[0:64, 0:64], A_REGION, B_REGION), "D is 64 x 64, .* needs 64 x 128"),
        (lambda: PRODUCT.ss(A_REGION, A_REGION, B_REGION), "D must be in registers"),
        (lambda: PRODUCT.ss(SUMS, A_REGION, B_REGION), "D has elements of int32, not float32"),
        (lambda: PRODUCT.ss(D, D, B_REGION), "A must be in shared memory, got scope 'local'"),
        (lambda: PRODUCT.ss(D, INDEX, B_REGION), r"or its descriptor \(uint64\), got i"),
        (lambda: PRODUCT.rs(D, A_REGION, B_REGION), "A must be a part of a register tile"),
        (
            lambda: PRODUCT.ss(D, B[0, 0:64, 0:64], B_REGION),
            "A lies in B as .* the emitter was made for",
        ),
        (lambda: FROM_REGISTERS.ss(SUMS, B8, B8), "A is only in registers in this matmul"),
        (lambda: FROM_REGISTERS.a_shared_layout(), "A is only in registers in this matmul"),
        (
            lambda: PRODUCT.ss_atom(D, A_REGION, B_REGION, 1, 0, 0),
            "index i = 1 is not within 0 to 0",
        ),
        (lambda: PRODUCT.ss_atom(D, A_REGION, B_REGION, 0, -1, 0), "index j = -1 is not within"),
        (
            lambda: PRODUCT.ss_atom(D, A_REGION, B_REGION, 0, 0, 4),
            "index k = 4 is not within 0 to 3",
        ),
        (
            lambda: FROM_REGISTERS.rs_atom(SUMS, HELD, B8, 0, INDEX, 0),
            "j = i must be a number, since instructions have different widths: 24, 16",
        ),
        (lambda: PRODUCT.fence_d(A_REGION), "only register tiles .* have operand fences"),
        (lambda: FROM_REGISTERS.fence_a(B8), "only register tiles .* have operand fences"),
    ],
)
def test_what_the_emitter_was_not_made_for(call, sentence):
    with pytest.raises(IllegalCombination, match=sentence):
        call()


def test_one_descriptor_cannot_cross_swizzle_atoms_from_within_one():
    """K from 32 to 95 of rows of 128: two atoms, the second one nearer than a descriptor says."""
    wide = wl.WgmmaEmitter.of(64, 64, 128, "float16").b
    part = wl.WgmmaEmitter(PRODUCT.kind, 64, 64, 64, wide)
    buffer = shared((64, 128), layout=wide.layout(), name="W")
    for start in (0, 64):
        part.b_descriptor(buffer[0:64, start : start + 64])
    with pytest.raises(IllegalCombination, match="multiple of 64 elements, a swizzle atom"):
        part.b_descriptor(buffer[0:64, 32:96])
    again = part.b_descriptor(buffer[0:64, 0:64])
    assert part.b_descriptor(again).same_as(again)
    short = wl.WgmmaEmitter(PRODUCT.kind, 64, 64, 32, wide)
    short.b_descriptor(buffer[0:64, 32:64])  # within one atom


@pytest.mark.parametrize("swizzle", Swizzle)
def test_descriptors_count_bytes_from_the_buffer(swizzle):
    """The constant part of a descriptor is the one of its matrix; the rest is the address."""
    product = wl.WgmmaEmitter.of(64, 64, 64, "float16", b_swizzle=swizzle)
    buffer = shared((3, 64, 64), layout=product.b_shared_layout(3), name="B")
    value = product.b_descriptor(buffer[2, 0:64, 0:64])
    text = str(value)
    assert str(product.b.wgmma.encoded) in text
    assert str(2 * 64 * 64 * 2 // 16) in text
