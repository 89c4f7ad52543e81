"""The shapes of a picture; all places are pixels from the top left corner."""

from __future__ import annotations

from dataclasses import dataclass

from warploom.pictures.palette import INK

#: Sizes of letters: of titles, of all else, and of what must be small.
LARGE, SMALL, TINY = 15, 12, 9.5


@dataclass(frozen=True)
class Rect:
    """A filled rectangle.

    Attributes
    ----------
    edge : str
        Colour of its outline; none if empty.
    hatch : bool
        Whether thin lines in the colour of the edge cross it.
    tip : str
        Text that a viewer of the SVG shows under the pointer.
    """

    x: float
    y: float
    width: float
    height: float
    colour: str
    edge: str = ""
    hatch: bool = False
    tip: str = ""


@dataclass(frozen=True)
class Line:
    """A line through points; ``arrow`` puts a head on its last one."""

    points: tuple[tuple[float, float], ...]
    colour: str = INK
    width: float = 1.0
    dashed: bool = False
    arrow: bool = False


@dataclass(frozen=True)
class Dot:
    """A filled circle."""

    x: float
    y: float
    radius: float
    colour: str
    tip: str = ""


@dataclass(frozen=True)
class Words:
    """A line of text, ``y`` its middle.

    Attributes
    ----------
    anchor : str
        Which end ``x`` is: ``"start"``, ``"end"``, or ``"middle"``.
    upright : bool
        Whether the line goes from below to above, around its place.
    mono : bool
        Whether all letters are equally wide.
    """

    x: float
    y: float
    text: str
    colour: str = INK
    anchor: str = "start"
    size: float = SMALL
    bold: bool = False
    upright: bool = False
    mono: bool = False


Shape = Rect | Line | Dot | Words


def text_width(text: str, size: float = SMALL, mono: bool = False) -> float:
    """Pixels that a text takes at most, about."""
    return len(text) * size * (0.61 if mono else 0.58)


def fitted(text: str, width: float, size: float = SMALL, mono: bool = False) -> str:
    """A text, cut where it is wider than ``width`` pixels; empty where only dots have room.

    Examples
    --------
    >>> fitted("a long name of a kernel", 70)
    'a long na…'
    """
    letters = int(width / text_width("x", size, mono))
    if len(text) <= letters:
        return text
    return text[: letters - 1] + "…" if letters >= 4 else ""
