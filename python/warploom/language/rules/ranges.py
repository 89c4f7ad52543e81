"""Where accesses may go: tiles have no elements outside, global buffers read as 0 there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warploom.errors import TileProgramError
from warploom.language.rules.scopes import shape_text


def outside(indices: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """Where broadcast index arrays lie outside of a buffer."""
    wrong = np.False_
    for index, extent in zip(indices, shape, strict=True):
        wrong = wrong | (index < 0) | (index >= extent)
    return np.asarray(wrong)


def require_inside(
    name: str, scope: str, shape: Sequence[int], indices: Sequence[np.ndarray], wrong: np.ndarray
) -> None:
    """Refuse the elements of a tile at ``indices`` where ``wrong``: they lie outside of it."""
    if not wrong.any():
        return
    every = np.broadcast_arrays(wrong, *indices)
    first = tuple(np.argwhere(every[0])[0])
    at = [int(index[first]) for index in every[1:]]
    raise TileProgramError(
        f"{name}{at} lies outside of {name}, which has scope {scope} and shape "
        f"{shape_text(shape)}; a tile has no elements there, so shorten the loops or guard the "
        "element with T.if_then_else."
    )


def require_region(
    name: str, scope: str, shape: Sequence[int | None], start: Sequence[int | None],
    extent: Sequence[int | None],
) -> None:  # fmt: skip
    """A region must lie in its buffer, unless that is in global memory; None is not known."""
    if any(e is not None and e < 0 for e in extent):
        raise TileProgramError(f"a region of {name} has the negative extent {shape_text(extent)}.")
    if scope == "global":
        return
    for low, count, size in zip(start, extent, shape, strict=True):
        beyond = low is not None and count is not None and size is not None and low + count > size
        if (low is not None and low < 0) or beyond:
            region = [
                f"{'?' if s is None else s}:{'?' if s is None or e is None else s + e}"
                for s, e in zip(start, extent, strict=True)
            ]
            raise TileProgramError(
                f"the region {name}[{', '.join(region)}] reaches over the edge of {name}, which "
                f"has scope {scope} and shape {shape_text(shape)}; only regions of global buffers "
                "may."
            )
