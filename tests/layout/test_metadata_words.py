"""Words of sparsity metadata: the two orders are inverse, and that of the emulator's model."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.emulator import umma_model
from tests.emulator.umma_model import TensorMemory, write_metadata
from warploom.errors import IllegalCombination
from warploom.layout.metadata_words import (
    COPY_COLUMNS,
    bytes_of_word,
    columns_of_instruction,
    from_words,
    shared_words,
    to_words,
    word_of_byte,
)
from warploom.sparse import compress, sparsity

KINDS = {"float16": "f16", "float32": "tf32", "float8_e4m3fn": "f8f6f4", "int8": "i8"}
TYPES = {"f16": "f16", "tf32": "tf32", "f8f6f4": "e4m3", "i8": "s8"}


def random_metadata(rng, rows, size):
    """Bytes of which no four bits are zero."""
    low, high = (rng.integers(1, 16, (rows, size), "uint8") for _ in range(2))
    return low | high << 4


@pytest.mark.parametrize("dtype", KINDS)
def test_every_byte_has_one_place(dtype):
    for word in range(3):
        for lane in range(32):
            for number, (row, byte) in enumerate(bytes_of_word(lane, word, dtype)):
                assert word_of_byte(row, byte, dtype) == (lane, word, 8 * number)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(128, 16), (16, 4), (96, 12), (256, 8)])
def test_they_go_round(dtype, shape, rng):
    metadata = random_metadata(rng, *shape)
    words = to_words(metadata, dtype, (16, 1))
    assert words.shape == (shape[0], shape[1] // 4)
    np.testing.assert_array_equal(from_words(words, dtype, shape[1]), metadata)


@pytest.mark.parametrize("dtype", KINDS)
def test_words_are_what_an_instruction_reads(dtype, rng):
    """The emulator's model of ``tcgen05.mma.sp`` puts the metadata of one instruction there."""
    kind = KINDS[dtype]
    name = TYPES[kind]
    mma = umma_model.Mma(kind, name, name, "s32" if kind == "i8" else "f32", 128, 16, sparse=True)
    width = columns_of_instruction(dtype)
    for selector in range(2 // width):
        tensor = TensorMemory(rng, 1)
        start, places = write_metadata(rng, dataclasses.replace(mma, selector=selector), tensor)
        dense = np.zeros((128, mma.b_k), dtype)
        np.put_along_axis(dense, places, np.ones((128, mma.k), dtype), axis=1)
        words = to_words(compress(dense)[1], dtype, (128, 1))
        assert words.shape[1] == width
        first = start + selector
        np.testing.assert_array_equal(words, tensor.cells[0, :, first : first + width])


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("rows, k", [(1, 32), (100, 160), (130, 96)])
def test_padding_names_the_first_elements(dtype, rows, k, rng):
    rule = sparsity(dtype)
    metadata = random_metadata(rng, rows, rule.metadata_columns(k))
    words = to_words(metadata, dtype)
    assert words.shape[0] % 128 == words.shape[1] % COPY_COLUMNS == 0
    every = from_words(words, dtype, 4 * words.shape[1])
    np.testing.assert_array_equal(every[:rows, : metadata.shape[1]], metadata)
    assert (every[rows:] == 0x44).all() and (every[:, metadata.shape[1] :] == 0x44).all()


def test_zeros_are_refused():
    words = to_words(np.full((16, 4), 0x44, "uint8"), "int8", (16, 1))
    words[3, 0] = 0x44404444
    with pytest.raises(IllegalCombination, match="byte 2 of the metadata of row 3 is 0x40; words"):
        from_words(words, "int8", 4)


@pytest.mark.parametrize("multiple", [(8, 1), (0, 4), (16, 0)])
def test_illegal_multiples_are_refused(multiple):
    with pytest.raises(IllegalCombination, match="let the first be a multiple of 16"):
        to_words(np.full((16, 4), 0x44, "uint8"), "int8", multiple)


def test_shared_words_are_whole_copies():
    matrix = shared_words(128, 6)
    assert (matrix.mn, matrix.k, matrix.stride_bytes) == (128, 8, 128)
