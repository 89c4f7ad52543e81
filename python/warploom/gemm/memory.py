"""What the operands of a product are in memory: strides, and bits an element."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir.expr import TensorLoad

from warploom.gemm.equations import loads
from warploom.gemm.problem import Axis, Operand
from warploom.target.dtypes import bits_of
from warploom.transform import ir
from warploom.transform.decline import Decline

#: Bytes that TMA wants base addresses and strides aligned to.
ALIGN = 16


def static(extent: Any) -> int | None:
    """The extent, or None if only the launch knows it."""
    return int(extent) if isinstance(extent, tirx.IntImm) else None


def check_strides(load: TensorLoad, rows: Axis) -> None:
    """TMA needs strides that are known, except the outermost one, and multiples of 16 bytes.

    A single row counts as unknown: kernels are generated for any number of them.

    Raises
    ------
    Decline
        If it cannot load the parameter; the message says which.
    """
    shape = list(load.source.shape)
    single = ir.is_constant(rows.extent, 1)
    sizes = [
        None if single and rows.var in ir.uses(index) else static(extent)
        for index, extent in zip(load.indices, shape, strict=True)
    ]
    outermost = next((i for i, size in enumerate(sizes) if size != 1), 0)
    if None in sizes[outermost + 1 :]:
        raise Decline(
            f"{load.source.name} has shape {shape} and so strides that only the launch knows; of "
            "its dimensions with several elements, only the first may have an unknown extent."
        )
    row = sizes[-1]
    if row is not None and row * bits_of(str(load.source.dtype)) % (8 * ALIGN):
        raise Decline(
            f"rows of {load.source.name} have {row} elements of {load.source.dtype}; TMA "
            f"wants multiples of {ALIGN} bytes, so pad them."
        )


def bits_in_memory(operand: Operand, inner: Axis) -> float:
    """Bits that an element of an operand has in memory, all parameters together.

    An element of a parameter may serve several along the sum: words that hold weights of few bits,
    scales of groups.

    Parameters
    ----------
    operand : Operand
    inner : Axis
        The innermost one of the sum.

    Raises
    ------
    Decline
        If it reads nothing, or an extent that the number follows from is not known.
    """
    if operand.load is not None:
        return bits_of(str(operand.value.ty.dtype))
    found = loads(operand.value)
    if not found:
        raise Decline("a factor of the product reads no parameter.")
    total = 0.0
    for one in found:
        along = [i for i, index in enumerate(one.indices) if inner.var in ir.uses(index)]
        stored, extent = (
            (static(one.source.shape[along[-1]]), static(inner.extent)) if along else (0, 1)
        )
        if stored is None or extent is None:
            raise Decline(f"{one.source.name} is unpacked along an extent that is not known.")
        total += bits_of(str(one.source.dtype)) * stored / extent
    return total
