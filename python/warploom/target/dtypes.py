"""Dtypes: their names in TVM, however a caller writes them, and their widths; without TVM itself.

Every function and record that takes a dtype takes it as :func:`dtype_name` does.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

from warploom.errors import IllegalCombination

#: Dtypes of scalars; a vector has its lanes behind, as in ``float16x2``.
SCALARS = (
    "bool", "int1", "int2", "int4", "int8", "int16", "int32", "int64", "uint1", "uint2", "uint4",
    "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bfloat16",
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",
    "float4_e2m1fn",
    "uint128", "uint256",  # the pixels of a slice of channels in a tensor map
)  # fmt: skip
_LANES = re.compile(r"x[1-9]\d*$")
#: Parameters that are dtypes.
_PARAMETER = re.compile(r"(\w+_)?dtype")
_NAME = re.compile(r"(?:b?float|u?int)(\d+)(?:_[a-z0-9]+)?")


_Function = TypeVar("_Function", bound=Callable[..., Any])


def dtype_name(value: Any, name: str = "dtype") -> str:
    """TVM's name of a dtype.

    Parameters
    ----------
    value : str, tvm.DataType, numpy.dtype or type
        ``"float16"``, ``tvm.DataType("float16")``, ``np.float16``, ``np.dtype("float16")``,
        ``ml_dtypes.bfloat16``, or a dtype of PyTorch.
    name : str
        Its name in errors.

    Raises
    ------
    IllegalCombination
        If it is none, or TVM has no such dtype.

    Examples
    --------
    >>> import numpy as np
    >>> dtype_name(np.float16), dtype_name(np.dtype("int8")), dtype_name("float8_e4m3fn")
    ('float16', 'int8', 'float8_e4m3fn')
    """
    if type(value) is str and value in SCALARS:  # nearly always, and prices ask thousands of times
        return value
    written = _written(value)
    if written is not None and _LANES.sub("", written) in SCALARS:
        return written
    raise IllegalCombination(
        f"{name} is {value!r}: allowed are TVM's names of dtypes, such as 'float16', 'bfloat16', "
        "'float8_e4m3fn' or 'int8', and dtypes of TVM, numpy and ml_dtypes."
    )


def _written(value: Any) -> str | None:
    if isinstance(value, str):
        return f"{value}"  # a DataType of TVM is a str of its own
    if isinstance(value, type) and value.__module__ in ("numpy", "ml_dtypes"):
        try:
            value = value(0).dtype
        except (TypeError, ValueError):  # numpy.floating, for example, is a class of dtypes
            return None
    if type(value).__module__.startswith("numpy") and hasattr(value, "isnative"):
        return value.name if value.isnative else None
    shown = str(value)
    return shown.removeprefix("torch.") if shown.startswith("torch.") else None


def with_dtype_names(function: _Function) -> _Function:
    """A function whose arguments ``dtype`` and ``..._dtype`` may be any name of a dtype.

    None, and an empty string, stay as they are: they leave the choice to the function.
    """
    signature = inspect.signature(function)
    named = [name for name in signature.parameters if _PARAMETER.fullmatch(name)]

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if _PARAMETER.fullmatch(name) and _is_given(kwargs[name]):
                kwargs[name] = dtype_name(kwargs[name], name)
        if args and named:
            positions = list(signature.parameters)[: len(args)]
            args = tuple(
                dtype_name(value, name) if name in named and _is_given(value) else value
                for name, value in zip(positions, args, strict=False)
            ) + args[len(positions) :]
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def name_dtypes(record: Any, *fields: str) -> None:
    """In ``__post_init__`` of a frozen dataclass: its dtypes by TVM's names."""
    for field in fields:
        value = getattr(record, field)
        if _is_given(value):
            object.__setattr__(record, field, dtype_name(value, field))


def _is_given(value: Any) -> bool:
    return value is not None and not (isinstance(value, str) and not value)


@cache
def bits_of(dtype: str) -> int:
    """Bits of one element of a scalar dtype such as ``float8_e4m3fn``.

    Raises
    ------
    IllegalCombination
        If ``dtype`` is no name of a number type with a width (vector types are not).
    """
    match = _NAME.fullmatch(dtype if isinstance(dtype, str) else dtype_name(dtype))
    if match is None:
        raise IllegalCombination(
            f"{dtype!r} is no scalar dtype; allowed are names like float16, float8_e4m3fn, int8."
        )
    return int(match[1])


def is_float8(dtype: str) -> bool:
    """Whether ``dtype`` is an 8-bit float; GEMM operands of such a dtype carry a scale."""
    name = dtype if isinstance(dtype, str) else dtype_name(dtype)
    return name.startswith("float8")
