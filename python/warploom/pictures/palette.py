"""Colours of pictures, told apart by everyone (Okabe and Ito)."""

from __future__ import annotations

BLUE, ORANGE, GREEN, RED = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PINK, SKY, YELLOW = "#cc79a7", "#56b4e9", "#f0e442"
INK, GREY, RULE, FAINT, WHITE = "#222222", "#767676", "#cccccc", "#ededed", "#ffffff"

#: Colours of series in the order in which they are used.
SERIES = (BLUE, RED, GREEN, PINK, ORANGE, SKY, GREY)


def tint(colour: str, part: float) -> str:
    """A colour mixed with white: ``part`` of it stays.

    Examples
    --------
    >>> tint("#000000", 0.5)
    '#808080'
    """
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - (255 - one) * part):02x}" for one in channels)


def ink_on(colour: str) -> str:
    """The colour of letters that are readable on another colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else WHITE
