"""Charts: axes with ticks that people read, and what is drawn between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from warploom.pictures.palette import GREY, INK, RULE
from warploom.pictures.picture import Picture
from warploom.pictures.shapes import SMALL, Line, Words

#: Ticks of an axis, about.
_TICKS = 6


@dataclass(frozen=True)
class Axis:
    """Values along one side of a chart.

    Attributes
    ----------
    label : str
        What the values are, with their unit.
    low, high : float
        The ends; above 0 if ``log``.
    log : bool
        Whether equal lengths are equal ratios.
    unit : str
        Written behind each tick, such as ``"%"``.
    """

    label: str
    low: float
    high: float
    log: bool = False
    unit: str = ""

    def __post_init__(self) -> None:
        assert self.low < self.high and (self.low > 0 or not self.log), (self.low, self.high)

    @classmethod
    def around(
        cls, label: str, values: Sequence[float], log: bool = False, zero: bool = False,
        unit: str = "",
    ) -> Axis:  # fmt: skip
        """The axis that has room for values; it begins at 0 with ``zero``.

        Examples
        --------
        >>> Axis.around("us", [3.0, 40.0], log=True).ticks()
        [5.0, 10.0, 20.0]
        """
        low, high = min(values, default=1.0), max(values, default=1.0)
        if log:
            room = max((high / low) ** 0.06, 1.05)
            return cls(label, low / room, high * room, True, unit)
        room = (high - low) * 0.06 or abs(high) * 0.06 or 1.0
        return cls(label, 0.0 if zero else low - room, high + room, False, unit)

    def part(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values within the ends."""
        if self.log:
            return self._log_ticks()
        step = _round_step((self.high - self.low) / _TICKS)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]

    def _log_ticks(self) -> list[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for mantissas in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
            found = [
                mantissa * 10.0**decade for decade in decades for mantissa in mantissas
                if self.low <= mantissa * 10.0**decade <= self.high
            ]  # fmt: skip
            if len(found) >= 3:
                return found
        if len(found) >= 2:
            return found
        return Axis(self.label, self.low, self.high).ticks()

    def text(self, value: float) -> str:
        """A tick as it is written: ``1.5``, ``20k``, ``40%``."""
        for least, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
            if abs(value) >= least:
                unit = 1e3 if letter == "k" else least
                return f"{value / unit:g}{letter}{self.unit}"
        return f"{value:.4g}{self.unit}"


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... (times a power of ten) that is not below ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * one for one in (1, 2, 5, 10) if power * one >= least * (1 - 1e-9))


@dataclass(frozen=True)
class Frame:
    """The place of a chart in a picture, and its axes."""

    left: float
    top: float
    width: float
    height: float
    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The pixel of a point."""
        return (
            self.left + self.width * self.x.part(x),
            self.top + self.height * (1 - self.y.part(y)),
        )

    def draw(self, picture: Picture, title: str = "") -> None:
        """Add a grid, ticks, labels and a title: before the data."""
        bottom, right = self.top + self.height, self.left + self.width
        for value in self.x.ticks():
            x = self.left + self.width * self.x.part(value)
            picture.add(
                Line(((x, self.top), (x, bottom)), RULE, 0.6),
                Words(x, bottom + 13, self.x.text(value), GREY, "middle"),
            )
        for value in self.y.ticks():
            y = self.top + self.height * (1 - self.y.part(value))
            picture.add(
                Line(((self.left, y), (right, y)), RULE, 0.6),
                Words(self.left - 7, y, self.y.text(value), GREY, "end"),
            )
        picture.add(
            Line(((self.left, self.top), (self.left, bottom), (right, bottom)), GREY),
            Words(self.left + self.width / 2, bottom + 34, self.x.label, INK, "middle"),
            Words(self.left - 50, self.top + self.height / 2, self.y.label, INK, "middle",
                  upright=True),
        )  # fmt: skip
        if title:
            picture.add(Words(self.left, self.top - 16, title, size=SMALL + 1, bold=True))

    def steps(self, values: Sequence[float], colour: str, width: float = 2.0) -> list[Line]:
        """Values of 1, 2, 3, ..., each of which holds until the next."""
        points: list[tuple[float, float]] = []
        for number, value in enumerate(values):
            if math.isfinite(value):
                here = self.at(number + 1, value)
                if points:
                    points.append((here[0], points[-1][1]))
                points.append(here)
        return [Line(tuple(points), colour, width)] if len(points) > 1 else []
