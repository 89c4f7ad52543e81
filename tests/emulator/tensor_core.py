"""How the tensor core of an H200 adds up an MMA, in numpy.

The rule follows from recorded results (``golden``), all of which it gives to the last bit.
"""

from __future__ import annotations

import numpy as np

#: Exponents of the least normal numbers.
LEAST_EXPONENT = {
    "float16": -14,
    "bfloat16": -126,
    "float32": -126,  # as tf32, too
    "float8_e4m3fn": -6,
    "float8_e5m2": -14,
}
_NO_EXPONENT = -10000


def exponents(values: np.ndarray, least: int) -> np.ndarray:
    """Of numbers; subnormal ones have the least, zero has none."""
    return np.where(values == 0, _NO_EXPONENT, np.maximum(np.frexp(values)[1] - 1, least))


def aligned_sum(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    dtype: str,
    kept: int,
    significant: int,
    least: tuple[int, int],
) -> np.ndarray:
    """``c + a @ b^T`` of ``a [m, k]``, ``b [n, k]``, ``c [m, n]``, all in float64.

    Terms are truncated to multiples of ``2**(e - kept)``, where e is the largest exponent, and
    their sum is truncated to ``significant`` bits, or rounded to float16.
    """
    exponent = exponents(a, least[0])[:, None, :] + exponents(b, least[1])[None]
    exponent = np.maximum(exponent.max(axis=2), exponents(c, -126))
    shift = kept - exponent
    terms = np.concatenate([a[:, None, :] * b[None], c[:, :, None]], axis=2)
    total = np.trunc(np.ldexp(terms, shift[:, :, None])).sum(axis=2)
    if dtype == "float32":
        unit = np.ldexp(1.0, np.maximum(np.frexp(total)[1] - significant, 0))
        total = np.trunc(total / unit) * unit
    with np.errstate(over="ignore"):
        return np.where(total == 0, 0, np.ldexp(total, -shift)).astype(dtype)


def product_sum(
    instruction: str,
    types: tuple[str, str],
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    dtype: str,
) -> np.ndarray:
    """The result of "wgmma" or "mma" for operands of some types and an accumulator ``dtype``."""
    a, b, start = a.astype("float64"), b.astype("float64"), c.astype("float64")
    if dtype == "int32":
        return (a @ b.T + c).astype("int64").astype("int32")
    narrow = types[0].startswith("float8")
    if narrow and instruction == "mma":
        # Two products of float16, and an addition.
        least, total = (LEAST_EXPONENT["float16"],) * 2, np.zeros_like(start)
        first = np.arange(a.shape[1]) % 4 < 2
        for part in (first, ~first):
            total = aligned_sum(a[:, part], b[:, part], total, dtype, 25, 24, least)
            total = total.astype("float64")
        return (start + total).astype(dtype)
    least = LEAST_EXPONENT[types[0]], LEAST_EXPONENT[types[1]]
    kept, significant = (13, 14) if narrow else (25, 24)
    return aligned_sum(a, b, start, dtype, kept, significant, least)
