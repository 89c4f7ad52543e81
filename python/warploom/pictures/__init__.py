"""Pictures: shapes on a plane, charts of them, and files.

A :class:`~warploom.pictures.picture.Picture` is a list of shapes. An SVG is written as it is, by
nothing but Python; a PNG is drawn by matplotlib, which is no dependency of the package. Notebooks
show the SVG. Every picture of the package is made here, so that all have the same colours and
letters.
"""

from __future__ import annotations

from warploom.pictures.files import MISSING, pyplot, suffix_of, write
from warploom.pictures.picture import Picture, svg
from warploom.pictures.shapes import Dot, Line, Rect, Words

__all__ = [
    "MISSING",
    "Dot",
    "Line",
    "Picture",
    "Rect",
    "Words",
    "pyplot",
    "suffix_of",
    "svg",
    "write",
]
