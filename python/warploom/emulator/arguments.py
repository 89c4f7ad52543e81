"""The arguments of the emulator: every value is checked before it becomes bytes.

A wrong value is one :class:`EmulatorError` that names the argument, the value and what is allowed.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.emulator.binding import EmulatorError

#: Kinds of numpy's dtypes whose elements are plain bytes: numbers, and those of ``ml_dtypes``.
_KINDS = "?biufcV"
#: Sizes in bytes of the types of floats that numpy has.
_FLOATS = {2: np.float16, 4: np.float32, 8: np.float64}
_POINTER_BYTES = 8
#: Launch dimensions and sizes are numbers of 32 bits.
_MOST = (1 << 32) - 1


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its place, its size in bytes and its PTX type, such as ``"f32"``."""

    kernel: str
    index: int
    bytes: int
    type: str

    @property
    def text(self) -> str:
        """How a message names it."""
        return f"Parameter {self.index} of {self.kernel} (.{self.type}, {self.bytes} bytes)"


def check_sequence(args: Any) -> tuple[Any, ...]:
    """The arguments, if they are a list or tuple of them.

    Raises
    ------
    EmulatorError
        If they are not: an array alone, for instance, would be taken for its rows.
    """
    if not isinstance(args, (list, tuple)):
        raise EmulatorError(
            f"The arguments are {_a(args)}; give a list of arrays and numbers, such as [a, b, 3]."
        )
    return tuple(args)


def check_array(name: str, array: np.ndarray) -> None:
    """Refuse arrays whose bytes are no numbers of this machine.

    Raises
    ------
    EmulatorError
        For arrays of Python objects, of text and dates, and those of the other byte order.
    """
    dtype = array.dtype
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise EmulatorError(
            f"{name} is an array of dtype {dtype}, which the device has no numbers for; give an "
            "array of numbers, such as array.astype('float32')."
        )
    if not dtype.isnative:
        raise EmulatorError(
            f"{name} is an array of dtype {dtype!r}, of the other byte order; give "
            "array.astype(array.dtype.newbyteorder('='))."
        )


def check_argument(name: str, value: Any) -> None:
    """Refuse arguments that are no arrays and no numbers; sizes are the callee's business.

    Raises
    ------
    EmulatorError
        For None, text, lists and other objects.
    """
    if isinstance(value, np.ndarray):
        check_array(name, value)
    elif not isinstance(value, (numbers.Real, np.bool_, np.generic)) or _is_object(value):
        raise EmulatorError(f"{name} is {_a(value)}; give a numpy array or a number.")


def check_pointer(parameter: Parameter, array: np.ndarray) -> None:
    """Refuse arrays for parameters that hold no pointer."""
    check_array(parameter.text, array)
    if parameter.bytes != _POINTER_BYTES:
        raise EmulatorError(
            f"{parameter.text} is no pointer, and an array of shape {array.shape} was given; give "
            f"a number, or bytes."
        )


def scalar_bytes(parameter: Parameter, value: Any) -> bytes:
    """A number as the parameter holds it, or bytes as they are.

    Python's numbers become the parameter's type; numpy's numbers have a type of their own, which
    has to have the parameter's size.

    Raises
    ------
    EmulatorError
        If it is neither, does not fit, or is a float for a parameter of integers.
    """
    if isinstance(value, np.generic) and not _is_object(value):
        _check_kind(parameter, value)
        data = value.tobytes()
    elif isinstance(value, (bytes, bytearray)):
        data = bytes(value)
    elif isinstance(value, numbers.Integral) and not parameter.type.startswith(("f", "bf")):
        return _integer_bytes(parameter, int(value))
    elif isinstance(value, numbers.Real):
        return _float_bytes(parameter, float(value))
    else:
        raise EmulatorError(
            f"{parameter.text} is given {_a(value)}; give a number, a numpy array or bytes."
        )
    if len(data) != parameter.bytes:
        raise EmulatorError(
            f"{parameter.text} is given {value!r} of {len(data)} bytes; give a number of that "
            "size, an array, or bytes."
        )
    return data


def _check_kind(parameter: Parameter, value: np.generic) -> None:
    """Bits of floats are no integers, nor the other way round; ``.b32`` takes both."""
    is_float = value.dtype.kind in "fcV"
    if (
        is_float
        if parameter.type.startswith(("u", "s"))
        else (parameter.type.startswith(("f", "bf")) and not is_float)
    ):
        raise EmulatorError(
            f"{parameter.text} is given {value!r} of dtype {value.dtype}; give a number of that "
            "type, or one of Python's."
        )


def _integer_bytes(parameter: Parameter, value: int) -> bytes:
    bits = 8 * parameter.bytes
    least, most = -(1 << (bits - 1)), (1 << bits) - 1
    if not least <= value <= most:
        raise EmulatorError(f"{parameter.text} is given {value}; allowed are {least} to {most}.")
    return (value % (1 << bits)).to_bytes(parameter.bytes, "little")


def _float_bytes(parameter: Parameter, value: float) -> bytes:
    if parameter.type.startswith(("u", "s")) or parameter.bytes not in _FLOATS:
        raise EmulatorError(
            f"{parameter.text} is given the float {value!r}; give an int, or bytes."
        )
    with np.errstate(over="ignore"):
        number = _FLOATS[parameter.bytes](value)
    if math.isfinite(value) and not np.isfinite(number):
        most = np.finfo(number.dtype).max
        raise EmulatorError(f"{parameter.text} is given {value!r}; at most {most} is allowed.")
    return number.tobytes()


def dimensions(name: str, value: int | Sequence[int] | None, default: int) -> tuple[int, int, int]:
    """A launch dimension of one to three positive numbers, as three.

    Raises
    ------
    EmulatorError
        If it is none, or has a number that is no integer from 1 to 2**32 - 1.
    """
    values = (default,) if value is None else value
    if not isinstance(values, (list, tuple)):
        values = (values,)
    if not 1 <= len(values) <= 3 or not all(_is_integer(each, 1) for each in values):
        raise EmulatorError(
            f"{name}={value!r} is no launch dimension; give one to three ints from 1 to {_MOST}."
        )
    return tuple(int(each) for each in (*values, 1, 1)[:3])


def size(name: str, value: int | None) -> int:
    """A number of bytes; None is 0.

    Raises
    ------
    EmulatorError
        If it is no integer from 0 to 2**32 - 1.
    """
    if value is None:
        return 0
    if not _is_integer(value, 0):
        raise EmulatorError(f"{name}={value!r} is no size; give an int from 0 to {_MOST}.")
    return int(value)


def _is_integer(value: Any, least: int) -> bool:
    """A bool is none: it is a mistake wherever a size is meant."""
    is_bool = isinstance(value, (bool, np.bool_))
    return isinstance(value, numbers.Integral) and not is_bool and least <= value <= _MOST


def _is_object(value: Any) -> bool:
    return isinstance(value, np.generic) and np.dtype(type(value)).hasobject


def _a(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    text = " ".join(repr(value).split())
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return "None" if value is None else f"{shown} of type {type(value).__name__}"
