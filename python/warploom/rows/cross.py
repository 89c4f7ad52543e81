"""Finds the two axes of a function that reads along one and stores along the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Var

from warploom.errors import Decline
from warploom.gemm.equations import loads, simplify
from warploom.gemm.memory import static
from warploom.gemm.problem import Axis
from warploom.rows.axes import analyzer_of
from warploom.rows.crossing import Crossing, Place
from warploom.rows.guards import Guards
from warploom.rows.plan import VECTOR_BITS, RowPlan
from warploom.rows.problem import RowFunction
from warploom.rows.vectors import offset
from warploom.target.dtypes import bits_of
from warploom.tile import ir

#: Bits of registers of a thread that the elements it reads across may take.
_REGISTER_BITS = 64 * 32
#: Threads that a GPU should have: some warps for each SM. Smaller squares are better than fewer.
_MANY = 1 << 15


def crossed(function: RowFunction) -> tuple[RowFunction, RowPlan]:
    """The function with its crossing, and the plan of its kernel.

    Raises
    ------
    Decline
        If its operands do not lie along two axes, or some are read under a condition.
    """
    crossing = _Reader(function).crossing()
    vector, across = _square(crossing)
    plan = RowPlan(vector, static(crossing.columns.extent), points=across, across=True)
    return replace(function, crossing=crossing), plan


@dataclass
class _Reader:
    """Reads the axes of a function; neighbours that all operands have as one axis become one."""

    function: RowFunction

    def __post_init__(self) -> None:
        function = self.function
        if function.reductions or function.windows or function.numbers:
            raise Decline("rows that are reduced lie along all their operands.")
        if any(output.guard is not None for output in function.outputs):
            raise Decline("rows that are stored in part lie along all their operands.")
        axes, self.parts = _split(function)
        self.analyzer = analyzer_of([(axis.var, axis.extent) for axis in axes])
        self.guards = Guards(function, 1)
        self.zero = {axis.var: tirx.const(0, "int32") for axis in axes}
        stored = [output.buffer[output.indices] for output in function.outputs]
        self.stored = [self._place(one, axes) for one in stored]
        self.loaded = [self._place(one, axes) for one in function.loads if self._moves(one)]
        self.axes = _sorted(axes, self.stored[0])

    def crossing(self) -> Crossing:
        """The crossing."""
        axes, table = self._merged()
        stored = [_renamed(one, axes) for one in self.stored]
        loaded = [_renamed(one, axes) for one in self.loaded]
        axes = [axis for axis, _ in axes]
        if not axes or not all(_is_one(one.strides[axes[-1].var]) for one in stored):
            raise Decline("results do not lie along the last axis.")
        columns, others = axes[-1], axes[:-1]
        along = [one for one in loaded if _is_one(one.strides[columns.var])]
        rest = [one for one in loaded if _moves_along(one, columns) and one not in along]
        across = next(
            (axis for axis in others if all(_is_one(one.strides[axis.var]) for one in rest)), None
        )
        if across is None or not rest:
            load = (rest or loaded or stored)[0].load
            raise Decline(
                f"{load.source.name} is read at {list(load.indices)}, where the neighbours of a "
                "row, or of a column, are no vector in memory."
            )
        outer = tuple(axis for axis in others if axis is not across)
        table = {var: ir.substitute(value, table) for var, value in self.parts.items()}
        return Crossing(
            outer, across, columns, table,
            tuple(self._guarded(one, table, across) for one in rest),
            tuple(self._guarded(one, table, columns) for one in along), tuple(stored),
        )  # fmt: skip

    def _guarded(self, place: Place, table: Mapping[Var, Any], axis: Axis) -> Place:
        """An operand with its condition, which is to be the same along an axis."""
        condition = self.guards.of(place.load)
        if condition is None:
            return place
        guard = None if condition is False else ir.substitute(condition, dict(table))
        if guard is None or axis.var in ir.uses(guard):
            raise Decline(
                f"{place.load.source.name} is read under a condition that changes between elements "
                "which are read together."
            )
        return replace(place, guard=guard)

    def _moves(self, load: TensorLoad) -> bool:
        used = {var for index in load.indices for var in ir.uses(index)}
        return any(var in used for var in self.parts)

    def _place(self, load: TensorLoad, axes: Sequence[Axis]) -> Place:
        name = load.source.name
        if not ir.is_constant(load.source.elem_offset, 0):
            raise Decline(f"{name} is a view of memory, where vectors may not begin.")
        if any(loads(index) for index in load.indices):
            raise Decline(f"other loads say where {name} is read.")
        place = self.analyzer.simplify(offset(load, self.parts))
        start = self.analyzer.simplify(ir.substitute(place, self.zero))
        strides, linear = {}, start
        for axis in axes:
            moved = ir.substitute(place, {**self.zero, axis.var: tirx.const(1, "int32")})
            strides[axis.var] = self.analyzer.simplify(moved - start)
            linear = linear + strides[axis.var] * axis.var
        if not ir.is_constant(self.analyzer.simplify(place - linear), 0):
            raise Decline(f"{name} is read at {list(load.indices)}, which no strides describe.")
        return Place(load, start, strides)

    def _merged(self) -> tuple[list[tuple[Axis, Axis]], dict[Var, Any]]:
        """Axes, each with the old one whose strides it has, and the old ones in their terms."""
        merged: list[tuple[Axis, Axis]] = []
        table: dict[Var, Any] = {}
        for axis in self.axes:
            if merged and self._are_one(merged[-1][1], axis):
                before = merged[-1][0]
                size = self.analyzer.simplify(before.extent * axis.extent)
                both = Axis(Var(f"{before.var.name}_{axis.var.name}", "int32"), size)
                outer = {before.var: T.floordiv(both.var, axis.extent)}
                table = {var: ir.substitute(value, outer) for var, value in table.items()}
                table[axis.var] = T.floormod(both.var, axis.extent)
                merged[-1] = both, axis
                continue
            own = Axis(Var(axis.var.name, "int32"), axis.extent)
            table[axis.var] = own.var
            merged.append((own, axis))
        return merged, table

    def _are_one(self, outer: Axis, inner: Axis) -> bool:
        """Whether all operands have elements of two axes as if they were of one."""
        return all(
            ir.is_constant(
                self.analyzer.simplify(
                    one.strides[outer.var] - one.strides[inner.var] * inner.extent
                ),
                0,
            )
            for one in (*self.stored, *self.loaded)
        )


def _split(function: RowFunction) -> tuple[list[Axis], dict[Var, Any]]:
    """Axes of a function, cut where operands divide them, and its own ones in their terms."""
    sizes = _divisors(function)
    axes: list[Axis] = []
    parts: dict[Var, Any] = {}
    for axis in (*function.rows, function.columns):
        if _is_single(axis):
            parts[axis.var] = tirx.const(0, "int32")
            continue
        rest, parts[axis.var] = axis.extent, tirx.const(0, "int32")
        for size in sizes.get(axis.var, []):
            outer = Axis(Var(f"{axis.var.name}_{size}", "int32"), simplify(T.floordiv(rest, size)))
            axes.append(outer)
            parts[axis.var] = parts[axis.var] + outer.var * size
            rest = tirx.const(size, "int32")
        axes.append(Axis(Var(axis.var.name, "int32"), rest))
        parts[axis.var] = parts[axis.var] + axes[-1].var
    return axes, parts


def _divisors(function: RowFunction) -> dict[Var, list[int]]:
    """By axes of known extents: what indices of loads divide them by, the largest first."""
    extents = {var: static(extent) for var, extent in function.axes}
    found: dict[Var, set[int]] = {}

    def visit(node: Any) -> Any:
        size = static(node.b)
        extent = extents.get(node.a) if isinstance(node.a, Var) else None
        if size and extent and 1 < size < extent and extent % size == 0:
            found.setdefault(node.a, set()).add(size)
        return node

    for load in function.loads:
        for index in load.indices:
            ir.map_nodes(index, {tirx.FloorDiv: visit, tirx.FloorMod: visit}, {})
    ordered = {var: sorted(sizes, reverse=True) for var, sizes in found.items()}
    return {
        var: sizes for var, sizes in ordered.items()
        if all(large % small == 0 for large, small in pairwise(sizes))
    }  # fmt: skip


def _renamed(place: Place, axes: Sequence[tuple[Axis, Axis]]) -> Place:
    """A place in terms of merged axes."""
    return replace(place, strides={new.var: place.strides[old.var] for new, old in axes})


def _sorted(axes: Sequence[Axis], place: Place) -> list[Axis]:
    """Axes as a result has them, the one whose elements are neighbours last."""
    last = [axis for axis in axes if _is_one(place.strides[axis.var])]
    return [*(axis for axis in axes if axis not in last), *last]


def _square(crossing: Crossing) -> tuple[int, int]:
    """Elements that a thread stores together, and that it reads together."""
    vector = _width(crossing.columns, [*crossing.along, *crossing.stored])
    across = _width(crossing.across, crossing.crossed)
    bits = sum(bits_of(str(one.load.source.dtype)) for one in crossing.crossed)
    extents = [static(axis.extent) or 1 for axis in (*crossing.outer, crossing.across)]
    elements = static(crossing.columns.extent) or 1
    for extent in extents:
        elements *= extent
    while across > 2 and (
        vector * across * bits > _REGISTER_BITS or elements < _MANY * vector * across
    ):
        across //= 2
    return vector, across


def _width(axis: Axis, places: Sequence[Place]) -> int:
    """Neighbours along an axis that one load or store has, in all of some operands."""
    smallest = min(bits_of(str(one.load.source.dtype)) for one in places)
    width = VECTOR_BITS // max(min(smallest, 32), 8)
    extent = static(axis.extent)
    while width > 1 and (extent is None or extent % width or not _all_divide(width, axis, places)):
        width //= 2
    return width


def _all_divide(width: int, axis: Axis, places: Sequence[Place]) -> bool:
    others = (
        value
        for one in places
        for value in (one.start, *(s for var, s in one.strides.items() if var is not axis.var))
    )
    return all(static(value) is not None and static(value) % width == 0 for value in others)


def _is_single(axis: Axis) -> bool:
    return ir.is_constant(axis.extent, 1)


def _is_one(stride: Any) -> bool:
    return ir.is_constant(stride, 1)


def _moves_along(place: Place, axis: Axis) -> bool:
    return not ir.is_constant(place.strides[axis.var], 0)
