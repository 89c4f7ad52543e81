"""mma.sp and wgmma.mma_async.sp: the metadata says which elements of K a sparse A holds.

What an H200 gives is in the golden corpus; here a sparse MMA is that of the dense matrix.
"""

import numpy as np
import pytest

from tests.emulator.native import SHARED_START, emulator_function, int64
from tests.emulator.tensor_core import product_sum
from tests.emulator.test_matrix import ACCUMULATOR, PTX, from_registers, to_registers
from tests.shared.reference import numpy_dtype, random_array

#: Type, values of K, and how many selectors each has.
SHAPES = [
    *((kind, k, n) for kind in ("float16", "bfloat16") for k, n in ((16, 4), (32, 2))),
    *(("float32", k, n) for k, n in ((8, 4), (16, 2))),
    *((kind, k, n) for kind in ("int8", "uint8") for k, n in ((32, 2), (64, 1))),
]
RESULT = {"int8": "int32", "uint8": "int32"}


def choose(rng, rows, k, dtype):
    """For each row the elements that it holds: two of four, or one of two; and their nibbles."""
    chunk, held = (2, 1) if dtype == "float32" else (4, 2)
    picked = rng.permuted(np.tile(np.arange(chunk), (rows, k // chunk, 1)), axis=2)[..., :held]
    picked = np.sort(picked, axis=2)
    if dtype == "float32":
        nibbles = np.where(picked[..., 0] == 0, 0b0100, 0b1110)
    else:
        nibbles = picked[..., 0] | picked[..., 1] << 2
    elements = picked + chunk * np.arange(k // chunk)[:, None]
    return elements.reshape(rows, k // 2), nibbles.astype("uint32")


def metadata_of(rng, nibbles, dtype, selector):
    """The register of 32 lanes for 16 rows; lanes that are not selected hold noise."""
    lanes = rng.integers(0, 2**32, 32, "uint32")
    chunks = nibbles.shape[1]
    shifts = np.arange(0, 32, 4, dtype="uint32")
    for group in range(8):
        if numpy_dtype(dtype).itemsize == 1:
            words = nibbles.reshape(2, 8, chunks // 8, 8)[:, group].swapaxes(0, 1).reshape(-1, 8)
        else:
            both = nibbles.reshape(2, 8, chunks // 4, 4)[:, group]
            words = np.concatenate([both[0], both[1]], axis=1)
        first = 4 * group + selector * len(words)
        lanes[first : first + len(words)] = (words << shifts).sum(axis=1)
    return lanes


def spread(held, elements, k):
    dense = np.zeros((held.shape[0], k), held.dtype)
    np.put_along_axis(dense, elements, held, axis=1)
    return dense


def register_a(held):
    group = 4 // held.itemsize
    registers = held.shape[1] // group // 2
    r, lane, e = np.ogrid[:registers, :32, :group]
    return held[lane // 4 + 8 * (r % 2), (lane % 4 + 4 * (r // 2)) * group + e]


@pytest.mark.parametrize("dtype, k, selectors", SHAPES)
def test_mma_sp_is_the_mma_of_the_dense_matrix(dtype, k, selectors, rng):
    for selector in range(selectors):
        elements, nibbles = choose(rng, 16, k, dtype)
        held, b = random_array(rng, (16, k // 2), dtype), random_array(rng, (8, k), dtype)
        d = RESULT.get(dtype, "float32")
        c = random_array(rng, (16, 8), d)
        group = 4 // held.itemsize
        r, lane, e = np.ogrid[: k // group // 4, :32, :group]
        b_registers = b[lane // 4 + 0 * r, (lane % 4 + 4 * r) * group + e]
        metadata = metadata_of(rng, nibbles, dtype, selector)
        types = ACCUMULATOR[d], PTX[dtype], PTX[dtype], ACCUMULATOR[d]
        result = emulator_function("mma")(
            *(16, 8, k, *types, "ordered", register_a(held).tobytes(), b_registers.tobytes()),
            *(to_registers(c, 8, 1), metadata.tobytes(), selector),
        )
        expected = product_sum("mma", (dtype, dtype), spread(held, elements, k), b, c, d)
        np.testing.assert_array_equal(from_registers(result, d, 8, 1), expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float8_e4m3fn", "int8"])
def test_wgmma_sp_is_the_wgmma_of_the_dense_matrix(dtype, rng):
    size = numpy_dtype(dtype).itemsize
    k, n = 64 // size, int(rng.choice([8, 16, 64, 128]))
    d = RESULT.get(dtype, "float32")
    elements, nibbles = choose(rng, 64, k, dtype)
    held, b = random_array(rng, (64, k // 2), dtype), random_array(rng, (n, k), dtype)
    c = random_array(rng, (64, n), d)
    warps = [slice(16 * warp, 16 * warp + 16) for warp in range(4)]
    a_registers = np.stack([register_a(held[rows]) for rows in warps], axis=1)
    metadata = np.stack([metadata_of(rng, nibbles[rows], dtype, 0) for rows in warps])
    # Without a swizzle: blocks of 8 rows by 16 bytes, four of them side by side.
    blocks = b.reshape(n // 8, 8, 4, 16 // size).swapaxes(1, 2)
    memory = bytes(SHARED_START) + np.ascontiguousarray(blocks).tobytes()
    descriptor = 512 >> 4 << 32 | 128 >> 4 << 16 | SHARED_START >> 4
    result = emulator_function("wgmma")(
        *(n, k, ACCUMULATOR[d], PTX[dtype], PTX[dtype], "accumulate", to_registers(c, n, 4)),
        *(a_registers.tobytes(), 0, int64(descriptor), memory, 1, metadata.tobytes(), 0),
    )
    dense = spread(held, elements, k)
    expected = product_sum("wgmma", (dtype, dtype), dense, b, c, d)
    np.testing.assert_array_equal(from_registers(result, d, n, 4), expected)


def test_elements_that_a_does_not_hold_are_not_multiplied(rng):
    """Infinity times the zero of a dense matrix would be no number."""
    elements, nibbles = choose(rng, 16, 16, "float16")
    elements[:], nibbles[:] = np.tile([0, 1], 4) + np.repeat(np.arange(0, 16, 4), 2), 0b0100
    held, b = random_array(rng, (16, 8), "float16"), random_array(rng, (8, 16), "float16")
    b[:, 2::4] = np.inf
    r, lane, e = np.ogrid[:2, :32, :2]
    b_registers = b[lane // 4 + 0 * r, (lane % 4 + 4 * r) * 2 + e]
    c = np.zeros((16, 8), "float32")
    result = emulator_function("mma")(
        *(16, 8, 16, "f32", "f16", "f16", "f32", "", register_a(held).tobytes()),
        *(b_registers.tobytes(), to_registers(c, 8, 1)),
        *(metadata_of(rng, nibbles, "float16", 0).tobytes(), 0),
    )
    expected = product_sum("mma", ("float16",) * 2, held, b[:, elements[0]], c, "float32")
    np.testing.assert_array_equal(from_registers(result, "float32", 8, 1), expected)


@pytest.mark.parametrize(
    "form, words, nibble, message",
    [
        ((16, 8, 16, "f32", "f16", "f16", "f32"), "", 0b0101, "its two indices must differ"),
        ((16, 8, 16, "f32", "f16", "f16", "f32"), "ordered", 0b0001, "its indices must ascend"),
        ((16, 8, 8, "f32", "tf32", "tf32", "f32"), "", 0b0001, "it must be 0x4 or 0xe"),
    ],
)
def test_metadata_that_names_no_elements(form, words, nibble, message):
    lanes = np.full(32, 0x11111111 * nibble, "uint32").tobytes()
    with pytest.raises(ValueError, match=message):
        emulator_function("mma")(*form, words, *(bytes(512),) * 3, lanes, 0)


@pytest.mark.parametrize(
    "form, selector, message",
    [
        ((16, 8, 32, "f32", "f16", "f16", "f32"), 2, "it must be 0 to 1"),
        ((16, 8, 64, "f32", "f16", "f16", "f32"), 0, "allowed are m16n8k16, m16n8k32"),
        ((16, 8, 64, "f16", "e4m3", "e4m3", "f16"), 0, "allowed are none"),
        ((8, 8, 16, "s32", "s8", "s8", "s32"), 0, "allowed are m16n8k32, m16n8k64"),
    ],
)
def test_sparse_forms_that_do_not_exist(form, selector, message):
    with pytest.raises(ValueError, match=message):
        emulator_function("mma")(*form, "", b"", b"", b"", bytes(128), selector)
    with pytest.raises(ValueError, match="has a sparsity selector of 1"):
        emulator_function("wgmma")(
            *(8, 64, "f32", "e4m3", "e4m3", "", b"", b"", 0, 0, b"", 1, bytes(512), 1)
        )
