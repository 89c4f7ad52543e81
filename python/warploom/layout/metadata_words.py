"""Metadata of a sparse A as ``tcgen05.mma.sp`` reads it: words of 32 bits in lanes and columns.

Tensor memory has 128 lanes for 128 rows of A. A word holds as many bits of metadata as four bytes
of :mod:`warploom.sparse`:

* of 8-bit elements those of the lane's own row: word ``c`` is its bytes ``4 c`` to ``4 c + 3``;
* of wider elements two bytes of each of two rows. Of 16 lanes, the first eight have the bytes
  ``4 c`` and ``4 c + 1`` of the rows ``r`` (in the low bits) and ``r + 8``; the other eight have
  the bytes ``4 c + 2`` and ``4 c + 3`` of the same rows.

An instruction reads two columns of 8-bit elements, and one of wider ones; its sparsity selector
then says which of a pair. Copies write four columns at a time.

Sources: PTX ISA, "Sparse Matrices" of ``tcgen05.mma`` (which bits name which elements, and the
selector); for the places in tensor memory ``cute::UMMA::tmem_e_frg`` of CUTLASS, and of 8-bit and
16-bit elements also ``format_tcgen05_sparse_metadata`` of JAX's Pallas, which is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from warploom.errors import IllegalCombination
from warploom.layout.smem_matrix import SharedMatrix
from warploom.sparse import FIRST
from warploom.target.dtypes import bits_of, dtype_name
from warploom.target.swizzle import Major, Swizzle

#: The dtype of words.
WORD = "uint32"
#: Bytes of metadata of a row that a word has room for.
WORD_BYTES = 4
#: Rows of A that lanes hold the metadata of.
LANES = 128
#: Columns that ``tcgen05.cp.128x128b`` writes.
COPY_COLUMNS = 4
#: Distance of the two rows of a word, and of the lanes with their other bytes.
_PARTNER = 8
#: Rows that share words.
WORD_ROWS = 2 * _PARTNER


def columns_of_instruction(dtype: Any) -> int:
    """Columns whose bits one instruction takes."""
    return 2 if _is_narrow(dtype) else 1


def shared_words(rows: int, words: int) -> SharedMatrix:
    """Words as a matrix in shared memory that ``tcgen05.cp`` reads, in whole copies."""
    whole = -(-words // COPY_COLUMNS) * COPY_COLUMNS
    return SharedMatrix(WORD, Major.K, Swizzle.NONE, rows, whole)


def bytes_of_word(lane: Any, word: Any, dtype: Any) -> list[tuple[Any, Any]]:
    """Row and byte of each of the four bytes of a word, the one in the lowest bits first.

    Parameters
    ----------
    lane, word : int, array or tvm Expr
    """
    first = word * WORD_BYTES
    if _is_narrow(dtype):
        return [(lane, first + byte) for byte in range(WORD_BYTES)]
    half = lane >> 3 & 1
    row, first = lane - half * _PARTNER, first + half * 2
    return [(row + _PARTNER * upper, first + byte) for upper in range(2) for byte in range(2)]


def word_of_byte(row: Any, byte: Any, dtype: Any) -> tuple[Any, Any, Any]:
    """Lane, word and lowest bit of a byte of metadata: the inverse of :func:`bytes_of_word`."""
    word = byte >> 2
    if _is_narrow(dtype):
        return row, word, (byte & 3) * 8
    upper = row >> 3 & 1
    return row + ((byte >> 1 & 1) - upper) * _PARTNER, word, upper * 16 + (byte & 1) * 8


def to_words(
    metadata: np.ndarray, dtype: Any, multiple: tuple[int, int] = (LANES, COPY_COLUMNS)
) -> np.ndarray:
    """Metadata in words, for tile programs that load them instead of bytes.

    The tensor core of Blackwell then gets metadata as it is loaded, without threads in between.

    Parameters
    ----------
    metadata : array
        uint8, ``[M, K / 8]``, or ``[M, K / 4]`` of float32: as ``warploom.sparse.compress`` has it.
    dtype : str
        That of A.
    multiple : tuple of (int, int)
        The result has multiples of so many rows, themselves a multiple of 16, and words; those of
        a tile. Words that no element of A needs name the first elements: hardware does not define
        zeros, so what a tile reads of words lies inside.

    Returns
    -------
    np.ndarray
        uint32, ``[M, K / 32]``, or ``[M, K / 16]`` of float32, rounded up.

    Raises
    ------
    IllegalCombination
        If ``multiple`` is illegal.

    Examples
    --------
    >>> words = to_words(np.arange(64, dtype="uint8").reshape(16, 4), "float16")
    >>> words.shape, hex(words[0, 0]), hex(words[0, 1])
    ((128, 4), '0x21200100', '0x44444444')
    """
    if multiple[0] < 1 or multiple[0] % WORD_ROWS or multiple[1] < 1:
        raise IllegalCombination(
            f"sparse: words are wanted in multiples of {multiple} rows and words; rows share "
            f"words, so let the first be a multiple of {WORD_ROWS}."
        )
    metadata = np.asarray(metadata, np.uint8)
    rows, size = metadata.shape
    rows, words = (
        -(-extent // each) * each
        for extent, each in zip((rows, -(-size // WORD_BYTES)), multiple, strict=True)
    )
    every = np.full((rows, words * WORD_BYTES), FIRST | FIRST << 4, np.uint8)
    every[: metadata.shape[0], :size] = metadata
    lane, word = np.indices((rows, words))
    out = np.zeros((rows, words), WORD)
    for number, (row, byte) in enumerate(bytes_of_word(lane, word, dtype)):
        out |= every[row, byte].astype(WORD) << np.uint32(8 * number)
    return out


def from_words(words: np.ndarray, dtype: Any, size: int) -> np.ndarray:
    """The first ``size`` bytes of each row of A: the inverse of :func:`to_words`.

    Raises
    ------
    IllegalCombination
        If rows are no multiple of 16, or a byte has four bits that are zero.
    """
    words = np.asarray(words, WORD)
    if words.ndim != 2 or words.shape[0] % WORD_ROWS:
        raise IllegalCombination(
            f"sparse: metadata has shape {words.shape}; words are of a matrix of a multiple of "
            f"{WORD_ROWS} rows."
        )
    lane, word, bit = word_of_byte(*np.indices((words.shape[0], size)), dtype)
    found = (words[lane, word] >> bit.astype(WORD) & np.uint32(0xFF)).astype(np.uint8)
    empty = np.argwhere((found & 0x0F == 0) | (found & 0xF0 == 0))
    if len(empty):
        row, byte = (int(place) for place in empty[0])
        raise IllegalCombination(
            f"sparse: byte {byte} of the metadata of row {row} is 0x{int(found[row, byte]):x}; "
            "words have no four bits that are zero, so pad them to whole tiles, as "
            "warploom.layout.metadata_words.to_words does."
        )
    return found


def _is_narrow(dtype: Any) -> bool:
    return bits_of(dtype_name(dtype)) == 8
