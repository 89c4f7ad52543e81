"""Values from other lanes of the warp.

Sources: PTX ISA, "shfl.sync"; CUDA Programming Guide, "Warp Shuffle Functions".
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import const

from warploom.errors import IllegalCombination
from warploom.language.builtins.operands import constant, describe, dtype_of, known, word

ALL_LANES = 0xFFFFFFFF
_WARP = 32
#: What CUDA's shuffles take; 64-bit values are two instructions.
_DTYPES = (
    "int32", "uint32", "float32", "int64", "uint64", "float64", "float16", "bfloat16",
)  # fmt: skip


def shfl_xor(value: Any, offset: Any) -> Any:
    """The value of the lane whose index differs in the bits of ``offset``.

    Parameters
    ----------
    value : Expr
        Of 16 bits (a float), 32 or 64.
    offset : int or Expr
        0 to 31.

    Returns
    -------
    Expr
        ``shfl.sync.bfly``, of the dtype of ``value``.

    Raises
    ------
    IllegalCombination
        If the dtype cannot be shuffled, or a constant offset is out of range.
    """
    return _shuffle("xor_", value, offset)


def shfl_down(value: Any, offset: Any) -> Any:
    """The value of the lane ``offset`` further; of this lane where there is none.

    Parameters, result and errors are those of :func:`shfl_xor`; the instruction is
    ``shfl.sync.down``.
    """
    return _shuffle("down_", value, offset)


def shfl_up(value: Any, offset: Any) -> Any:
    """The value of the lane ``offset`` before; of this lane where there is none.

    Parameters, result and errors are those of :func:`shfl_xor`; the instruction is
    ``shfl.sync.up``.
    """
    return _shuffle("up_", value, offset)


def shfl_sync(mask: Any, value: Any, srcLane: Any, width: int | None = None) -> Any:
    """The value of one lane.

    Parameters
    ----------
    mask : int or Expr
        Lanes that execute this together, a bit each.
    value : Expr
        Of 16 bits (a float), 32 or 64.
    srcLane : int or Expr
        The lane, modulo ``width``, in the part of the warp that this lane is in.
    width : int, optional
        Lanes of a part: a power of two up to 32, which is the default.

    Returns
    -------
    Expr
        ``shfl.sync.idx``, of the dtype of ``value``.

    Raises
    ------
    IllegalCombination
        If the dtype cannot be shuffled, no lane executes this, or the width is another.
    """
    if known(mask) == 0:
        raise IllegalCombination("mask is 0; at least one lane must execute shfl_sync.")
    lanes = _WARP if width is None else constant("width", width, range(1, _WARP + 1))
    if lanes & (lanes - 1):
        raise IllegalCombination(f"width is {lanes}; it must be a power of two up to {_WARP}.")
    lane = word("srcLane", srcLane, "int32")
    return _function("")(word("mask", mask), _value(value), lane, const(lanes, "int32"))


def from_lane(value: Any, lane: int) -> Any:
    """The value of one lane, for all of the warp."""
    return shfl_sync(ALL_LANES, value, lane)


def _shuffle(kind: str, value: Any, offset: Any) -> Any:
    number = known(offset)
    if number is not None and number not in range(_WARP):
        raise IllegalCombination(f"offset is {number}; it must be from 0 to {_WARP - 1}.")
    distance = word("offset", offset, "int32")
    return _function(kind)(T.uint32(ALL_LANES), _value(value), distance, const(_WARP, "int32"))


def _function(kind: str) -> Any:
    return getattr(T.cuda, f"__shfl_{kind}sync")


def _value(value: Any) -> Any:
    value = getattr(value, "scalar", value)
    if dtype_of(value) not in _DTYPES:
        raise IllegalCombination(
            f"the shuffled value is {describe(value)}; its dtype must be one of "
            f"{', '.join(_DTYPES)}."
        )
    return value
