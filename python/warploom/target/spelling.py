"""How swizzles and the options of tensor maps are written: one spelling for all functions.

A function that takes one of these options takes it in each of these forms, and refuses all others:

| option | names | bytes |
|---|---|---|
| swizzle | ``"none"``, ``"32B"``, ``"64B"``, ``"128B"`` | 0, 32, 64, 128 |
| l2_promotion | ``"none"``, ``"64B"``, ``"128B"``, ``"256B"`` | 0, 64, 128, 256 |
| interleave | ``"none"``, ``"16B"``, ``"32B"`` | 0, 16, 32 |
| oob_fill | ``"zeros"``, ``"nan"`` | |

The members of :class:`Swizzle`, :class:`L2Promotion`, :class:`Interleave` and :class:`OobFill` are
taken, too. ``None`` is ``"none"``, or ``"zeros"``. A function that writes for one interface, such
as ``initialize_wgmma_descriptor``, also takes the interface's own code of a swizzle, 1 to 6, which
is never a number of bytes.

Sources: CUDA Driver API, ``cuTensorMapEncodeTiled``; :mod:`warploom.target.swizzle_codes`.
"""

from __future__ import annotations

import enum
import operator
from typing import Any, Literal, TypeVar

from warploom.errors import IllegalCombination
from warploom.target.swizzle import Swizzle
from warploom.target.swizzle_codes import SWIZZLE_CODES, SwizzleCodes


class L2Promotion(enum.Enum):
    """How many bytes of L2 a copy fills at once; the value is ``CUtensorMapL2promotion``'s."""

    NONE = 0
    B64 = 1
    B128 = 2
    B256 = 3


class OobFill(enum.Enum):
    """The fill value of reads outside of the tensor; values of ``CUtensorMapFloatOOBfill``.

    ``NAN`` is for floating-point types, and for the bytes of a copy that should never be used.
    """

    ZERO = 0
    NAN = 1


class Interleave(enum.Enum):
    """Whether channels come in slices (NC/8HWC8, NC/16HWC16); ``CUtensorMapInterleave``'s value.

    A tensor of channels in slices has no dimension for what is within a slice: an element of the
    map is a pixel of one slice, 16 or 32 bytes.
    """

    NONE = 0
    B16 = 1
    B32 = 2

    @property
    def slice_bytes(self) -> int:
        """Bytes of a slice; 0 without slices."""
        return 16 * self.value


#: Where a swizzle's own code comes from: a column of ``SWIZZLE_CODES``.
Column = Literal["tensor_map", "wgmma", "tcgen05"]
_Member = TypeVar("_Member", bound=enum.Enum | SwizzleCodes)

#: Names of the options of tensor maps.
L2_PROMOTIONS = {
    "none": L2Promotion.NONE, "64B": L2Promotion.B64, "128B": L2Promotion.B128,
    "256B": L2Promotion.B256,
}  # fmt: skip
OOB_FILLS = {"zeros": OobFill.ZERO, "nan": OobFill.NAN}
INTERLEAVES = {"none": Interleave.NONE, "16B": Interleave.B16, "32B": Interleave.B32}
#: Names of the swizzles that every interface has.
SWIZZLES = {swizzle.codes.name: swizzle for swizzle in Swizzle}


def read_swizzle(name: str, value: Any) -> Swizzle:
    """The swizzle that an option called ``name`` asks for.

    Raises
    ------
    IllegalCombination
        If it is no name, number of bytes or member.

    Examples
    --------
    >>> read_swizzle("swizzle", "128B") is read_swizzle("swizzle", 128) is Swizzle.B128
    True
    """
    return _read(name, value, SWIZZLES)


def read_l2_promotion(name: str, value: Any) -> L2Promotion:
    """The L2 promotion that an option called ``name`` asks for; raises as :func:`read_swizzle`."""
    return _read(name, value, L2_PROMOTIONS)


def read_oob_fill(name: str, value: Any) -> OobFill:
    """The fill that an option called ``name`` asks for; raises as :func:`read_swizzle`."""
    return _read(name, "zeros" if value is None else value, OOB_FILLS)


def read_interleave(name: str, value: Any) -> Interleave:
    """The interleave that an option called ``name`` asks for; raises as :func:`read_swizzle`."""
    return _read(name, value, INTERLEAVES)


def read_swizzle_codes(name: str, value: Any, column: Column) -> SwizzleCodes:
    """As :func:`read_swizzle`, for a function that writes for one interface.

    Parameters
    ----------
    column : str
        The interface: its own codes are taken too, and its modes that others lack.

    Raises
    ------
    IllegalCombination
        If it is none of those.

    Examples
    --------
    >>> [read_swizzle_codes("swizzle", one, "wgmma").name for one in (128, "128B", 1)]
    ['128B', '128B', '128B']
    """
    modes = {mode.name: mode for mode in SWIZZLE_CODES if getattr(mode, column) is not None}
    if column == "tensor_map":  # those of this package lack the modes that wgmma lacks
        modes = {mode.name: mode for mode in modes.values() if mode.wgmma is not None}
    if isinstance(value, Swizzle):
        return value.codes
    own = {getattr(mode, column): mode for mode in modes.values()}
    number = _number(value)
    if number in own:
        return own[number]
    codes = ", ".join(f"{code} ({own[code].name})" for code in sorted(own) if code)
    return _read(name, value, modes, f"; or its own code in a {_PLACES[column]}: {codes}")


_PLACES = {
    "tensor_map": "tensor map", "wgmma": "wgmma descriptor", "tcgen05": "tcgen05 descriptor",
}  # fmt: skip


def _read(name: str, value: Any, members: dict[str, _Member], more: str = "") -> _Member:
    by_bytes = {int(key[:-1]): member for key, member in members.items() if key[:-1].isdigit()}
    if by_bytes:
        by_bytes[0] = members["none"]
    mode = members.get("none") if value is None else None
    if isinstance(value, str):
        mode = members.get(value)
    elif isinstance(value, enum.Enum):
        mode = value if value in members.values() else None
    elif mode is None:
        mode = by_bytes.get(_number(value))
    if mode is None:
        names = ", ".join(map(repr, members))
        sizes = f", or bytes: {', '.join(map(str, sorted(by_bytes)))}" if by_bytes else ""
        raise IllegalCombination(f"{name} is {value!r}; it must be one of {names}{sizes}{more}.")
    return mode


def _number(value: Any) -> int | None:
    """A constant integer, also one of TVM; bools are none."""
    try:
        return None if isinstance(value, bool) else operator.index(getattr(value, "value", value))
    except TypeError:
        return None
