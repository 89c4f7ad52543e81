"""Rows of a GEMM that are pixels of images: the box of them that a tile is, and what it loads.

A convolution's tile has the pixels of a box: so many images, rows and columns. Boxes do not fill
every image, so that there are more tiles than rows divided by rows of a tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from warploom.target import TMA, WGMMA_M

#: Extents that a box is chosen for where only the launch knows one: few images, or many.
_UNKNOWN = (1, 32)


class PixelAxis(NamedTuple):
    """An axis of the pixels of a result: images, their rows, or their columns.

    Attributes
    ----------
    extent : int or None
        Pixels of the result; None if only the launch knows.
    step : int
        Elements of the image from one pixel to the next: the stride of the convolution.
    image : int or None
        Elements of the image.
    reach : int
        Elements of the image from the first to the last that the taps of a pixel see.
    """

    extent: int | None
    step: int = 1
    image: int | None = None
    reach: int = 0


Axes = tuple[PixelAxis, ...]


@lru_cache(maxsize=4096)
def box_of(axes: Axes, rows: int, parts: int = 1, peers: int = 1) -> tuple[int, ...] | None:
    """Extents of the box of ``rows`` pixels that covers the axes with the fewest tiles.

    Parameters
    ----------
    axes : tuple of PixelAxis
        Of a step: a box of TMA has at most 256 elements of an image along each.
    rows : int
    parts : int
        Warpgroups that share the rows.
    peers : int
        CTAs of a cluster that load a part of them each.

    Returns
    -------
    tuple of int or None
        None if no box has so many pixels.

    Examples
    --------
    >>> box_of((PixelAxis(32), PixelAxis(56), PixelAxis(56)), 128)
    (16, 1, 8)
    """
    return next((box for box in _boxes(axes, rows) if _divides(box, rows, parts, peers)), None)


@lru_cache(maxsize=4096)
def tiles_of_pixels(axes: Axes, box: tuple[int, ...], rows: int) -> int:
    """Tiles that cover the pixels, which are ``rows`` together.

    An extent that only the launch knows is what the rows leave of the others; of several such, the
    first one has it all.
    """
    known = math.prod(axis.extent for axis in axes if axis.extent is not None)
    left, tiles = -(-rows // known), 1
    for axis, size in zip(axes, box, strict=True):
        extent = axis.extent
        if extent is None:
            extent, left = left, 1
        tiles *= -(-extent // size)
    return tiles


@lru_cache(maxsize=4096)
def pixels_seen(axes: Axes, box: tuple[int, ...]) -> int:
    """Pixels of the image that the taps of a box see, each once."""
    return math.prod(
        (size - 1) * min(axis.step, axis.reach + 1) + axis.reach + 1
        for axis, size in zip(axes, box, strict=True)
    )


@lru_cache(maxsize=1024)
def pixels_of_images(axes: Axes, rows: int) -> float:
    """Pixels of the images that any of ``rows`` pixels of the result sees."""
    seen = float(rows)
    for axis in axes:
        if axis.extent is not None and axis.image is not None:
            seen *= min(axis.image / axis.extent, axis.reach + 1)
    return seen


@lru_cache(maxsize=1024)
def _boxes(axes: Axes, rows: int) -> tuple[tuple[int, ...], ...]:
    """All boxes of so many pixels that TMA loads, that with the fewest tiles first."""
    found = (
        box for box in _factorisations(rows, len(axes))
        if all(e * axis.step <= TMA.box_extent for e, axis in zip(box, axes, strict=True))
    )  # fmt: skip

    def cost(box: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        tiles = 0.0
        dynamic = any(axis.extent is None for axis in axes)
        for unknown in _UNKNOWN if dynamic else _UNKNOWN[:1]:
            known = [axis.extent or unknown for axis in axes]
            count = math.prod(-(-s // e) for s, e in zip(known, box, strict=True))
            tiles += count * rows / math.prod(known)
        # Of equal ones that with the longest rows, whose pixels are neighbours in memory.
        return tiles, tuple(-extent for extent in reversed(box))

    return tuple(sorted(found, key=cost))


def _factorisations(number: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in _factorisations(number // first, count - 1):
                yield (first, *rest)


def _divides(box: tuple[int, ...], rows: int, parts: int, peers: int) -> bool:
    """Whether warpgroups, pieces that they store, and CTAs of a cluster get boxes as well."""
    wide = [extent for extent in box if extent > 1]
    if (wide or [1])[0] % peers:
        return False
    share = rows // parts
    if parts > 1 and share % math.prod(wide[1:]):
        return False
    return bool(share % WGMMA_M) or are_boxes(box, WGMMA_M)


def are_boxes(box: tuple[int, ...], rows: int) -> bool:
    """Whether every ``rows`` pixels of a box, in row-major order, are a box.

    Examples
    --------
    >>> are_boxes((1, 4, 16), 32), are_boxes((2, 3, 8), 32)
    (True, False)
    """
    wide = [extent for extent in box if extent > 1]
    for number in range(len(wide)):
        inner = math.prod(wide[number + 1 :])
        if rows % inner == 0:
            return True
        if inner % rows:
            return False
    return True
