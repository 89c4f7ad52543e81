"""Operands as bit patterns: the same on every machine, whatever its version of numpy.

Only PCG64's raw output is used: numpy promises that stream, and not those of its distributions.
"""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np


class Bits:
    """A stream of random bits that belongs to a name."""

    def __init__(self, name: str) -> None:
        self._generator = np.random.PCG64(zlib.crc32(name.encode()))

    def words(self, count: int) -> np.ndarray:
        return np.asarray(self._generator.random_raw(count), np.uint64).reshape(count)

    def below(self, limit: int, count: int) -> np.ndarray:
        """``count`` numbers from 0 to ``limit - 1``."""
        return ((self.words(count) >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32)

    def choice(self, values: np.ndarray, count: int) -> np.ndarray:
        return np.asarray(values)[self.below(len(values), count).astype(np.int64)]


@dataclasses.dataclass(frozen=True)
class FloatLayout:
    exponent_bits: int
    mantissa_bits: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1


FLOATS = {
    "f64": FloatLayout(11, 52),
    "f32": FloatLayout(8, 23),
    "tf32": FloatLayout(8, 23),  # the hardware ignores the low 13 bits
    "bf16": FloatLayout(8, 7),
    "f16": FloatLayout(5, 10),
    "e5m2": FloatLayout(5, 2),
    "e4m3": FloatLayout(4, 3),
}


def width(kind: str) -> int:
    """Bits of a scalar type of PTX, or of a packed pair ``...x2``."""
    if kind.endswith("x2"):
        return 2 * width(kind[:-2])
    return FLOATS[kind].bits if kind in FLOATS else int(kind[1:])


def unsigned(bits: int) -> np.dtype:
    return np.dtype(f"uint{max(bits, 8)}")


def _float_edges(layout: FloatLayout) -> list[int]:
    m, bias = layout.mantissa_bits, layout.bias
    one, infinity = bias << m, ((1 << layout.exponent_bits) - 1) << m
    mantissa = (1 << m) - 1
    positive = [
        0,
        1,
        2,
        mantissa,  # the largest subnormal number
        mantissa + 1,
        mantissa + 2,
        one - 1,
        one,
        one + 1,
        one - (1 << m),  # 0.5
        one + (1 << (m - 1)),  # 1.5
        one + (1 << m),
        one + (2 << m),
        infinity - 1,
        infinity,
        infinity | 1 << (m - 1),
        infinity | mantissa,
        infinity | 1,  # a signalling NaN
    ]
    # Ties and limits of narrower formats and of integers.
    for exponent in (-149, -133, -126, -24, -25, -14, -10, -9, -16, -17, -7, 8, 15, 16, 31, 32, 63):
        if 0 < bias + exponent < (1 << layout.exponent_bits) - 1:
            power = (bias + exponent) << m
            positive += [power, power - 1, power + 1, power | 1 << (m - 1)]
            positive += [power | mantissa & ~(mantissa >> 3), power | mantissa & ~(mantissa >> 8)]
    sign = 1 << (layout.bits - 1)
    return positive + [value | sign for value in positive]


def _integer_edges(bits: int) -> list[int]:
    full = (1 << bits) - 1
    top = 1 << (bits - 1)
    small = [0, 1, 2, 7, 31, 32, 33, 127, 128, 255]
    return [v & full for v in (*small, full, full - 1, top, top - 1, top + 1, 0x5555, -128, -129)]


def near_one(random: Bits, kind: str, count: int, spread: int = 6) -> np.ndarray:
    """Numbers of both signs with exponents within ``spread`` of that of 1."""
    layout = FLOATS[kind]
    exponent = random.below(2 * spread + 1, count) + np.uint64(layout.bias - spread)
    rest = random.words(count)
    mantissa = rest & np.uint64((1 << layout.mantissa_bits) - 1)
    sign = rest >> np.uint64(63)
    bits = (
        mantissa | exponent << np.uint64(layout.mantissa_bits) | sign << np.uint64(layout.bits - 1)
    )
    return bits.astype(unsigned(layout.bits))


def powers(random: Bits, kind: str, count: int) -> np.ndarray:
    """1 and 1.5 times powers of two over a wide range, of both signs: sums lose small terms."""
    layout = FLOATS[kind]
    values = near_one(random, kind, count, min(layout.bias - 1, 12))
    keep = ~np.uint64((1 << (layout.mantissa_bits - 1)) - 1)
    return (values.astype(np.uint64) & keep).astype(values.dtype)


def small_integers(random: Bits, kind: str, count: int, limit: int = 4) -> np.ndarray:
    """Integers from ``-limit`` to ``limit`` in a format of floating-point numbers or integers."""
    if kind not in FLOATS:
        bits = width(kind)
        if kind[0] == "u":
            return random.below(limit + 1, count).astype(unsigned(bits))
        values = random.below(2 * limit + 1, count).astype(np.int64) - limit
        return (values & ((1 << bits) - 1)).astype(unsigned(bits))
    layout = FLOATS[kind]
    table = []
    for value in range(-limit, limit + 1):
        sign, size = int(value < 0), abs(value)
        if size == 0:
            table.append(0)
            continue
        exponent = size.bit_length() - 1
        mantissa = (size << layout.mantissa_bits >> exponent) & ((1 << layout.mantissa_bits) - 1)
        bits = sign << (layout.bits - 1) | (layout.bias + exponent) << layout.mantissa_bits
        table.append(bits | mantissa)
    return random.choice(np.array(table, np.uint64), count).astype(unsigned(layout.bits))


def operands(random: Bits, kind: str, count: int) -> np.ndarray:
    """Bit patterns of a type: a third each of edges, of arbitrary bits and of common numbers."""
    if kind.endswith("x2"):
        halves = operands(random, kind[:-2], 2 * count)
        return halves.view(unsigned(width(kind)))
    bits = width(kind)
    arbitrary = random.words(count)
    if kind in FLOATS:
        edges = _float_edges(FLOATS[kind])
        common = near_one(random, kind, count, 6 if FLOATS[kind].exponent_bits > 4 else 3)
    else:
        edges = _integer_edges(bits)
        common = random.below(1 << 16, count) - np.uint64(1 << 15)
    mask = np.uint64((1 << bits) - 1)
    which = random.below(3, count)
    edge = random.choice(np.array(edges, np.uint64), count)
    values = np.where(which == 0, edge, np.where(which == 1, arbitrary, common.astype(np.uint64)))
    return (values & mask).astype(unsigned(bits))
