"""Pointers that say whether they are read from or written to."""

from __future__ import annotations

import math
from typing import Any

from tvm.ir import Call, Op, TensorRegion
from tvm.ir.type import PointerType, PrimType
from tvm.script import tirx as T
from tvm.tirx import Var, address_of

from warploom.errors import IllegalCombination
from warploom.language.builtins.operands import constant, describe, is_place, known, place, pointer

#: Bits of an access mask, as in ``tvm_access_ptr``.
MASKS = {"r": 1, "w": 2, "rw": 3, "wr": 3}
_ADDRESS_OF = Op.get("tirx.address_of")


def access_ptr(
    base: Any,
    access_type: str | int = "r",
    *extents: Any,
    offset: Any = 0,
    extent: Any = None,
    ignore_last_ndim: int = 0,
) -> Any:
    """A pointer into a buffer that tells passes the accesses to the memory behind it.

    Parameters
    ----------
    base : Buffer, TensorLoad, TensorRegion or pointer
        ``A``, ``A[i, j]`` or ``A[i:j, k:l]``: the pointer is that of the first element. A pointer,
        such as ``p: T.let = A.ptr_to([i, j])``, must have a pointer type.
    access_type : str or int
        ``"r"``, ``"w"`` or ``"rw"``; or their bits 1, 2 and 3.
    *extents : int or Expr
        Elements that are accessed along the last dimensions: their product is the extent.
    offset : int or Expr
        Elements to add to where ``base`` begins.
    extent : int or Expr, optional
        Elements that are accessed, whatever ``extents`` say. By default those of the region or
        the buffer, or 1 for an element and for a pointer.
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
        If the mask is another, ``base`` has no address or no dtype, there are more extents than
        dimensions, or the layout of the buffer leaves no distance of ``offset`` elements.

    Examples
    --------
    .. code-block:: python

        T.cuda.func_call(
            "twice", wl.access_ptr(B[t], "w"), wl.access_ptr(A[t], "r"),
            source_code="__device__ void twice(float* to, const float* from) { *to = 2 * *from; }",
        )
        # B == 2 * A
    """
    mask = MASKS.get(access_type) if isinstance(access_type, str) else known(access_type)
    if mask not in MASKS.values():
        raise IllegalCombination(
            f"access_type is {access_type!r}; it must be 'r', 'w', 'rw', or their bits 1, 2, 3."
        )
    if isinstance(base, Call) and base.op.same_as(_ADDRESS_OF):
        base = base.args[0]
    if not is_place(base):
        return _from_pointer(base, offset, extents, extent, mask, ignore_last_ndim)
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


def _from_pointer(
    base: Any, offset: Any, extents: tuple[Any, ...], extent: Any, mask: int, ignored: int
) -> Any:
    base = pointer("base of access_ptr", base)
    if ignored:
        raise IllegalCombination(
            f"ignore_last_ndim is {ignored} and the base of access_ptr is the pointer "
            f"{describe(base)}, which has no dimensions; leave it out."
        )
    element = base.ty.element_type if isinstance(base.ty, PointerType) else None
    if not isinstance(element, PrimType) or str(element.dtype) in ("", "void", "handle"):
        raise IllegalCombination(
            f"base of access_ptr is the pointer {describe(base)} to an unknown dtype; name the "
            'buffer, or cast it: T.reinterpret(T.handle("float16").ty, pointer).'
        )
    if not isinstance(base, Var):
        base = T.bind(base)
    if extent is None:
        extent = math.prod(extents) if extents else 1
    return T.tvm_access_ptr(str(element.dtype), base, offset, extent, mask)


def _extent(base: Any, buffer: Any) -> Any:
    if base is buffer:
        return math.prod(buffer.shape)
    if isinstance(base, TensorRegion):
        return math.prod(dimension.extent for dimension in base.region)
    return 1
