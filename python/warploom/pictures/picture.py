"""Pictures: shapes in an order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from warploom.pictures.shapes import Line, Rect, Shape, Words
from warploom.pictures.svg import document


@dataclass
class Picture:
    """Shapes, the later ones in front.

    Attributes
    ----------
    width, height : float
        Pixels.
    title : str
        What the picture shows, for those who cannot see it.
    shapes : list
    """

    width: float
    height: float = 0.0
    title: str = ""
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Add shapes, in front of all others."""
        self.shapes += shapes

    def extend(self, shapes: Iterable[Shape]) -> None:
        """Add shapes, in front of all others."""
        self.shapes += shapes

    def of(self, kind: type) -> Iterator[Shape]:
        """The shapes of a class, in order."""
        return (one for one in self.shapes if isinstance(one, kind))

    @property
    def rects(self) -> list[Rect]:
        """All rectangles."""
        return [one for one in self.shapes if isinstance(one, Rect)]

    @property
    def words(self) -> list[Words]:
        """All texts."""
        return [one for one in self.shapes if isinstance(one, Words)]

    @property
    def lines(self) -> list[Line]:
        """All lines."""
        return [one for one in self.shapes if isinstance(one, Line)]

    def _repr_svg_(self) -> str:
        return svg(self)


def svg(picture: Picture) -> str:
    """The text of an SVG file."""
    return document(picture.width, picture.height, picture.title, picture.shapes)
