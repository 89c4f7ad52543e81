"""Pointers that say whether they are read from or written to."""

from __future__ import annotations

import math
from typing import Any

from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import address_of

from warploom.errors import IllegalCombination
from warploom.language.builtins.operands import constant, describe, known, place

#: Bits of an access mask, as in ``tvm_access_ptr``.
MASKS = {"r": 1, "w": 2, "rw": 3, "wr": 3}


def access_ptr(
    base: Any,
    access_type: str | int = "r",
    *extents: Any,
    offset: Any = 0,
    extent: Any = None,
    ignore_last_ndim: int = 0,
) -> Any:
    """A pointer into a buffer that tells passes what happens to the memory behind it.

    Parameters
    ----------
    base : Buffer, TensorLoad or TensorRegion
        ``A``, ``A[i, j]`` or ``A[i:j, k:l]``: the pointer is that of the first element.
    access_type : str or int
        ``"r"``, ``"w"`` or ``"rw"``; or their bits 1, 2 and 3.
    *extents : int or Expr
        Elements that are accessed along the last dimensions: their product is the extent.
    offset : int or Expr
        Elements to add to where ``base`` begins.
    extent : int or Expr, optional
        Elements that are accessed, whatever ``extents`` say. By default those of the region or
        the buffer, or 1 for an element.
    ignore_last_ndim : int
        So many last indices of ``base`` count as 0.

    Returns
    -------
    Call
        ``tvm_access_ptr``, of a buffer whose layout is row-major. A pointer into any other layout
        cannot have an offset or an extent in elements, and is ``address_of``.

    Raises
    ------
    IllegalCombination
        If the mask is another, there are more extents than dimensions, or the layout of the
        buffer leaves no distance of ``offset`` elements.
    """
    mask = MASKS.get(access_type) if isinstance(access_type, str) else known(access_type)
    if mask not in MASKS.values():
        raise IllegalCombination(
            f"access_type is {access_type!r}; it must be 'r', 'w', 'rw', or their bits 1, 2, 3."
        )
    buffer, indices = place("base of access_ptr", base)
    rank = len(indices)
    if len(extents) > rank:
        raise IllegalCombination(
            f"access_ptr of {buffer.name} has {len(extents)} extents; the buffer has {rank} "
            "dimensions."
        )
    ignored = constant("ignore_last_ndim", ignore_last_ndim, range(rank + 1))
    for axis in range(rank - ignored, rank):
        indices[axis] = 0
    if buffer.layout is not None and not buffer.layout.is_trivial():
        if known(offset) != 0:
            raise IllegalCombination(
                f"offset is {describe(offset)} and the layout of {buffer.name} is not row-major; "
                "write the offset in the indices of the base."
            )
        return address_of(buffer[tuple(indices)])
    if extent is None:
        extent = math.prod(extents) if extents else _extent(base, buffer)
    linear = buffer.offset_of(indices)[0]
    return T.tvm_access_ptr(str(buffer.dtype), buffer.data, linear + offset, extent, mask)


def _extent(base: Any, buffer: Any) -> Any:
    if base is buffer:
        return math.prod(buffer.shape)
    if isinstance(base, TensorRegion):
        return math.prod(one.extent for one in base.region)
    return 1
