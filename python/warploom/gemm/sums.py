"""Collects the sums that the results of a function read, all in the axes of the first result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import Buffer, Var

from warploom.errors import Decline
from warploom.gemm.equations import Equation, expand, settled, simplify, strip_casts
from warploom.gemm.problem import Axis, Output
from warploom.gemm.reductions import Reduced, read_reduction
from warploom.tile import ir


@dataclass(frozen=True)
class Tap:
    """A sum at certain indices: what one accumulator holds."""

    buffer: Buffer
    indices: tuple[Any, ...]
    factors: tuple[Any, Any]
    accumulator: Var


class SumReader:
    """Collects the sums that results read, all in the axes of the first result."""

    def __init__(self, sums: dict[Buffer, Equation], definitions: dict[Buffer, Equation]) -> None:
        self.sums, self.definitions = sums, definitions
        self.spatial: list[Axis] = []
        self.summed: list[Axis] = []
        self.taps: list[Tap] = []

    def output(self, equation: Equation) -> Output:
        """A result, its sums replaced by accumulators."""
        table = _same_axes(equation.block.name_hint, equation.spatial, self.spatial)
        indices = tuple(settled(index, table) for index in equation.indices)
        before = len(self.taps)
        if equation.reduction:
            value = self._tap(equation, indices)
        else:
            expanded = settled(expand(equation.value, self.definitions), table)
            value = ir.map_nodes(expanded, {TensorLoad: self._load}, {})
        if not self.taps or (len(self.taps) == before and not _holds(value, self.taps)):
            raise Decline(f"block {equation.block.name_hint} does not depend on a sum.")
        return Output(equation.buffer, indices, value)

    def reduction(self, equation: Equation) -> tuple[Reduced, Any]:
        """A reduction of rows, and what it reduces, sums replaced by accumulators."""
        places = {tap.buffer: tap.indices for tap in reversed(self.taps)}
        made = read_reduction(equation, self.definitions, places)
        before = len(self.taps)
        value = ir.map_nodes(made.value, {TensorLoad: self._load}, {})
        if len(self.taps) > before:
            raise Decline(f"block {equation.block.name_hint} reduces what no result has as it is.")
        return made, value

    def _load(self, load: TensorLoad) -> Any:
        known = self.sums.get(load.source)
        return load if known is None else self._tap(known, tuple(map(simplify, load.indices)))

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
            tap = Tap(equation.buffer, indices, factors, accumulator)
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
            rest = next((p for own, p in parts if equation.is_own(own)), None)
        if rest is None:
            raise Decline(f"block {name} is no sum of one term each; found {value}.")
        product = strip_casts(rest)
        if not isinstance(product, tirx.Mul):
            raise Decline(f"block {name} sums {rest}, which is no product of two factors.")
        factors = (expand(operand, self.definitions) for operand in (product.a, product.b))
        return tuple(settled(factor, table) for factor in factors)


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


def _is_zero(value: Any) -> bool:
    return isinstance(value, (tirx.IntImm, tirx.FloatImm)) and value.value == 0


def _holds(value: Any, taps: list[Tap]) -> bool:
    return bool(ir.uses(value) & {tap.accumulator for tap in taps})
