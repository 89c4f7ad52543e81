"""Recognise matmul-like S-TIR functions.

A function is one if its only sums are products of two factors over the same axes, one factor with
the rows of the result and one with its columns, and everything else is element-wise: before the
sum (casts, dequantisation), or after it (bias, activation, residual, ...).

Everything is expressed in the axes of the first result. A reshape or transposition after the sum
then needs no inverse: it only changes how those axes index the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.tirx import PrimFunc

from warploom.decide.price.instructions import of_element
from warploom.decide.problem import SHAPES, GemmProblem
from warploom.errors import Decline, IllegalCombination
from warploom.gemm.axes import Axes
from warploom.gemm.equations import loads, narrow, read_equations
from warploom.gemm.flatten import flatten
from warploom.gemm.memory import bits_in_memory, operand_faults, static
from warploom.gemm.pixels import padded_load, pixel_axes
from warploom.gemm.problem import (
    Axis,
    GemmFunction,
    Operand,
    Output,
    Product,
    RowReduction,
)
from warploom.gemm.reductions import split_reductions
from warploom.gemm.sums import SumReader
from warploom.gemm.tf32 import TF32, allows_tf32
from warploom.gemm.widen import widened
from warploom.target import wgmma_kind
from warploom.target.dtypes import bits_of
from warploom.tile import ir


def recognise(func: PrimFunc) -> GemmFunction:
    """The product that an S-TIR function computes.

    Parameters
    ----------
    func : PrimFunc
        As ``te.create_prim_func`` or Relax's FuseTIR make it, not scheduled. Its float32 operands
        are multiplied as tf32 if :func:`warploom.gemm.tf32.allow_tf32` has said so.

    Raises
    ------
    Decline
        If it computes something else; the message says what is in the way.
    """
    gemm = read_product(func)
    for _, fault in operand_faults(gemm):
        raise fault
    return gemm


def read_product(func: PrimFunc) -> GemmFunction:
    """The product that a function computes, whether or not its operands can be loaded as they lie.

    Raises
    ------
    Decline
        If it computes something else.
    """
    func = narrow(func)
    equations = read_equations(func)
    definitions = {equation.buffer: equation for equation in equations if not equation.reduction}
    sums = {equation.buffer: equation for equation in equations if equation.reduction}
    if not sums:
        raise Decline("nothing is summed; a product of matrices has a reduction axis.")
    sums, later = split_reductions(sums, definitions)
    results = [equation for equation in equations if equation.buffer in set(func.params)]
    reader = SumReader(sums, definitions)
    # The axes are those of the first result; where rows are reduced only, those of the product.
    stored = [result for result in results if result not in later]
    outputs = [reader.output(equation) for equation in stored or [next(iter(sums.values()))]]
    reduced = [reader.reduction(equation) for equation in later if equation in results]
    if len(reduced) < len(later):
        raise Decline(f"block {later[-1].block.name_hint} reduces a product within the function.")
    unused = sums.keys() - {tap.buffer for tap in reader.taps}
    if unused:
        raise Decline(f"block {sums[unused.pop()].block.name_hint} sums what no result reads.")
    axes = Axes.of(outputs[0], reader.spatial, reader.summed, reader.taps[0].factors)
    outputs = [axes.settle(output) for output in outputs]
    products = tuple(
        Product(*_operands(axes.ordered(tap.factors)), tap.accumulator)
        for tap in reader.taps
    )
    for product in products[1:]:
        if not tvm_ffi.structural_equal(product.a.value, products[0].a.value):
            raise Decline("the products of the function have no factor in common.")
    axes = axes.with_pixels(outputs, products)
    reductions = tuple(
        reduction.finish(axes.settle_value(value), tuple(map(axes.settle_value, reduction.indices)),
                   axes.columns)
        for reduction, value in reduced
    )  # fmt: skip
    widths = {reduction.width for reduction in reductions}
    if len(widths) > 1:
        raise Decline(f"rows are reduced over parts of {sorted(widths)} columns; make them equal.")
    outputs = outputs if stored else []
    problem = _problem(axes, products, outputs, allows_tf32(func))
    problem = replace(problem, finish=_finish(axes, products, [*outputs, *reductions]))
    pixels = axes.pixels and pixel_axes(axes.pixels, axes.summed, products[0].a.load)
    problem = replace(
        problem, reduced=max(widths, default=0), pixels=pixels,
        outputs=(*problem.outputs, *(str(reduction.buffer.dtype) for reduction in reductions)),
    )  # fmt: skip
    anchor = next(iter(sums.values())).block.name_hint
    return flatten(GemmFunction(
        func, anchor, problem, axes.rows, axes.columns, axes.batch, axes.summed, products,
        tuple(outputs), axes.pixels, (), reductions,
    ))  # fmt: skip


def _operands(factors: Sequence[Any]) -> list[Operand]:
    """The factors of a product: loads as they lie in memory, as long as both are of one size.

    An 8-bit weight that is converted for a 16-bit operand is computed.
    """
    operands = [_operand(factor) for factor in factors]
    sizes = [bits_of(_dtype(operand)) for operand in operands]
    for index, factor in enumerate(factors):
        value = _before_sum(factor)
        if sizes[index] < sizes[1 - index] == bits_of(str(value.ty.dtype)):
            operands[index] = Operand(value, None)
    return operands


def _operand(value: Any) -> Operand:
    load = padded_load(value)
    return Operand(_before_sum(value), None) if load is None else Operand(load, load)


def _before_sum(value: Any) -> Any:
    """A factor without conversions to the type of the sum, which are the tensor core's own."""
    while isinstance(value, tirx.Cast) and str(value.ty.dtype) in ("float32", "int32"):
        value = value.value
    return value


