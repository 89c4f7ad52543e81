"""Neighbouring rows that a thread computes together: their windows overlap."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx
from tvm.tirx import Var

from warploom.gemm.memory import static
from warploom.gemm.problem import Axis
from warploom.rows.axes import analyzer_of, settle, settle_index
from warploom.rows.problem import RowFunction, RowOutput
from warploom.tile import ir


def of_points(function: RowFunction, points: int) -> RowFunction:
    """The function with its last axis of rows cut into groups of so many neighbours.

    Values are those of the neighbour whose number is :attr:`RowFunction.point`.
    """
    axis = last_axis(function)
    if points == 1 or axis is None:
        return function
    size = tirx.const(points, "int32")
    outer = Axis(Var(axis.var.name, "int32"), tirx.const(static(axis.extent) // points, "int32"))
    point = Axis(Var(f"{axis.var.name}_point", "int32"), size)
    rows = tuple(outer if one is axis else one for one in function.rows)
    made = replace(function, rows=rows, point=point)
    table = {axis.var: outer.var * size + point.var}
    analyzer = analyzer_of(made.axes)

    def settled(value: object) -> object:
        return settle(ir.substitute(value, table), analyzer)

    def output(one: RowOutput) -> RowOutput:
        indices = tuple(settle_index(ir.substitute(each, table), analyzer) for each in one.indices)
        guard = None if one.guard is None else ir.substitute(one.guard, table)
        return RowOutput(one.buffer, indices, settled(one.value), guard)

    windows = tuple(replace(one, term=settled(one.term)) for one in function.windows)
    return replace(
        made, windows=windows, outputs=tuple(map(output, function.outputs)),
        numbers=tuple(map(output, function.numbers)),
    )  # fmt: skip


def last_axis(function: RowFunction) -> Axis | None:
    """The innermost axis of rows that has several."""
    long = [axis for axis in function.rows if not ir.is_constant(axis.extent, 1)]
    return long[-1] if long else None
