"""What the operands of a product are in memory: strides, and bits an element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import Var

from warploom.decide.problem import ALIGN, kind_of
from warploom.errors import Decline
from warploom.gemm.equations import loads, simplify
from warploom.gemm.problem import Axis, GemmFunction, Operand, Product
from warploom.target import TMA
from warploom.target.dtypes import bits_of
from warploom.tile import ir


def static(extent: Any) -> int | None:
    """The extent, or None if only the launch knows it."""
    return int(extent) if isinstance(extent, tirx.IntImm) else None


def check_strides(load: TensorLoad) -> None:
    """TMA needs strides that are multiples of 16 bytes, whether or not they are known.

    Raises
    ------
    Decline
        If it cannot load the parameter; the message says which.
    """
    shape = list(load.source.shape)
    if len(shape) > TMA.rank:
        raise Decline(
            f"{load.source.name} has {len(shape)} dimensions; TMA knows at most {TMA.rank}."
        )
    if len(shape) == 1:
        return
    unit = 8 * ALIGN // bits_of(str(load.source.dtype))
    row = static(shape[-1])
    if row is not None and row % unit:
        raise Decline(
            f"rows of {load.source.name} have {row} elements of {load.source.dtype}; TMA "
            f"wants multiples of {ALIGN} bytes, so pad them."
        )
    if row is None and not tvm.sym.Analyzer().can_prove_equal(tirx.floormod(shape[-1], unit), 0):
        raise Decline(
            f"rows of {load.source.name} have {shape[-1]} elements of {load.source.dtype}, of "
            f"which only the launch knows whether they are multiples of {ALIGN} bytes, as TMA "
            "wants; pad them to one."
        )


def operand_faults(gemm: GemmFunction) -> Iterator[tuple[Operand, Decline]]:
    """The operands that cannot be loaded as they lie in memory, with what is in the way.

    Strides must be whole units of TMA, and only operands of 16 bits may have their rows or columns
    in the last dimension: the tensor core reads others along K (PTX ISA, "Strides" of wgmma's
    matrix descriptors).
    """
    problem = gemm.problem
    kind = kind_of(problem)
    for product in gemm.products:
        operands = product.a, product.b
        for operand, layout, wanted in zip(operands, problem.layout, "NT", strict=True):
            if operand.load is None:
                continue
            try:
                check_strides(operand.load)
                _check_pixels(gemm, operand.load)
            except Decline as fault:
                yield operand, Decline(f"{fault}{_of_convolutions(product)}")
                continue
            if layout != wanted and not kind.transpose:
                yield (
                    operand,
                    Decline(
                        f"{operand.load.source.name} has its summed dimension not last, where the "
                        f"tensor core wants it for {operand.value.ty.dtype}; transpose it."
                    ),
                )


def _check_pixels(gemm: GemmFunction, load: TensorLoad) -> None:
    """TVM describes no copy of padding around a single pixel: it reads that one instead.

    Raises
    ------
    Decline
        If an image has an extent of 1 that pixels of the result, or taps, go beyond.
    """
    moving = {axis.var for axis in (*gemm.pixels, *gemm.summed)}
    for index, extent in zip(load.indices, load.source.shape, strict=True):
        if ir.is_constant(extent, 1) and ir.uses(index) & moving:
            raise Decline(
                f"{load.source.name} has an extent of 1 where the result has more, or several "
                "taps, all but one in padding; TVM describes no such copy, so leave taps out that "
                "see nothing but padding."
            )


def _of_convolutions(product: Product) -> str:
    """What helps a convolution whose channels are not last, as PyTorch exports it."""
    loads_of = [operand.load for operand in (product.a, product.b) if operand.load is not None]
    moves = any(not isinstance(i, (Var, tirx.IntImm)) for load in loads_of for i in load.indices)
    if not moves:
        return ""
    return (
        " A convolution wants its channels last (NHWC, OHWI): a Relax model is laid out so where "
        "that saves more time than its transpositions take."
    )


def bits_in_memory(operand: Operand, inner: Axis, outer: Axis | None = None) -> float:
    """Bits that an element of an operand has in memory, all parameters together.

    An element of a parameter may serve several along the sum, or beside each other: words that hold
    weights of few bits, scales of groups.

    Parameters
    ----------
    operand : Operand
    inner : Axis
        The innermost one of the sum.
    outer : Axis, optional
        That of the rows or columns of the result that the operand has.

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
    for load in found:
        along = [i for i, index in enumerate(load.indices) if inner.var in ir.uses(index)]
        stored, extent = (
            (static(load.source.shape[along[-1]]), static(inner.extent)) if along else (0, 1)
        )
        if stored is None or extent is None:
            raise Decline(f"{load.source.name} is unpacked along an extent that is not known.")
        # A part of a concatenation has fewer elements, and yet fills a tile of its own.
        whole = bool(along) and _steps_by_one(load.indices[along[-1]], inner.var)
        share = 1.0 if whole else stored / extent
        total += bits_of(str(load.source.dtype)) * share * _shared(load, outer)
    return total


def _shared(load: TensorLoad, outer: Axis | None) -> float:
    """Elements of a parameter for each row or column of the result, if known; else 1."""
    if outer is None or static(outer.extent) is None:
        return 1.0
    along = [
        (index, static(size))
        for index, size in zip(load.indices, load.source.shape, strict=True)
        if outer.var in ir.uses(index)
    ]
    if len(along) != 1 or along[0][1] is None or _steps_by_one(along[0][0], outer.var):
        return 1.0
    return min(1.0, along[0][1] / int(outer.extent))


def _steps_by_one(index: Any, var: Var) -> bool:
    """Whether an index grows as a variable does, so that each element is another one."""
    step = simplify(ir.substitute(index, {var: var + 1}) - index)
    return isinstance(step, tirx.IntImm) and int(step) == 1
