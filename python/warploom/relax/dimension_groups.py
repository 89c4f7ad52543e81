"""Which neighbouring dimensions of a tensor a reshape merges or splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx

#: Dimensions of the old and of the new shape that have the same elements.
Group = tuple[range, range]


def groups(old: Sequence[Any], new: Sequence[Any]) -> list[Group] | None:
    """The fewest dimensions of two shapes that have as many elements, from the first on.

    None if the shapes have extents that are not known, but for those that are the same in both.

    Examples
    --------
    >>> from tvm.tirx import IntImm
    >>> old, new = ([IntImm("int64", n) for n in shape] for shape in ((2, 3, 8), (6, 8)))
    >>> groups(old, new)
    [(range(0, 2), range(0, 1)), (range(2, 3), range(1, 2))]
    """
    found, places = [], [0, 0]
    shapes = old, new
    while places != [len(old), len(new)]:
        first, sizes = list(places), [1, 1]
        extents = [shape[at : at + 1] for shape, at in zip(shapes, places, strict=True)]
        if all(extents) and tvm_ffi.structural_equal(extents[0][0], extents[1][0]):
            places = [at + 1 for at in places]
        else:
            while places == first or sizes[0] != sizes[1]:
                left = places[0] < len(old) and sizes[0] <= sizes[1]
                side = 0 if left or places[1] == len(new) else 1
                if places[side] == len(shapes[side]):
                    return None
                extent = shapes[side][places[side]]
                if not isinstance(extent, tirx.IntImm) or int(extent) < 1:
                    return None
                sizes[side] *= int(extent)
                places[side] += 1
        found.append(tuple(range(*ends) for ends in zip(first, places, strict=True)))
    return found
