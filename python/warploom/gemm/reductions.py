"""Sums and extrema along the rows of a product, which the tile that has them whole computes.

RMSNorm wants the sum of squares of each row, softmax its maximum. One CTA has a row's columns
together where its tile is as wide as what is reduced: all columns, or a part of them each, of which
another function reduces the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx import Buffer, Var

from warploom.errors import Decline
from warploom.gemm.equations import Equation, expand, loads, settled, simplify
from warploom.gemm.memory import static
from warploom.gemm.problem import Axis, RowReduction
from warploom.tile import ir

#: Operator of a block -> the kind of its reduction.
_KINDS = {tirx.Add: "sum", tirx.Max: "max", tirx.Min: "min"}
#: What leaves a reduction as it is.
NEUTRAL = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}
#: The most columns of a tile.
MOST_COLUMNS = 256


def split_reductions(
    equations: Mapping[Buffer, Equation], definitions: Mapping[Buffer, Equation]
) -> tuple[dict[Buffer, Equation], list[Equation]]:
    """Equations that reduce, apart by whether they read what others of them compute.

    Parameters
    ----------
    equations : mapping
        Those that reduce.
    definitions : mapping
        The others.

    Returns
    -------
    (dict, list)
        The first ones, and those that reduce results of theirs.
    """
    later = []
    for equation in equations.values():
        sources = {load.source for load in loads(expand(equation.value, definitions))}
        if (sources & equations.keys()) - {equation.buffer}:
            later.append(equation)
    after = {equation.buffer for equation in later}
    return {b: equation for b, equation in equations.items() if b not in after}, later


@dataclass(frozen=True)
class Reduced:
    """A reduction in terms of the axes of a product's result.

    Attributes
    ----------
    buffer : Buffer
    indices : tuple of Expr
        In terms of axes, and of ``part``.
    value : Expr
        What is reduced, with loads from buffers of sums.
    kind : str
    column : Var
        The axis that it is reduced along.
    part : Var
        Which part of the columns.
    width : int
        Columns of a part.
    """

    buffer: Buffer
    indices: tuple[Any, ...]
    value: Any
    kind: str
    column: Var
    part: Var
    width: int

    def finish(self, value: Any, indices: tuple[Any, ...], columns: Axis) -> RowReduction:
        """It with accumulators in the place of sums, and without axes of extent 1."""
        name = self.buffer.name
        if not self.column.same_as(columns.var):
            raise Decline(f"{name} reduces the product along its rows; only columns are reduced.")
        total = static(columns.extent)
        if total is None or total % self.width:
            raise Decline(f"{name} reduces {self.width} of {columns.extent} columns at a time.")
        if self.width > MOST_COLUMNS:
            raise Decline(
                f"{name} reduces {self.width} columns of the product, and a tile has at most "
                f"{MOST_COLUMNS}; reduce parts of as many at most, and then the parts."
            )
        return RowReduction(self.buffer, indices, value, self.kind, self.part, self.width)


def read_reduction(
    equation: Equation, definitions: Mapping[Buffer, Equation],
    places: Mapping[Buffer, tuple[Any, ...]],
) -> Reduced:  # fmt: skip
    """One equation that reduces a product's result.

    Parameters
    ----------
    equation : Equation
    definitions : mapping
        Equations that reduce nothing.
    places : mapping
        Where the first result reads sums, in terms of its axes.

    Raises
    ------
    Decline
        If it is no reduction of one axis that follows the columns of the result.
    """
    name = equation.block.name_hint
    if str(equation.buffer.dtype).startswith(("int", "uint")):
        raise Decline(f"block {name} reduces integers; only floats are reduced in a tile.")
    kind = _KINDS.get(type(equation.value))
    if kind is None or len(equation.reduction) != 1:
        raise Decline(f"block {name} is no sum, maximum or minimum of one axis of the product.")
    parts = [(equation.value.a, equation.value.b), (equation.value.b, equation.value.a)]
    term = next((term for own, term in parts if equation.is_own(own)), None)
    if term is None or not _is_neutral(equation.init, kind, str(equation.buffer.dtype)):
        raise Decline(f"block {name} starts its {kind} with {equation.init}.")
    ((column, width),) = equation.reduction
    expanded = expand(term, definitions)
    read = next((load for load in loads(expanded) if load.source in places), None)
    if read is None:
        raise Decline(f"block {name} reduces a sum that no result has as it is.")
    part = Var("part", "int32")
    table: dict[Var, Any] = {}
    along = None
    for index, axis in zip(read.indices, places[read.source], strict=True):
        index = simplify(index)
        if column in ir.uses(index):
            along = axis
            rest = simplify(index - column)
            table[column] = axis - rest
            own = [var for var, _ in equation.spatial if var in ir.uses(rest)]
            if not _is_part(rest, own, width):
                raise Decline(f"block {name} reduces columns {index}, which are no equal parts.")
            if own:
                table[column] = axis - part * width
                table[own[0]] = part
        elif isinstance(index, Var):
            table[index] = axis
    for var, extent in equation.spatial:
        if ir.is_constant(extent, 1):
            table.setdefault(var, 0 * var)
    if not isinstance(along, Var) or static(width) is None:
        raise Decline(f"block {name} does not reduce along one axis of known extent.")
    missing = [var.name for var, _ in equation.spatial if var not in table]
    if missing:
        raise Decline(f"block {name}: axis {missing[0]} is no axis of the product.")
    indices = tuple(settled(index, table) for index in equation.indices)
    value = settled(expanded, table)
    return Reduced(equation.buffer, indices, value, kind, along, part, int(width))


def _is_part(rest: Any, own: list[Var], width: Any) -> bool:
    """Whether what a column index adds to the reduced axis is the start of a part, or 0."""
    if not own:
        return ir.is_constant(rest, 0)
    return len(own) == 1 and ir.is_constant(simplify(rest - own[0] * width), 0)


def _is_neutral(value: Any, kind: str, dtype: str) -> bool:
    """Whether a reduction may start with a value."""
    if kind == "sum":
        return isinstance(value, (tirx.IntImm, tirx.FloatImm)) and value.value == 0
    lowest = tvm.tirx.min_value(dtype) if kind == "max" else tvm.tirx.max_value(dtype)
    infinite = getattr(value, "value", None) == (float("-inf") if kind == "max" else float("inf"))
    return infinite or tvm_ffi.structural_equal(value, lowest)
