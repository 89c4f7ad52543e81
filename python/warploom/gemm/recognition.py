"""Recognise matmul-like S-TIR functions.

A function is one if its only sums are products of two factors over the same axes, one factor with
the rows of the result and one with its columns, and everything else is element-wise: before the
sum (casts, dequantisation), or after it (bias, activation, residual, ...).

Everything is expressed in the axes of the first result. A reshape or transposition after the sum
then needs no inverse: it only changes how those axes index the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import Buffer, PrimFunc, Var

from warploom.errors import IllegalCombination
from warploom.gemm.equations import (
    Equation,
    expand,
    loads,
    read_equations,
    simplify,
    strip_casts,
)
from warploom.gemm.memory import bits_in_memory, check_strides, static
from warploom.gemm.problem import (
    SHAPES,
    Axis,
    GemmFunction,
    GemmProblem,
    Operand,
    Output,
    Product,
)
from warploom.target import wgmma_kind
from warploom.transform import ir
from warploom.transform.decline import Decline

#: What a size that is known only at launch counts as where axes compete for the tile's rows.
_UNKNOWN_EXTENT = 4096


def recognise(func: PrimFunc, tf32: bool = False) -> GemmFunction:
    """The product that an S-TIR function computes.

    Parameters
    ----------
    func : PrimFunc
        As ``te.create_prim_func`` or Relax's FuseTIR make it, not scheduled.
    tf32 : bool
        Whether float32 operands may be multiplied as tf32, with 10 bits of mantissa.

    Raises
    ------
    Decline
        If it computes something else; the message says what is in the way.
    """
    func = _narrow(func)
    equations = read_equations(func)
    sums = {one.buffer: one for one in equations if one.reduction}
    if not sums:
        raise Decline("nothing is summed; a product of matrices has a reduction axis.")
    results = [one for one in equations if one.buffer in set(func.params)]
    reader = _Reader(sums, {one.buffer: one for one in equations if not one.reduction})
    outputs = [reader.output(one) for one in results]
    unused = sums.keys() - {one.buffer for one in reader.taps}
    if unused:
        raise Decline(f"block {sums[unused.pop()].block.name_hint} sums what no result reads.")
    axes = _Axes.of(outputs[0], reader.spatial, reader.summed, reader.taps[0].factors)
    outputs = [axes.settle(one) for one in outputs]
    products = tuple(
        Product(*(_operand(one) for one in axes.ordered(tap.factors)), tap.accumulator)
        for tap in reader.taps
    )
    for product in products[1:]:
        if not tvm_ffi.structural_equal(product.a.value, products[0].a.value):
            raise Decline("the products of the function have no factor in common.")
    problem = _problem(axes, products, outputs, tf32)
    for product in products:
        for operand in (product.a, product.b):
            if operand.load is not None:
                check_strides(operand.load, axes.rows)
    anchor = next(iter(sums.values())).block.name_hint
    return GemmFunction(
        func, anchor, problem, axes.rows, axes.columns, axes.batch, axes.summed, products,
        tuple(outputs),
    )  # fmt: skip


def _narrow(func: PrimFunc) -> PrimFunc:
    """The function with indices of 32 bits, which kernels compute with."""
    try:
        return tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({"main": func}))["main"]
    except (tvm.TVMError, RuntimeError, ValueError) as error:
        raise Decline(f"its indices cannot have 32 bits: {str(error).splitlines()[-1]}") from None


@dataclass(frozen=True)
class _Tap:
    """A sum at certain indices: what one accumulator holds."""

    buffer: Buffer
    indices: tuple[Any, ...]
    factors: tuple[Any, Any]
    accumulator: Var


class _Reader:
    """Collects the sums that results read, all in the axes of the first result."""

    def __init__(
        self, sums: dict[Buffer, Equation], definitions: dict[Buffer, Equation]
    ) -> None:
        self.sums, self.definitions = sums, definitions
        self.spatial: list[Axis] = []
        self.summed: list[Axis] = []
        self.taps: list[_Tap] = []

    def output(self, equation: Equation) -> Output:
        """A result, its sums replaced by accumulators."""
        table = _same_axes(equation.block.name_hint, equation.spatial, self.spatial)
        indices = tuple(_settled(one, table) for one in equation.indices)
        before = len(self.taps)
        if equation.reduction:
            value = self._tap(equation, indices)
        else:
            expanded = _settled(expand(equation.value, self.definitions), table)
            value = ir.map_nodes(expanded, {TensorLoad: self._load}, {})
        if not self.taps or (len(self.taps) == before and not _holds(value, self.taps)):
            raise Decline(f"block {equation.block.name_hint} does not depend on a sum.")
        return Output(equation.buffer, indices, value)

    def _load(self, one: TensorLoad) -> Any:
        known = self.sums.get(one.source)
        return one if known is None else self._tap(known, tuple(map(simplify, one.indices)))

    def _tap(self, equation: Equation, indices: tuple[Any, ...]) -> Any:
        """The value of a sum at those indices, as the results see it."""
        for tap in self.taps:
            if tap.buffer.same_as(equation.buffer) and all(
                tvm_ffi.structural_equal(x, y) for x, y in zip(tap.indices, indices, strict=True)
            ):
                break
        else:
            factors = self._factors(equation, indices)
            dtype = "int32" if str(equation.buffer.dtype).startswith("int") else "float32"
            accumulator = Var(f"sum{len(self.taps)}", dtype)
            tap = _Tap(equation.buffer, indices, factors, accumulator)
            self.taps.append(tap)
        return tirx.Cast(str(equation.buffer.dtype), tap.accumulator)

    def _factors(self, equation: Equation, indices: tuple[Any, ...]) -> tuple[Any, Any]:
        name = equation.block.name_hint
        if not _is_zero(equation.init):
            raise Decline(f"block {name} starts its sum with {equation.init}; it must be 0.")
        table = _same_axes(name, equation.reduction, self.summed)
        for mine, wanted in zip(equation.indices, indices, strict=True):
            table[mine] = wanted
        value, rest = equation.value, None
        if isinstance(value, tirx.Add):
            parts = [(value.a, value.b), (value.b, value.a)]
            rest = next((p for own, p in parts if _is_own(own, equation)), None)
        if rest is None:
            raise Decline(f"block {name} is no sum of one term each; found {value}.")
        product = strip_casts(rest)
        if not isinstance(product, tirx.Mul):
            raise Decline(f"block {name} sums {rest}, which is no product of two factors.")
        factors = (expand(one, self.definitions) for one in (product.a, product.b))
        return tuple(_settled(one, table) for one in factors)


def _same_axes(name: str, mine: Sequence[tuple[Var, Any]], axes: list[Axis]) -> dict[Var, Any]:
    """The variables of an equation in terms of the axes; the first equation defines them."""
    if not axes:
        axes += [Axis(var, extent) for var, extent in mine]
    same = len(axes) == len(mine) and all(
        tvm_ffi.structural_equal(axis.extent, extent)
        for axis, (_, extent) in zip(axes, mine, strict=True)
    )
    if not same:
        raise Decline(
            f"block {name} has extents {[e for _, e in mine]} and another "
            f"{[a.extent for a in axes]}; all results, and all sums, must have the same."
        )
    return {var: axis.var for axis, (var, _) in zip(axes, mine, strict=True)}


def _settled(expression: Any, table: dict[Var, Any]) -> Any:
    return simplify(ir.substitute(expression, table))


def _is_zero(value: Any) -> bool:
    return isinstance(value, (tirx.IntImm, tirx.FloatImm)) and value.value == 0


def _is_own(value: Any, equation: Equation) -> bool:
    return (
        isinstance(value, TensorLoad)
        and value.source.same_as(equation.buffer)
        and all(
            tvm_ffi.structural_equal(x, y)
            for x, y in zip(value.indices, equation.indices, strict=True)
        )
    )


def _holds(value: Any, taps: list[_Tap]) -> bool:
    return bool(ir.uses(value) & {tap.accumulator for tap in taps})


@dataclass(frozen=True)
class _Axes:
    """Which axis plays which part; ``unit`` are those of extent 1 that play none."""

    rows: Axis
    columns: Axis
    batch: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    unit: tuple[Axis, ...]

    @classmethod
    def of(
        cls, output: Output, spatial: list[Axis], summed: list[Axis], factors: tuple[Any, Any]
    ) -> _Axes:
        x, y = (ir.uses(one) for one in factors)
        for axis in summed:
            if _is_long(axis) and (axis.var not in x or axis.var not in y):
                raise Decline(f"axis {axis.var.name} is summed over, but in one factor only.")
        if not any(map(_is_long, summed)):
            raise Decline("the sum has one term; it is no product of matrices.")
        idle = [axis for axis in spatial if _is_long(axis) and axis.var not in x | y]
        if idle:
            raise Decline(f"axis {idle[0].var.name} of the result is in neither factor.")
        own = [[a for a in spatial if a.var in mine - other] for mine, other in ((x, y), (y, x))]
        last = output.indices[-1]
        if any(last.same_as(axis.var) for axis in spatial if axis.var in x & y):
            raise Decline(
                f"the last dimension of {output.buffer.name} tells products apart; "
                "it must be that of rows or columns."
            )
        if any(last.same_as(axis.var) for axis in own[0]):
            own.reverse()
        if all(ir.is_constant(axis.extent, 1) for axis in own[1]):
            raise Decline(
                f"{output.buffer.name} has one column; a product of a matrix and a vector is left "
                "to rules for those."
            )
        rows, columns = (_longest(axes) for axes in own)
        if rows is None or columns is None:
            raise Decline(
                f"{output.buffer.name} has no {'rows' if rows is None else 'columns'} that one "
                "factor alone has; it is no product of two matrices."
            )
        others = [axis for axis in spatial if axis not in (rows, columns)]
        return cls(
            rows,
            columns,
            tuple(axis for axis in others if _is_long(axis)),
            tuple(axis for axis in summed if _is_long(axis)),
            tuple(axis for axis in (*others, *summed) if not _is_long(axis)),
        )

    def _zeros(self) -> dict[Var, Any]:
        return {axis.var: 0 * axis.var for axis in self.unit}

    def settle(self, output: Output) -> Output:
        """A result without the axes of extent 1."""
        zeros = self._zeros()
        indices = tuple(_settled(one, zeros) for one in output.indices)
        return Output(output.buffer, indices, _settled(output.value, zeros))

    def ordered(self, factors: tuple[Any, Any]) -> tuple[Any, Any]:
        """The factors of a product without the axes of extent 1, the one with rows first."""
        a, b = (_settled(one, self._zeros()) for one in factors)
        if self.columns.var in ir.uses(a) or self.rows.var in ir.uses(b):
            a, b = b, a
        if self.columns.var in ir.uses(a) or self.rows.var in ir.uses(b):
            raise Decline("two products of the function have their rows and columns crossed.")
        return a, b


def _is_long(axis: Axis) -> bool:
    return not ir.is_constant(axis.extent, 1)


def _longest(axes: list[Axis]) -> Axis | None:
    """The axis that a tile extends along: the longest, of equal ones the last."""
    return max(
        reversed(axes), key=lambda axis: static(axis.extent) or _UNKNOWN_EXTENT, default=None
    )


def _operand(value: Any) -> Operand:
    bare = strip_casts(value)
    if isinstance(bare, TensorLoad):
        return Operand(bare, bare)
    # Conversions to the type of the sum are the tensor core's own.
    while isinstance(value, tirx.Cast) and str(value.ty.dtype) in ("float32", "int32"):
        value = value.value
    return Operand(value, None)


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
    axes: _Axes, products: tuple[Product, ...], outputs: list[Output], tf32: bool
) -> GemmProblem:
    first = products[0]
    dtypes = [_dtype(one) for one in (first.a, first.b)]
    accumulator = str(first.accumulator.ty.dtype)
    if "float32" in dtypes and not tf32:
        raise Decline(
            "float32 operands have no tensor-core product of full precision; allow tf32 for one "
            "with 10 bits of mantissa."
        )
    try:
        wgmma_kind(*dtypes, accumulator)
    except IllegalCombination as reason:
        raise Decline(str(reason)) from None
    rows, columns = axes.rows.var, axes.columns.var
    inputs = {
        (str(one.source.dtype), SHAPES[rows in ir.uses(one), columns in ir.uses(one)]): None
        for output in outputs
        for one in loads(output.value)
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
        *(bits_in_memory(one, axes.summed[-1]) for one in (first.a, first.b)),
        tuple(inputs),
        tuple(str(one.buffer.dtype) for one in outputs),
        (first.a.load is None, first.b.load is None),
    )


def _layout(product: Product, axes: _Axes) -> str:
    k = {axis.var for axis in axes.summed}

    def k_major(operand: Operand) -> bool:
        return any(ir.uses(one.indices[-1]) & k for one in loads(operand.value))

    return ("N" if k_major(product.a) else "T") + ("T" if k_major(product.b) else "N")
