"""Matrix descriptors against a brute-force model of how the tensor core walks shared memory.

Memory is filled through TVM's layout of the buffer; the model then gathers an operand from a
descriptor alone, as PTX ISA, "Shared Memory Matrix Layout", "Strides" and "Matrix Descriptor
Format" describe it. Every legal start in every buffer must give the elements that belong there.
"""

import itertools

import numpy as np
import pytest
import tvm
from tvm.backend.cuda.cpp.descriptors import encode_smem_descriptor_base_uint64
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.tirx.layout import S, TileLayout

from tests.shared.layout_evaluation import evaluate_layout
from warploom.errors import IllegalCombination
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target.swizzle import Major, Swizzle
from warploom.target.wgmma import WGMMA_KINDS

DTYPES = sorted({kind.a for kind in WGMMA_KINDS})
STAGES = 2
#: A base that is aligned as a 128-byte swizzle wants and whose address bits are not all zero.
BASE = 5 * 1024

#: Bits 62-63 of the wgmma descriptor -> bytes of a swizzled row ("Matrix Descriptor Format").
ROW_BYTES = {0: 16, 1: 128, 2: 64, 3: 32}


def swizzled(address, row_bytes):
    """Bits 4.. of an address are XORed with bits 7..: one bit for 32 bytes, three for 128."""
    mask = row_bytes // 16 - 1
    return address ^ ((address >> 7 & mask) << 4)


