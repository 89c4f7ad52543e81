"""Widths of TVM dtype names, without importing TVM."""

from __future__ import annotations

import re
from functools import cache

from warploom.errors import IllegalCombination

_NAME = re.compile(r"(?:b?float|u?int)(\d+)(?:_[a-z0-9]+)?")


@cache
def bits_of(dtype: str) -> int:
    """Bits of one element of a scalar dtype such as ``float8_e4m3fn``.

    Raises
    ------
    IllegalCombination
        If ``dtype`` is no name of a number type with a width (vector types are not).
    """
    match = _NAME.fullmatch(dtype)
    if match is None:
        raise IllegalCombination(
            f"{dtype!r} is no scalar dtype; allowed are names like float16, float8_e4m3fn, int8."
        )
    return int(match[1])


def is_float8(dtype: str) -> bool:
    """Whether ``dtype`` is an 8-bit float; GEMM operands of such a dtype carry a scale."""
    return dtype.startswith("float8")
