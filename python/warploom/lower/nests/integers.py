"""Small integers that lie in words, as pairs of 16-bit floats: without a conversion each.

A number of few bits, put into the mantissa of 2**10 (float16; 2**7 for bfloat16), is added to it:
one ``lop3`` does that for two numbers at once, and one ``hfma2`` takes the power off again. All of
it is exact. A number may stay some bits above the lowest, for the ``hfma2`` can scale as well;
that saves the shift.

The idea is that of "Who Says Elephants Can't Run" (Kim et al., 2022) and of Marlin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import tvm
import tvm_ffi
from tvm.ir import TensorLoad
from tvm.ir.prim import expr as prim
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer

from warploom.intrin import half_pairs
from warploom.intrin.half_pairs import MANTISSA_BITS
from warploom.lower.nests.loads import Place

#: Bits of a word, of its halves, and of a byte.
_WORD, _HALF, _BYTE = 32, 16, 8
#: Selector of the lowest byte of the second word.
_SECOND = 4
#: The bits of 2**23 as a float32; integers below are added to it.
_FLOAT32_BITS, _FLOAT32 = 0x4B000000, 2.0**23


class Above(Enum):
    """The bits above a window in the integer that the window stands for."""

    ZEROS = "zeros"
    SIGN = "copies of the highest bit"
    ANY = "unknown"


@dataclass(frozen=True)
class Window:
    """An integer of ``width`` bits that begins at bit ``shift`` of a word."""

    word: Any
    shift: Any
    width: int
    above: Above = Above.ZEROS


@dataclass(frozen=True)
class Windows:
    """Finds the windows that integer expressions are.

    Attributes
    ----------
    place : callable
        Where a shared element is, if it was loaded as a part of a word.
    expression : callable
        An expression of the nest for one element.
    """

    place: Callable[[TensorLoad], Place | None]
    expression: Callable[[Any], Any]
    analyzer: Analyzer

    def of(self, value: Any) -> Window | None:
        """The window that an integer is; None if it is none."""
        if isinstance(value, prim.Cast) and is_integer(value.value):
            return self._cast(value)
        if isinstance(value, prim.BitwiseAnd):
            return self._masked(value)
        if isinstance(value, prim.RShift):
            return self._shifted(value)
        kind = tvm.DataType(str(value.ty.dtype))
        if kind.bits > _WORD:
            return None
        above = Above.SIGN if kind.type_code == tvm.DataTypeCode.INT else Above.ZEROS
        place = self.place(value) if isinstance(value, TensorLoad) else None
        if place is not None:
            return Window(place.word, place.bit, kind.bits, above)
        return Window(T.Cast("uint32", self.expression(value)), 0, kind.bits, above)

    def _cast(self, value: Any) -> Window | None:
        inner, kind = self.of(value.value), tvm.DataType(str(value.ty.dtype))
        if inner is None:
            return None
        signed = kind.type_code == tvm.DataTypeCode.INT
        if inner.width >= kind.bits:
            return replace(inner, width=kind.bits, above=Above.SIGN if signed else Above.ZEROS)
        keeps = inner.above is not Above.SIGN or signed
        return inner if keeps else replace(inner, above=Above.ANY)

    def _masked(self, value: Any) -> Window | None:
        for operand, mask in ((value.a, value.b), (value.b, value.a)):
            mask = _integer(mask)
            if mask is None or mask <= 0 or mask & mask + 1:
                continue
            inner, width = self.of(operand), mask.bit_length()
            if inner is None or (width > inner.width and inner.above is not Above.ZEROS):
                return None
            return replace(inner, width=min(width, inner.width), above=Above.ZEROS)
        return None

    def _shifted(self, value: Any) -> Window | None:
        inner, by = self.of(value.a), value.b
        while isinstance(by, prim.Cast):
            by = by.value
        by = self.simple(self.expression(by))
        if inner is None:
            return None
        if isinstance(by, int):
            return replace(inner, shift=inner.shift + by, width=max(inner.width - by, 1))
        # The rest of the window depends on the thread; this is its least size.
        bound = self.analyzer.const_int_bound(by)
        if int(bound.min_value) < 0 or int(bound.max_value) >= inner.width:
            return None
        width = inner.width - int(bound.max_value)
        return replace(inner, shift=inner.shift + by, width=width, above=Above.ANY)

    def simple(self, value: Any) -> Any:
        """An expression, or the int that it is."""
        result = value if isinstance(value, int) else self.analyzer.simplify(value)
        number = _integer(result)
        return result if number is None else number


@dataclass(frozen=True)
class Integers:
    """Two windows as halves of one word, ready to be a pair of floats.

    Attributes
    ----------
    word : Expr
        Its bits under ``mask`` are the integers, shifted left by ``left``.
    left : (int, int)
        For the low and the high half.
    """

    word: Any
    left: tuple[int, int]
    width: int

    @property
    def mask(self) -> int:
        """The bits of both."""
        ones = (1 << self.width) - 1
        return ones << self.left[0] | ones << self.left[1] + _HALF


def side_by_side(low: Window, high: Window, room: int, simple: Callable[[Any], Any]) -> Integers:
    """Two windows of one width in the halves of a word, each at most ``room`` bits too far left.

    The cheapest way that applies: a shift, a byte permutation, that and a product, or both shifted
    by themselves.
    """
    width = low.width
    same = tvm_ffi.structural_equal(low.word, high.word)
    distance = simple(high.shift - low.shift)
    if same and isinstance(distance, int) and abs(distance - _HALF) <= room:
        least = max(0, _HALF - distance)
        # Shifts by whole bytes serve several pairs of one word.
        whole = low.shift % _BYTE if isinstance(low.shift, int) else least
        left = whole if least <= whole <= min(room, room + _HALF - distance) else least
        by = simple(low.shift - left)
        if not isinstance(by, int) or by >= 0:
            return Integers(_right(low.word, by), (left, left + distance - _HALF), width)
    parts = [simple(window.shift % _BYTE) for window in (low, high)]
    if all(isinstance(part, int) and part + width <= _BYTE for part in parts):
        bytes_ = [
            simple((w.shift - part) // _BYTE) for w, part in zip((low, high), parts, strict=True)
        ]
        if max(parts) <= room:
            second = bytes_[1] if same else bytes_[1] + _SECOND
            chosen = permute(low.word, high.word, bytes_[0] + second * 256)
            return Integers(chosen, (parts[0], parts[1]), width)
        if same and parts[0] == 0 and distance == parts[1]:
            zeros = _SECOND << 4 | _SECOND << 8 | _SECOND << 12
            byte = permute(low.word, 0, bytes_[0] + zeros)
            return Integers(byte * T.uint32(1 | 1 << _HALF - parts[1]), (0, 0), width)
    ones = T.uint32((1 << width) - 1)
    halves = [_right(window.word, window.shift) & ones for window in (low, high)]
    return Integers(halves[0] | halves[1] << T.uint32(_HALF), (0, 0), width)


def permute(first: Any, second: Any, selector: Any) -> Any:
    """:func:`warploom.intrin.half_pairs.permute` with a selector that may be an int32."""
    if not isinstance(selector, int):
        selector = T.Cast("uint32", selector)
    return half_pairs.permute(first, second, selector)


def _right(word: Any, by: Any) -> Any:
    if isinstance(by, int):
        return word >> T.uint32(by) if by else word
    return word >> T.Cast("uint32", by)


def as_pair(low: Window, high: Window, constant: int, dtype: str, simple: Any) -> Any | None:
    """A word of both integers, plus ``constant``, as floats of ``dtype``; None if that rounds."""
    bits = MANTISSA_BITS[dtype]
    if low.width == _BYTE and low.above is high.above is Above.SIGN:
        # An integer with a sign is the one with the opposite highest bit, less 128.
        low, high = (_flipped(window) for window in (low, high))
        constant -= 1 << _BYTE - 1
    if low.width != high.width or any(w.above is not Above.ZEROS for w in (low, high)):
        return None
    if low.width > bits or abs(constant) > 1 << bits:
        return _through_float32(low, high, constant, dtype, simple)
    magic = half_pairs.both(dtype, 2.0**bits, 2.0**bits)
    bytes_ = [_whole_byte(window, simple) for window in (low, high)]
    apart = simple(high.shift - low.shift)
    if None not in bytes_ and apart != _HALF and tvm_ffi.structural_equal(low.word, high.word):
        # 2**bits has a byte of zeros in each half for them.
        selector = bytes_[0] + bytes_[1] * 256 + (_SECOND + 1 << 4 | _SECOND + 1 << 12)
        pair = Integers(low.word, (0, 0), low.width)
        number = permute(low.word, magic, selector)
    else:
        pair = side_by_side(low, high, bits - low.width, simple)
        number = half_pairs.insert(pair.word, pair.mask, magic)
    scales = [2.0**-left for left in pair.left]
    offsets = half_pairs.both(dtype, *(constant - 2.0**bits * scale for scale in scales))
    if pair.left == (0, 0):
        return half_pairs.arithmetic("add", dtype, number, offsets)
    factors = half_pairs.kept(half_pairs.both(dtype, *scales))
    return half_pairs.arithmetic("fma", dtype, number, factors, offsets)


def _flipped(window: Window) -> Window:
    return replace(window, word=window.word ^ _sign(window), above=Above.ZEROS)


def _sign(window: Window) -> Any:
    """The highest bit of a window; of bytes that of every byte, so that all have one word."""
    if isinstance(window.shift, int) and window.shift % _BYTE == 0 and window.width == _BYTE:
        return T.uint32(0x80808080)
    top = window.shift + window.width - 1
    return T.uint32(1) << (T.uint32(top) if isinstance(top, int) else T.Cast("uint32", top))


def _whole_byte(window: Window, simple: Callable[[Any], Any]) -> Any | None:
    """The number of the byte of its word that a window is."""
    if window.width != _BYTE or simple(window.shift % _BYTE) != 0:
        return None
    return simple(window.shift // _BYTE)


def _through_float32(
    low: Window, high: Window, constant: int, dtype: str, simple: Callable[[Any], Any]
) -> Any | None:
    """Integers that the mantissa has no room for, but that the dtype has a number for."""
    limit = 2 << MANTISSA_BITS[dtype]
    if not -limit <= constant <= constant + (1 << low.width) - 1 <= limit:
        return None
    magic, ones = T.uint32(_FLOAT32_BITS), (1 << low.width) - 1

    def number(window: Window) -> Any:
        byte = _whole_byte(window, simple)
        if byte is None:
            bits = half_pairs.insert(_right(window.word, window.shift), ones, magic)
        else:
            zeros = _SECOND << 4 | _SECOND << 8
            bits = permute(window.word, magic, byte + (zeros | _SECOND + 3 << 12))
        return T.reinterpret("float32", bits) - T.float32(_FLOAT32 - constant)

    return half_pairs.convert(dtype, number(low), number(high))


def _integer(value: Any) -> int | None:
    """The number of a constant."""
    while isinstance(value, prim.Cast):
        value = value.value
    return int(value) if isinstance(value, prim.IntImm) else None


def is_integer(value: Any) -> bool:
    """Whether an expression has an integer dtype."""
    return tvm.DataType(str(value.ty.dtype)).type_code in (
        tvm.DataTypeCode.INT, tvm.DataTypeCode.UINT
    )  # fmt: skip
