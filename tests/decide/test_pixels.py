"""Boxes of pixels that tiles are, compared with what counting them one by one gives."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tvm import tirx

from warploom.decide.pixels import (
    PixelAxis,
    are_boxes,
    box_of,
    pixels_of_images,
    pixels_seen,
    tiles_of_pixels,
)
from warploom.lower.analysis.rows import part_of_rows, row_dimensions


def _axes(rng: np.random.Generator) -> tuple[PixelAxis, ...]:
    """Axes of a convolution without dilation, with the same padding at both ends."""
    found = []
    for _ in range(rng.integers(1, 4)):
        taps, step, extent = (int(rng.integers(1, high)) for high in (8, 4, 60))
        # The whole reach of the filter, without the padding.
        padding = int(rng.integers(0, taps // 2 + 1))
        image = (extent - 1) * step + taps - 2 * padding
        found.append(PixelAxis(extent, step, max(1, image), taps - 1))
    return tuple(found)


def _boxes(rows: int, count: int) -> list[tuple[int, ...]]:
    sizes = [size for size in range(1, rows + 1) if rows % size == 0]
    return [box for box in itertools.product(sizes, repeat=count) if math.prod(box) == rows]


def _tiles(axes: tuple[PixelAxis, ...], box: tuple[int, ...]) -> int:
    starts = (range(0, axis.extent, size) for axis, size in zip(axes, box, strict=True))
    return len(list(itertools.product(*starts)))


def test_a_box_has_the_fewest_tiles_of_those_that_can_be_shared(rng: np.random.Generator) -> None:
    none = 0
    for _ in range(60):
        axes, rows = _axes(rng), int(rng.choice([8, 24, 64, 80, 128, 192, 256]))
        parts = int(rng.choice([p for p in (1, 2, 3) if p == 1 or rows % (64 * p) == 0]))
        peers = int(rng.choice([1, 2, 4]))
        box = box_of(axes, rows, parts, peers)
        every = _boxes(rows, len(axes))
        allowed = [other for other in every if _is_shared(axes, other, parts, peers)]
        print(axes, rows, parts, peers, box)
        if box is None:
            assert not allowed
            none += 1
            continue
        assert box in allowed
        assert _tiles(axes, box) == min(_tiles(axes, other) for other in allowed)
        assert tiles_of_pixels(axes, box, math.prod(a.extent for a in axes)) == _tiles(axes, box)
    assert none < 40


def _is_shared(
    axes: tuple[PixelAxis, ...], box: tuple[int, ...], parts: int, peers: int
) -> bool:
    """Whether TMA loads a box, and warpgroups, their MMAs and CTAs of a cluster have boxes."""
    ranges = [(0, tirx.IntImm("int32", extent)) for extent in box]
    rows = math.prod(box)
    dimensions = row_dimensions(ranges, rows)
    if any(size * axis.step > 256 for size, axis in zip(box, axes, strict=True)):
        return False
    cuts = [rows // parts] if parts > 1 else []
    cuts += [64] if rows // parts % 64 == 0 else []
    whole = all(
        part_of_rows(ranges, dimensions, part, cut) is not None
        for cut in cuts for part in range(rows // cut)
    )  # fmt: skip
    # A CTA and a warpgroup are told apart by a variable, so that parts are of the first extent.
    wide = [extent for extent in box if extent > 1] or [1]
    first = wide[0] % peers == 0 and (parts == 1 or rows // parts % math.prod(wide[1:]) == 0)
    return whole and first


def test_parts_are_boxes_where_the_passes_find_boxes(rng: np.random.Generator) -> None:
    for _ in range(200):
        box = tuple(int(rng.choice([1, 2, 3, 4, 5, 8, 16])) for _ in range(3))
        ranges = [(0, tirx.IntImm("int32", extent)) for extent in box]
        rows = math.prod(box)
        height = int(rng.choice([size for size in range(1, rows + 1) if rows % size == 0]))
        dimensions = row_dimensions(ranges, rows)
        if dimensions:
            found = part_of_rows(ranges, dimensions, rows // height - 1, height) is not None
            assert are_boxes(box, height) == found, (box, height)


def test_what_taps_see_is_counted(rng: np.random.Generator) -> None:
    for _ in range(40):
        axes = _axes(rng)
        box = tuple(int(rng.integers(1, 9)) for _ in axes)
        seen, image = 1, 1
        for axis, size in zip(axes, box, strict=True):
            taps = range(axis.reach + 1)
            seen *= len({i * axis.step + tap for i in range(size) for tap in taps})
            padding = ((axis.extent - 1) * axis.step + axis.reach + 1 - axis.image) // 2
            places = [i * axis.step + tap - padding for i in range(axis.extent) for tap in taps]
            image *= min(axis.image, len({max(place, 0) for place in places}))
        rows = math.prod(axis.extent for axis in axes)
        print(axes, box)
        assert pixels_seen(axes, box) == seen
        assert pixels_of_images(axes, rows) <= math.prod(axis.image for axis in axes) + 1e-6
        assert pixels_of_images(axes, rows) >= 0.5 * image


@pytest.mark.parametrize("images", [1, 5, 32])
def test_an_unknown_extent_is_what_rows_leave(images: int) -> None:
    axes, known = ((PixelAxis(n, image=n), PixelAxis(14, 1, 14, 2)) for n in (None, images))
    box = box_of(axes, 64)
    assert tiles_of_pixels(axes, box, 14 * images) == tiles_of_pixels(known, box, 14 * images)