def _dtype(operand: Operand) -> str:
    return str(operand.value.ty.dtype)


def _count(axes: Sequence[Axis]) -> int | None:
    """Product of the extents, None if one is not known."""
    total = 1
    for axis in axes:
        size = static(axis.extent)
        if size is None:
            return None
        total *= size
    return total


def _problem(
    axes: Axes, products: tuple[Product, ...], outputs: list[Output], tf32: bool
) -> GemmProblem:
    first = products[0]
    dtypes = [_dtype(operand) for operand in (first.a, first.b)]
    accumulator = str(first.accumulator.ty.dtype)
    if "float32" in dtypes and not tf32:
        raise Decline(
            "float32 operands have no tensor-core product of full precision; for one with 10 bits "
            f"of mantissa, give the function the attribute {TF32}, or the pipeline tf32=True."
        )
    try:
        wgmma_kind(*dtypes, accumulator)
    except IllegalCombination as reason:
        raise Decline(str(reason)) from None
    rows, columns = axes.row_vars, axes.columns.var
    inputs = {
        (str(load.source.dtype), SHAPES[bool(rows & ir.uses(load)), columns in ir.uses(load)]): None
        for output in outputs
        for load in loads(output.value)
    }
    return GemmProblem(
        static(axes.rows.extent),
        static(axes.columns.extent),
        _count(axes.summed),
        _count(axes.batch),
        *dtypes,
        _layout(first, axes),
        accumulator,
        len(products),
        *(
            bits_in_memory(operand, axes.summed[-1], outer)
            for operand, outer in ((first.a, axes.rows), (first.b, axes.columns))
        ),
        tuple(inputs),
        tuple(str(output.buffer.dtype) for output in outputs),
        (first.a.load is None, first.b.load is None),
        (_count(axes.summed[:-1]) or 1) if axes.pixels else 1,
    )


def _finish(
    axes: Axes, products: Sequence[Product], results: Sequence[Output | RowReduction]
) -> tuple[float, ...]:
    """What the epilogue computes of each element, as :attr:`GemmProblem.finish` has it."""
    sums = [product.accumulator for product in products]
    values = [widened(result.value) for result in results]
    found = of_element(values, sums, axes.row_vars, axes.columns.var)[:4]
    return found if any(found) else ()


def _layout(product: Product, axes: Axes) -> str:
    k = {axis.var for axis in axes.summed}

    def k_major(operand: Operand) -> bool:
        # A computed operand is written to its tile along K, however its parameters lie in memory.
        return operand.load is None or bool(ir.uses(operand.load.indices[-1]) & k)

    return ("N" if k_major(product.a) else "T") + ("T" if k_major(product.b) else "N")
