"""Which axes of a result tell rows apart, and which lie along a row.

A row is what is reduced: a sum is read at indices of some axes, which tell rows apart. The other
axes are the columns. The channels of a group norm are both: group ``c // 8`` is one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Var

from warploom.errors import Decline
from warploom.gemm.equations import Equation, expand, loads, simplify
from warploom.gemm.problem import Axis
from warploom.rows.reductions import load_of
from warploom.tile import ir

Extents = Sequence[tuple[Var, Any]]


@dataclass(frozen=True)
class RowAxes:
    """The axes of a row function.

    Attributes
    ----------
    rows : tuple of Axis
        Those that tell rows apart, the outermost first.
    columns : Axis
        One axis for all elements of a row.
    extents : tuple of Expr
        Extents of the results that have whole rows; empty if none has.
    places : tuple of Expr
        The axes of such a result in terms of rows and columns.
    """

    rows: tuple[Axis, ...]
    columns: Axis
    extents: tuple[Any, ...] = ()
    places: tuple[Any, ...] = ()


def settle(value: Any, analyzer: Analyzer) -> Any:
    """A value whose loads have indices that are simplified each by itself.

    An index in a branch is not simplified by the condition of that branch: the load may be done
    before the condition is known.
    """

    def load(node: TensorLoad) -> Any:
        return node.source[tuple(settle_index(index, analyzer) for index in node.indices)]

    return ir.map_nodes(value, {TensorLoad: load}, {})


def settle_index(value: Any, analyzer: Analyzer) -> Any:
    """An index, simplified by the ranges of its variables, divisions by dynamic sizes as well."""

    def division(node: Any) -> Any:
        inside = analyzer.can_prove(node.a >= 0) and analyzer.can_prove(node.a < node.b)
        if not inside:
            return node
        return node.a if isinstance(node, tirx.FloorMod) else tirx.const(0, str(node.ty.dtype))

    value = analyzer.simplify(value)
    return analyzer.simplify(
        ir.map_nodes(value, {tirx.FloorMod: division, tirx.FloorDiv: division}, {})
    )


def analyzer_of(axes: Extents) -> Analyzer:
    """An analyzer that knows the ranges of axes."""
    analyzer = Analyzer()
    for var, extent in axes:
        analyzer.bind(var, ir.whole_range(extent))
    return analyzer


def count_of(extents: Sequence[Any]) -> Any:
    """Product of extents."""
    return simplify(reduce(lambda x, y: x * y, extents, tirx.const(1, "int32")))


def unrolled(flat: Any, extents: Sequence[Any]) -> list[Any]:
    """The indices of the element with a number, the last dimension the fastest."""
    places: list[Any] = []
    long = [extent for extent in extents if not ir.is_constant(extent, 1)]
    outermost = long[0] if long else None
    for extent in reversed(extents):
        if ir.is_constant(extent, 1):
            places.append(tirx.const(0, "int32"))
            continue
        places.append(flat if extent is outermost else T.floormod(flat, extent))
        flat = T.floordiv(flat, extent)
    return places[::-1]


def axes_of(
    results: Sequence[Equation], maps: Mapping[Buffer, Equation], sums: Mapping[Buffer, Equation]
) -> RowAxes:
    """The axes of a function with those results.

    Parameters
    ----------
    results : sequence of Equation
        What it stores.
    maps, sums : mapping
        Definitions of all buffers without and with a reduction.

    Raises
    ------
    Decline
        If the results are no rows, or reductions reach over rows of several lengths.
    """
    reads = {id(result): _sums_read(result, maps, sums) for result in results}
    used = _reached([load for found in reads.values() for load in found], maps, sums)
    if not used:
        return _last_axis(results[0])
    lengths = [count_of([extent for _, extent in one.reduction]) for one in used]
    for equation, length in zip(used, lengths, strict=True):
        if not tvm_ffi.structural_equal(length, lengths[0]):
            raise Decline(
                f"block {equation.block.name_hint} sums over {length} elements and block "
                f"{used[0].block.name_hint} over {lengths[0]}; rows have one length."
            )
    faults = []
    for result in results:
        found = reads[id(result)]
        if not found or result.reduction:
            continue
        try:
            axes = _around(result, found)
        except Decline as fault:
            faults.append(fault)
            continue
        if not axes.extents:
            continue  # one number a row
        if tvm_ffi.structural_equal(simplify(axes.columns.extent - lengths[0]), _zero()):
            return axes
        faults.append(
            Decline(
                f"block {used[0].block.name_hint} sums over {lengths[0]} elements; rows of "
                f"{result.buffer.name} have {axes.columns.extent} elements."
            )
        )
    for fault in faults:
        raise fault
    result = next(one for one in results if reads[id(one)])
    rows = tuple(Axis(*axis) for axis in result.spatial)
    return RowAxes(rows, Axis(Var("column", "int32"), lengths[0]))


def _zero() -> Any:
    return tirx.const(0, "int32")


def _last_axis(first: Equation) -> RowAxes:
    """The axes of an element-wise function: its rows lie in memory one element after the other."""
    name = first.buffer.name
    if not first.indices:
        raise Decline(f"{name} is a single number; rows have elements side by side.")
    last = next((axis for axis in first.spatial if axis[0].same_as(first.indices[-1])), None)
    if last is None:
        raise Decline(
            f"the last dimension of {name} is indexed by {first.indices[-1]}; rows are stored "
            "element after element."
        )
    rows = tuple(Axis(*axis) for axis in first.spatial if axis is not last)
    return RowAxes(
        rows, Axis(*last), tuple(extent for _, extent in first.spatial),
        tuple(var for var, _ in first.spatial),
    )  # fmt: skip


def _sums_read(
    result: Equation, maps: Mapping[Buffer, Equation], sums: Mapping[Buffer, Equation]
) -> list[TensorLoad]:
    """The sums that a result reads, at indices of its axes."""
    if result.reduction:
        return [load_of(result)]
    value = settle(expand(result.value, maps), analyzer_of(result.spatial))
    return [load for load in loads(value) if load.source in sums]


def _reached(
    found: Sequence[TensorLoad], maps: Mapping[Buffer, Equation], sums: Mapping[Buffer, Equation]
) -> list[Equation]:
    """Those reductions, and all that their terms read."""
    reached: list[Equation] = []
    open_ = [load.source for load in found]
    while open_:
        equation = sums[open_.pop()]
        if any(equation is known for known in reached):
            continue
        reached.append(equation)
        open_ += [
            load.source for load in loads(expand(equation.value, maps))
            if load.source in sums and not load.source.same_as(equation.buffer)
        ]  # fmt: skip
    return reached


def _around(result: Equation, found: Sequence[TensorLoad]) -> RowAxes:
    """The axes of a result, by the indices at which it reads sums."""
    groups = _groups(result, found)
    used = {var for load in found for index in load.indices for var in ir.uses(index)}
    rows: list[Axis] = []
    columns: list[Axis] = []
    places: list[Any] = []
    for var, extent in result.spatial:
        if var in groups:
            size = groups[var]
            outer, inner = Var(f"{var.name}_group", "int32"), Var(var.name, "int32")
            rows.append(Axis(outer, simplify(T.floordiv(extent, size))))
            columns.append(Axis(inner, tirx.const(size, "int32")))
            places.append(outer * size + inner)
        else:
            (rows if var in used or ir.is_constant(extent, 1) else columns).append(
                Axis(var, extent)
            )
            places.append(var)
    if not columns:
        return RowAxes(tuple(rows), Axis(Var("column", "int32"), tirx.const(1, "int32")))
    extents = tuple(extent for _, extent in result.spatial)
    if len(columns) == 1:
        return RowAxes(tuple(rows), columns[0], extents, tuple(places))
    flat = Axis(Var("column", "int32"), count_of([axis.extent for axis in columns]))
    table = dict(
        zip(
            (axis.var for axis in columns),
            unrolled(flat.var, [axis.extent for axis in columns]),
            strict=True,
        )
    )
    return RowAxes(
        tuple(rows), flat, extents, tuple(ir.substitute(place, table) for place in places)
    )


def _groups(result: Equation, found: Sequence[TensorLoad]) -> dict[Var, int]:
    """Axes of which neighbours share a row, and how many."""
    extents = dict(result.spatial)
    groups: dict[Var, int] = {}
    others: set[Var] = set()
    for load in found:
        for index in load.indices:
            group = (
                isinstance(index, tirx.FloorDiv)
                and isinstance(index.a, Var)
                and isinstance(index.b, tirx.IntImm)
                and index.a in extents
                and isinstance(extents[index.a], tirx.IntImm)
                and int(extents[index.a]) % int(index.b) == 0
            )
            if group and groups.get(index.a, int(index.b)) == int(index.b):
                groups[index.a] = int(index.b)
            else:
                others |= ir.uses(index)
    twice = others & groups.keys()
    if twice:
        raise Decline(
            f"{result.buffer.name} reads its sums at {twice.pop().name} and at parts of it; rows "
            "are the same for all sums."
        )
    return groups
