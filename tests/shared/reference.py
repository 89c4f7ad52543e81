"""Random operands, expected results and error bounds for matmuls, in numpy float64.

``ml_dtypes`` supplies the element types that numpy lacks. TVM has no tf32: its operands are
float32 values whose low 13 bits are zero, so that the tensor core sees exactly what numpy sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

_ML_DTYPES = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


def numpy_dtype(dtype: str) -> np.dtype:
    """The numpy dtype of a TVM dtype name."""
    return np.dtype(_ML_DTYPES.get(dtype, dtype))


def round_to_tf32(values: np.ndarray) -> np.ndarray:
    """float32 values rounded to nearest, ties to even, with 10 mantissa bits."""
    bits = np.ascontiguousarray(values, "float32").view("uint32").astype("uint64")
    bits = bits + 0xFFF + (bits >> 13 & 1) & ~np.uint64(0x1FFF)
    return bits.astype("uint32").view("float32").reshape(values.shape)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Normal random numbers, or all values of an 8-bit integer type with equal probability.

    float32 is rounded to tf32. int32 (an accumulator) stays below 2**20.
    """
    if dtype in ("int8", "uint8"):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if dtype == "int32":
        return rng.integers(-(2**20), 2**20, shape, dtype)
    values = rng.standard_normal(shape, "float32")
    return round_to_tf32(values) if dtype == "float32" else values.astype(numpy_dtype(dtype))


def poison(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Values that spoil any result they enter: NaN, or random numbers where there is no NaN."""
    if dtype in ("int8", "uint8", "int32"):
        return random_array(rng, shape, dtype)
    return np.full(shape, np.nan, "float32").astype(numpy_dtype(dtype))


@dataclass(frozen=True)
class Expected:
    """A result and, for every element, the error that is allowed in it.

    Attributes
    ----------
    value, bound : numpy.ndarray of float64
        Equal shapes; a bound of 0 asks for the exact value.
    """

    value: np.ndarray
    bound: np.ndarray

    def mismatches(self, actual: np.ndarray) -> np.ndarray:
        """Boolean array, true where ``actual`` is not finite or off by more than the bound."""
        error = np.abs(actual.astype("float64") - self.value)
        return ~(error <= self.bound)

    def worst(self, actual: np.ndarray) -> float:
        """Largest error as a fraction of its bound; 0 if all are exact, inf if one may not err."""
        error = np.abs(actual.astype("float64") - self.value)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(error == 0, 0.0, error / self.bound)
        return float(np.max(np.nan_to_num(ratio, nan=np.inf), initial=0.0))


def error_fraction(a: str, d: str) -> float:
    """Error allowed in an element of D, as a fraction of the sum of its ``|a| * |b|`` terms.

    Integers are exact. float16 accumulators round each instruction's result to 11 bits. For
    8-bit floats the tensor core keeps about 13 fractional bits of the aligned products
    while it adds them, for wider types at least those of float32. A single wrong operand element
    moves the sum by far more than any of these.
    """
    if d == "int32":
        return 0.0
    if d == "float16":
        return 2.0**-8
    return 2.0**-9 if a.startswith("float8") else 2.0**-16


def product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``a [m, k] @ b [n, k]^T`` and the same of absolute values, in float64."""
    a, b = a.astype("float64"), b.astype("float64")
    return a @ b.T, np.abs(a) @ np.abs(b).T


def accumulate(
    a: list[np.ndarray], b: list[np.ndarray], c: np.ndarray | None, fraction: float
) -> Expected:
    """``c + sum(a[i] @ b[i]^T)`` with its error bound.

    Parameters
    ----------
    a, b : list of arrays ``[m, k]`` and ``[n, k]``
        Operands of successive matmuls.
    c : array ``[m, n]`` or None
        What the accumulator holds before.
    fraction : float
        From :func:`error_fraction`.
    """
    products = [product(x, y) for x, y in zip(a, b, strict=True)]
    value, size = (sum(parts) for parts in zip(*products, strict=True))
    if c is not None:
        value, size = value + c.astype("float64"), size + np.abs(c.astype("float64"))
    return Expected(value, fraction * size)


#: What float32 sums of a tensor core may lose, in parts of the largest result: order and truncation
#: cost a few of the last bits.
SUMS = 4e-6
#: The same of products of 8-bit floats. Each MMA aligns its 32 products and the sum so far to about
#: 13 fractional bits and truncates them: a few units of the last bit for the few MMAs of a test.
SUMS_FLOAT8 = 2.0**-11


def rounding_bound(
    wanted: np.ndarray, dtype: np.dtype, roundings: int = 1, sums: float = SUMS
) -> np.ndarray:
    """The error that each element of a result may have which is rounded to ``dtype``.

    Parameters
    ----------
    wanted : array of float64
        The exact result.
    dtype : numpy.dtype
        Of the result: floating-point or integer. Integers are exact.
    roundings : int
        How often the computation rounds to this type: the last time the element itself, half a
        unit in the last place; before it values that may be as large as the largest result.
    sums : float
        What sums may lose, in parts of the largest result.

    Examples
    --------
    >>> rounding_bound(np.array([1.0, 0.0]), np.dtype("float16"))
    array([4.9228125e-04, 4.0000000e-06])
    """
    if dtype.kind in "iub":
        return np.zeros(wanted.shape)
    half_unit = float(ml_dtypes.finfo(dtype).eps) / 2
    size = np.abs(wanted)
    return half_unit * size + ((roundings - 1) * half_unit + sums) * size.max(initial=0.0)


def assert_rounded(
    found: np.ndarray, wanted: np.ndarray, roundings: int = 1, sums: float = SUMS
) -> None:
    """Every element is right but for rounding to its own dtype; see :func:`rounding_bound`."""
    assert found.shape == wanted.shape, f"the shape is {found.shape}, not {wanted.shape}"
    worst = Expected(wanted, rounding_bound(wanted, found.dtype, roundings, sums)).worst(found)
    assert worst <= 1, f"{worst:.3g} of the error that {roundings} roundings may have"
