"""Numbers of tile programs: numpy dtypes, conversions, and the poison of unwritten elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from warploom.errors import TileProgramError

_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_BUILTIN = ("bool", "float16", "float32", "float64", *_INTEGERS)
_SMALL_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
DTYPES: dict[str, np.dtype] = {name: np.dtype(name) for name in _BUILTIN} | {
    name: np.dtype(getattr(ml_dtypes, name)) for name in _SMALL_FLOATS
}
#: Dtypes to which conversions saturate, as the GPU's do -> largest finite value.
_SATURATING = {
    DTYPES[name]: float(ml_dtypes.finfo(DTYPES[name]).max)
    for name in ("float8_e4m3fn", "float8_e5m2")
}
#: A byte of integers that were never written.
_POISON = 0xA5


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype of a TVM dtype."""
    if name not in DTYPES:
        raise TileProgramError(
            f"dtype {name!r} cannot be interpreted; allowed are {', '.join(DTYPES)}."
        )
    return DTYPES[name]


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype.name in _SMALL_FLOATS


def convert(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``values`` in another dtype, as a cast on the GPU converts them.

    Floats are rounded to nearest; to 8-bit floats they saturate. As integers they are truncated
    and saturate, and NaN becomes 0. Integers wrap around.
    """
    values = np.asarray(values)
    if values.dtype == dtype:
        return values
    if dtype.kind in "iu" and is_float(values.dtype):
        limits = np.iinfo(dtype)
        wide = np.nan_to_num(values.astype(np.float64), nan=0.0)
        result = np.clip(wide, limits.min, limits.max).astype(dtype)
        return np.where(wide >= float(limits.max), dtype.type(limits.max), result)
    if dtype in _SATURATING:
        limit = _SATURATING[dtype]
        return np.clip(values.astype(np.float32), -limit, limit).astype(dtype)
    return values.astype(dtype)


def poisoned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of NaN; of integers, of a pattern that no program is likely to compute."""
    if is_float(dtype):
        return np.full(shape, np.nan, np.float32).astype(dtype)
    if dtype == np.bool_:
        return np.ones(shape, dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.full(size, _POISON, np.uint8).view(dtype).reshape(shape)
