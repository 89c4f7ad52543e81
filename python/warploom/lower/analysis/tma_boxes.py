"""Boxes of TMA that a copy of a tile without swizzle takes.

A box has at most 256 elements along each dimension (PTX ISA, "Tensor copies"). TVM takes elements
of up to 8 bytes where it knows that rows consist of such. It copies what is no box row by row,
whose places in shared memory then have to be multiples of 128 bytes.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer

from warploom.target import TMA
from warploom.tile import ir
from warploom.tile.scopes import is_global

#: Bytes of the largest elements of a tensor map.
_ELEMENT_BYTES = 8
#: Boxes of one copy, which are written one after the other.
MOST_BOXES = 64
_Regions = tuple[TensorRegion, TensorRegion]


def boxes(to: TensorRegion, source: TensorRegion, most: int | None = None) -> list[_Regions]:
    """The copies that TMA can do, for one between a shared tile and global memory.

    Parameters
    ----------
    to, source : TensorRegion
    most : int, optional
        Elements of a row in a box; without it as many as wide elements make of one.

    Returns
    -------
    list
        Regions of the destination and of the source. There is one, the copy itself, where its boxes
        are small enough, and where its dimensions are not those of the other region.
    """
    sizes = _sizes(to)
    if not sizes or sizes != _sizes(source):
        return [(to, source)]
    tensor = to if is_global(to.source) else source
    steps = _steps(sizes, most or _widest(tensor))
    starts = [range(0, size, step) for size, step in zip(sizes, steps, strict=True)]
    return [
        (_part(to, part, sizes, steps), _part(source, part, sizes, steps))
        for part in itertools.product(*starts)
    ]


def why_no_boxes(tile: TensorRegion, tensor: TensorRegion) -> str | None:
    """Why no boxes copy a region of a shared tile without swizzle; None if they do.

    ``tensor`` is the region of global memory that it is copied from or to.
    """
    sizes, size = _sizes(tile), _bytes_of(tile)
    if not sizes:
        return None
    steps = _steps(sizes, _widest(tensor))
    counts = [-(-extent // step) for extent, step in zip(sizes, steps, strict=True)]
    name, shape = tile.source.name, [int(extent) for extent in tile.source.shape]
    wide = [d for d, (_, extent) in enumerate(ir.ranges(tile)) if int(extent) != 1]
    for d, count, step in zip(wide, counts, steps, strict=True):
        distance = step * math.prod(shape[d + 1 :]) * size
        if count > 1 and distance % TMA.shared_align:
            return (
                f"{name} is larger than a box of TMA, and its parts would begin at multiples of "
                f"{distance} bytes, which are no multiples of {TMA.shared_align}."
            )
    if math.prod(counts) <= MOST_BOXES:
        return None
    return f"{name} takes {math.prod(counts)} boxes of TMA; a copy has {MOST_BOXES} at most."


def _steps(sizes: list[int], widest: int) -> list[int]:
    """The extents of a box; outside of a dimension that is cut, it has one element."""
    *rows, columns = sizes
    steps, cut = [widest], columns > widest
    for extent in reversed(rows):
        steps.insert(0, 1 if cut else TMA.box_extent)
        cut |= extent > TMA.box_extent
    return steps


def _widest(tensor: TensorRegion) -> int:
    """Elements of a row in a box: those of the widest elements that TVM takes for a region."""
    size, length = _bytes_of(tensor), tensor.source.shape[-1]
    first, extent = ir.ranges(tensor)[-1]
    analyzer = Analyzer()
    wide = next(
        bytes_ for bytes_ in (_ELEMENT_BYTES, 4, 2, 1)
        if bytes_ <= size or all(
            analyzer.can_prove(T.floormod(count * size, bytes_) == 0)
            for count in (length, first, extent)
        )
    )  # fmt: skip
    return TMA.box_extent * max(1, wide // size)


def _bytes_of(region: TensorRegion) -> int:
    return max(1, tvm.DataType(str(region.source.dtype)).bits // 8)


def _sizes(region: TensorRegion) -> list[int] | None:
    """The extents of a region but those of 1; None if the launch knows one of them."""
    extents = [extent for _, extent in ir.ranges(region)]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    return [int(extent) for extent in extents if int(extent) != 1]


def _part(
    region: TensorRegion, part: tuple[int, ...], sizes: list[int], steps: list[int]
) -> TensorRegion:
    """The part of a region from these elements on."""
    wanted = iter(zip(part, sizes, steps, strict=True))
    ranges: list[tuple[Any, Any]] = []
    for first, extent in ir.ranges(region):
        if ir.is_constant(extent, 1):
            ranges.append((first, extent))
            continue
        start, size, step = next(wanted)
        ranges.append((first + start if start else first, min(step, size - start)))
    return ir.region(region.source, *ranges)