def walk(descriptor, major, element_bytes, mn, k):
    """Byte addresses of the elements (mn, k) that a descriptor names, in canonical layout order."""
    start = (descriptor & 0x3FFF) << 4
    leading = (descriptor >> 16 & 0x3FFF) << 4
    stride = (descriptor >> 32 & 0x3FFF) << 4
    row_bytes = ROW_BYTES[descriptor >> 62]
    contiguous, other = (k, mn) if major is Major.K else (mn, k)
    chunk, within = np.divmod(contiguous * element_bytes, 16)
    block, line = np.divmod(other, 8)
    if row_bytes == 16:
        distances = (stride, leading) if major is Major.K else (leading, stride)
        address = start + line * 16 + block * distances[0] + chunk * distances[1]
    else:
        atom, chunk = np.divmod(chunk, row_bytes // 16)
        assert major is Major.MN or (start % row_bytes + 32 <= row_bytes and not atom.any())
        address = start + line * row_bytes + block * stride + chunk * 16 + atom * leading
    return swizzled(address, row_bytes) + within


def legal_matrices():
    """Operands of one and of several atoms in either direction, odd counts included."""
    for dtype, major, swizzle in itertools.product(DTYPES, Major, Swizzle):
        bits = tvm.DataType(dtype).bits
        if bits == 32 and major is Major.MN:
            continue
        columns, step = swizzle.row_bytes * 8 // bits, 256 // bits
        for rows, atoms in itertools.product((1, 3, 8, 32), (1, 2, 3)):
            mn, k = (8 * rows, atoms * columns)
            mn, k = (mn, k) if major is Major.K else (k, mn)
            if k % step == 0:
                yield SharedMatrix(dtype, major, swizzle, mn, k)


MATRICES = list(legal_matrices())


def test_the_cases_cover_every_dtype_major_and_swizzle():
    covered = {(m.dtype, m.major, m.swizzle) for m in MATRICES}
    legal = {(kind.a, major, s) for kind in WGMMA_KINDS for major in kind.majors for s in Swizzle}
    assert covered >= legal and len(MATRICES) > 400


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.some(3)
def test_every_legal_start_gathers_its_elements(dtype):
    for matrix in (m for m in MATRICES if m.dtype == dtype):
        size = matrix.element_bytes
        shape = (STAGES, *matrix.shape)
        offsets = evaluate_layout(matrix.layout((STAGES,)), shape)["m"]
        assert sorted(offsets.ravel()) == list(range(offsets.size))
        memory = np.full(BASE + offsets.size * size, -1)
        memory[BASE + offsets * size] = np.arange(offsets.size).reshape(shape)
        step = 32 // size
        stage = STAGES - 1
        names = np.arange(offsets.size).reshape(shape)[stage]
        names = names if matrix.major is Major.K else names.T
        start = BASE + stage * matrix.mn * matrix.k * size
        for mn0, k0 in itertools.product(
            range(0, matrix.mn, matrix.mn_align),
            range(0, matrix.k - step + 1, matrix.k_align),
        ):
            # An instruction of any width reads the first rows of what is left, so the widest
            # one proves all narrower ones.
            width = min(256, matrix.mn - mn0)
            descriptor = matrix.descriptor + (start + matrix.byte_offset(mn0, k0) >> 4)
            mn, k = np.indices((width, step))
            addresses = walk(descriptor, matrix.major, size, mn, k)
            expected = names[mn0 : mn0 + width, k0 : k0 + step]
            np.testing.assert_array_equal(memory[addresses], expected, err_msg=f"{matrix}")


def test_symbolic_offsets_agree_with_constant_ones():
    mn, k = (tvm.tirx.Var(name, "int32") for name in ("mn", "k"))
    for matrix in MATRICES:
        expression = str(matrix.byte_offset(mn, k))
        starts = np.meshgrid(
            np.arange(0, matrix.mn, matrix.mn_align), np.arange(0, matrix.k, matrix.k_align)
        )
        symbolic = eval(expression, {}, {"mn": starts[0], "k": starts[1]})
        np.testing.assert_array_equal(symbolic, matrix.byte_offset(*starts))
        assert not (symbolic % 16).any()


def test_tcgen05_descriptor_is_the_one_tvm_encodes():
    for m in MATRICES:
        tvm_encoding = encode_smem_descriptor_base_uint64(
            m.leading_bytes // 16, m.stride_bytes // 16, m.swizzle.bits
        )
        assert m.tcgen05_descriptor == tvm_encoding


@pytest.mark.parametrize("lead", [(), (1,), (3,), (2, 4)], ids=str)
def test_a_buffer_is_recognised_at_every_swizzle(lead):
    for matrix in MATRICES:
        buffer = tvm.tirx.decl_buffer(
            (*lead, *matrix.shape), matrix.dtype, layout=matrix.layout(lead), scope="shared.dyn"
        )
        assert SharedMatrix.from_buffer(buffer, matrix.major) == matrix


def shared(shape, dtype="float16", layout=None):
    return tvm.tirx.decl_buffer(shape, dtype, "A_s", layout=layout, scope="shared.dyn")


SYMBOLIC = tvm.tirx.Var("rows", "int32")


@pytest.mark.parametrize(
    "buffer, message",
    [
        (shared((64, 64)), "A_s has layout .* cannot read.*mma_shared_layout"),
        (
            shared((64, 64), layout=mma_shared_layout("float16", 3, (64, 64)).tile_layout),
            "cannot read",
        ),
        (
            shared((64, 64), layout=TileLayout(S[(64, 8, 8) : (8, 512 + 8, 1)])),
            "cannot read",
        ),
        (shared((SYMBOLIC, 64)), r"A_s has shape \(rows, 64\).*constant"),
        (shared((64,)), "two dimensions"),
        (shared((64, 63)), "8 x 8 elements, which do not divide its 64 x 63"),
        (shared((12, 64)), "do not divide its 12 x 64"),
        (shared((64, 64), "float64"), "got float64"),
    ],
)
def test_an_unreadable_buffer_is_refused_with_the_reason(buffer, message):
    with pytest.raises(IllegalCombination, match=message):
        SharedMatrix.from_buffer(buffer, Major.K)


def test_what_the_descriptor_cannot_hold_is_refused():
    with pytest.raises(IllegalCombination, match=r"leading byte offset .* less than 262144"):
        SharedMatrix("float16", Major.K, Swizzle.NONE, 1 << 14, 16)
    with pytest.raises(IllegalCombination, match="MN-major operand of float32"):
        SharedMatrix("float32", Major.MN, Swizzle.B128, 64, 64)
