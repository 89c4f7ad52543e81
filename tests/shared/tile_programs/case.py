"""A tile program with its data: random arguments, and what numpy says it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from tvm.tirx import PrimFunc

ACCUMULATORS = {"int8": "int32", "uint8": "int32"}


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype, None) or dtype)


@dataclass(frozen=True)
class Case:
    """A tile program and data for it.

    Attributes
    ----------
    func : PrimFunc
        The program.
    arguments : callable
        From a random generator to the arguments: arrays, and numbers. Outputs are poisoned.
    expected : callable
        From the arguments to ``{index of an argument: float64 array}``.
    tolerance : float
        Error allowed, as a fraction of the largest expected magnitude of each output.
    """

    func: PrimFunc
    arguments: Callable[[np.random.Generator], list[Any]]
    expected: Callable[[list[Any]], dict[int, np.ndarray]]
    tolerance: float


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype in ("int8", "uint8", "int32"):
        low, high = {"int8": (-128, 128), "uint8": (0, 256), "int32": (-1000, 1000)}[dtype]
        return rng.integers(low, high, shape).astype(dtype)
    return rng.standard_normal(shape, np.float32).astype(numpy_dtype(dtype))


def poisoned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype in ("int8", "uint8", "int32"):
        return np.full(shape, 77, dtype)
    return np.full(shape, np.nan, np.float32).astype(numpy_dtype(dtype))


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def precision(dtype: str) -> float:
    """Relative error of one rounding to a dtype."""
    if dtype in ("int8", "uint8", "int32"):
        return 0.0
    return float(ml_dtypes.finfo(numpy_dtype(dtype)).eps)
