"""Values of block-scaled operands: elements of a byte or two in one, and their scales."""

from __future__ import annotations

import numpy as np

from warploom.language.values.dtypes import numpy_dtype
from warploom.target.scaled_formats import (
    SCALE_COLUMNS,
    SCALE_ROWS,
    ScaledFormat,
    are_in_blocks,
    scale_blocks,
)

#: Values of float4_e2m1fn; the fourth bit is the sign.
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def scaled_values(row: ScaledFormat, stored: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The operand ``[rows, K]`` in float64, each element times its scale.

    Parameters
    ----------
    row : ScaledFormat
    stored : ndarray
        ``[rows, K]``, or ``[rows, K / 2]`` with two elements in a byte.
    scales : ndarray
        In rows or in blocks, with leading dimensions of extent 1.
    """
    values = stored.astype(np.float64) if row.packed == 1 else _unpacked(stored)
    rows, k = values.shape
    count = k // row.block
    if are_in_blocks(scales.shape, rows, count):
        high, deep, lanes, _ = scale_blocks(rows, count)
        blocks = scales.reshape(high, deep, lanes, SCALE_ROWS // lanes, SCALE_COLUMNS)
        blocks = blocks.transpose(0, 3, 2, 1, 4).reshape(high * SCALE_ROWS, deep * SCALE_COLUMNS)
        scales = np.ascontiguousarray(blocks[:rows, :count])
    factors = scales.reshape(rows, count).view(numpy_dtype(row.scale)).astype(np.float64)
    return values * np.repeat(factors, row.block, axis=1)


def _unpacked(stored: np.ndarray) -> np.ndarray:
    nibbles = np.stack([stored & 15, stored >> 4], axis=-1).reshape(len(stored), -1)
    return np.where(nibbles & 8, -1.0, 1.0) * _FP4[nibbles & 7]
