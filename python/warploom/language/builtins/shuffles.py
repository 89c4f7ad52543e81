"""Values from other lanes of the warp.

Sources: PTX ISA, "shfl.sync"; CUDA Programming Guide, "Warp Shuffle Functions".
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import const

from warploom.errors import IllegalCombination
from warploom.language.builtins.operands import constant, describe, dtype_of, known, word
from warploom.language.builtins.values import bits_of, number

ALL_LANES = 0xFFFFFFFF
_WARP = 32
#: Dtypes of CUDA's shuffles; 64-bit values are two instructions.
_NATIVE = (
    "int32", "uint32", "float32", "int64", "uint64", "float64", "float16", "bfloat16",
)  # fmt: skip
#: Bits of a vector that a shuffle moves at most: 32 at a time, as :func:`wide_memory.ldg256` loads.
_MAX_BITS = 256


def shfl_xor(value: Any, offset: Any) -> Any:
    """The value of the lane whose index differs in the bits of ``offset``.

    Parameters
    ----------
    value : Expr or number
        Any dtype of 8 to 256 bits: integers, bool, floats, float8, and vectors of them.
    offset : int or Expr
        0 to 31.

    Returns
    -------
    Expr
        ``shfl.sync.bfly``, of the dtype of ``value``.

    Raises
    ------
    IllegalCombination
        If the value is no value, or a constant offset is out of range.

    Examples
    --------
    .. code-block:: python

        B[t] = wl.shfl_xor(A[t], 1)
        # B == A[t ^ 1]
    """
    return _shuffle("xor_", value, offset)


def shfl_down(value: Any, offset: Any) -> Any:
    """The value of the lane ``offset`` further; of this lane where there is none.

    Parameters, result and errors are those of :func:`shfl_xor`; the instruction is
    ``shfl.sync.down``.

    Examples
    --------
    .. code-block:: python

        B[t] = wl.shfl_down(A[t], 1)
        # B == A[np.where(t % 32 < 31, t + 1, t)]
    """
    return _shuffle("down_", value, offset)


def shfl_up(value: Any, offset: Any) -> Any:
    """The value of the lane ``offset`` before; of this lane where there is none.

    Parameters, result and errors are those of :func:`shfl_xor`; the instruction is
    ``shfl.sync.up``.

    Examples
    --------
    .. code-block:: python

        B[t] = wl.shfl_up(A[t], 1)
        # B == A[np.where(t % 32 > 0, t - 1, t)]
    """
    return _shuffle("up_", value, offset)


def shfl_sync(mask: Any, value: Any, srcLane: Any, width: int | None = None) -> Any:
    """The value of one lane.

    Parameters
    ----------
    mask : int or Expr
        Lanes that execute this together, a bit each.
    value : Expr or number
        Any dtype of 8 to 256 bits: integers, bool, floats, float8, and vectors of them.
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
        If the value is no value, no lane executes this, or the width is another.

    Examples
    --------
    .. code-block:: python

        B[t] = wl.shfl_sync(0xFFFFFFFF, A[t], 0)
        # B == A[t - t % 32]
    """
    if known(mask) == 0:
        raise IllegalCombination("mask is 0; at least one lane must execute shfl_sync.")
    lanes = _WARP if width is None else constant("width", width, range(1, _WARP + 1))
    if lanes & (lanes - 1):
        raise IllegalCombination(f"width is {lanes}; it must be a power of two up to {_WARP}.")
    lane = word("srcLane", srcLane, "int32")
    return _moved("", word("mask", mask), value, lane, const(lanes, "int32"))


def from_lane(value: Any, lane: int) -> Any:
    """The value of one lane, for all of the warp."""
    return shfl_sync(ALL_LANES, value, lane)


def _shuffle(kind: str, value: Any, offset: Any) -> Any:
    number = known(offset)
    if number is not None and number not in range(_WARP):
        raise IllegalCombination(f"offset is {number}; it must be from 0 to {_WARP - 1}.")
    distance = word("offset", offset, "int32")
    return _moved(kind, T.uint32(ALL_LANES), value, distance, const(_WARP, "int32"))


def _moved(kind: str, mask: Any, value: Any, lane: Any, width: Any) -> Any:
    """CUDA's shuffle of a value of any dtype.

    Integers of less than 32 bits travel as int32. Dtypes without a shuffle in CUDA travel as words,
    through a device function that takes and returns its type, whichever that is.
    """
    value = number(getattr(value, "scalar", value))
    dtype = dtype_of(value)
    if not dtype or bits_of(dtype) % 8 or bits_of(dtype) > _MAX_BITS:
        raise IllegalCombination(
            f"the shuffled value is {describe(value)}; it must be an expression or a number of 8 "
            f"to {_MAX_BITS} bits."
        )
    if dtype in _NATIVE:
        return getattr(T.cuda, f"__shfl_{kind}sync")(mask, value, lane, width)
    if dtype in ("bool", "int8", "uint8", "int16", "uint16"):
        wide = getattr(T.cuda, f"__shfl_{kind}sync")(mask, T.Cast("int32", value), lane, width)
        return wide != 0 if dtype == "bool" else T.Cast(dtype, wide)
    name = f"warploom_shfl_{kind}sync"
    source = f"""
template <typename V>
__forceinline__ __device__ V {name}(unsigned int mask, V value, int lane, int width) {{
  unsigned int words[(sizeof(V) + 3) / 4] = {{}};
  memcpy(words, &value, sizeof(V));
#pragma unroll
  for (unsigned int& word : words) word = __shfl_{kind}sync(mask, word, lane, width);
  memcpy(&value, words, sizeof(V));
  return value;
}}
"""
    return T.cuda.func_call(name, mask, value, lane, width, source_code=source, return_type=dtype)
