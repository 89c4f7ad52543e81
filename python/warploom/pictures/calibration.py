"""Predicted against measured times: how far a model of costs is from the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence

from warploom.pictures.chart import Axis, Frame
from warploom.pictures.palette import GREY, RULE
from warploom.pictures.picture import Picture
from warploom.pictures.shapes import Dot, Line, Words

#: The factors by which lines beside the diagonal are off.
_FACTORS = (1.25, 2.0)


def calibration(
    made: Picture, place: tuple[float, float, float, float],
    points: Sequence[tuple[float, float, str]], title: str,
) -> None:  # fmt: skip
    """Add a chart of predicted against measured times, both logarithmic, to a picture.

    On the diagonal a prediction is right; dashed lines say where it is wrong by a factor.

    Parameters
    ----------
    made : Picture
    place : (float, float, float, float)
        Left, top, width and height of the chart.
    points : sequence of (float, float, str)
        Measured and predicted microseconds, and a colour.
    title : str
    """
    times = [time for one in points for time in one[:2]] or [1.0, 10.0]
    axis = Axis.around("measured us", times, log=True)
    low, high = axis.low, axis.high
    frame = Frame(*place, axis, Axis("predicted us", low, high, True))
    frame.draw(made, title)
    for factor in _FACTORS:
        for sign in (1, -1):
            ends = _within(low, high, factor**sign)
            if ends is None:
                continue
            made.add(Line(tuple(frame.at(x, x * factor**sign) for x in ends), GREY, 0.8, True))
    made.add(Line((frame.at(low, low), frame.at(high, high)), GREY, 1.2))
    for us, predicted, colour in points:
        x, y = frame.at(us, predicted)
        tip = f"measured {us:.4g} us, predicted {predicted:.4g} us ({predicted / us:.2f} x)"
        made.add(Dot(x, y, 2.6 if len(points) < 500 else 1.6, colour, tip))
    if points:
        mean = math.exp(sum(abs(math.log(one[1] / one[0])) for one in points) / len(points))
        right, bottom = place[0] + place[2] - 8, place[1] + place[3] - 14
        lines = " and ".join(f"{factor:g} x" for factor in _FACTORS)
        made.add(Words(right, bottom - 18, f"off by {mean:.2f} x, in the mean", GREY, "end"))
        made.add(Words(right, bottom, f"dashed: off by {lines}", GREY, "end"))
    else:
        made.add(Words(place[0] + place[2] / 2, place[1] + place[3] / 2,
                       "nothing was predicted and measured", RULE, "middle"))  # fmt: skip


def _within(low: float, high: float, factor: float) -> tuple[float, float] | None:
    """The ends of the line ``y = factor x`` in a square from ``low`` to ``high``."""
    first, last = max(low, low / factor), min(high, high / factor)
    return (first, last) if first < last else None
