"""Sums over windows: depthwise convolutions, pooling, means of pictures.

Each element of a result adds, or compares, elements above each other of several rows, which other
elements read, too: those of the pixels around it. Such a reduction is along no row. A thread takes
a vector of channels of a few neighbouring pixels, goes over the window, and reads what the pixels
share once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.tirx import Buffer, Var

from warploom.errors import Decline
from warploom.gemm.equations import Equation, loads, simplify
from warploom.gemm.memory import static
from warploom.gemm.problem import Axis
from warploom.rows.reductions import load_of, operator_of
from warploom.tile import ir

#: The most elements of a window: a thread goes over all of them.
MOST_STEPS = 256


@dataclass(frozen=True)
class Window:
    """``result = combine(term over the window)``, one for each element.

    Attributes
    ----------
    result : Var
        The variable for it in results.
    combine : str
        ``"sum"``, ``"product"``, ``"max"`` or ``"min"``.
    start : Expr
        Its initial value.
    term : Expr
        In terms of the axes of the function and of the window.
    axes : tuple of Axis
        Of the window, the outermost first.
    """

    result: Var
    combine: str
    start: Any
    term: Any
    axes: tuple[Axis, ...]


def is_window(equation: Equation) -> bool:
    """Whether an equation reduces elements above each other, of rows that its results have.

    A matmul's rows are for many results that lie beside each other. Rows that are reduced along
    themselves are others.
    """
    extents = [static(extent) for _, extent in equation.reduction]
    if not extents or None in extents or math.prod(extents) > MOST_STEPS:
        return False
    try:
        _, term = operator_of(equation)
    except Decline:
        return False
    column = equation.indices[-1] if equation.indices else None
    long = {var for var, extent in equation.spatial if not ir.is_constant(extent, 1)}
    if not isinstance(column, Var) or column not in long:
        return False
    inner = {var for var, _ in equation.reduction}
    found = False
    for load in loads(term):
        used = set().union(*map(ir.uses, load.indices))
        if used & inner and column not in used:
            return False  # one row of a matmul: all columns multiply the same elements
        found |= bool(used & inner) and long <= used and load.indices[-1].same_as(column)
    return found


def _without_single_steps(equation: Equation) -> Equation:
    """An equation without axes of one element that it reduces, such as the channels of a group."""
    table = {
        var: tirx.const(0, str(var.ty.dtype))
        for var, extent in equation.reduction
        if ir.is_constant(extent, 1)
    }
    if not table or len(table) == len(equation.reduction):
        return equation
    value = simplify(ir.substitute(equation.value, table))
    reduction = tuple(axis for axis in equation.reduction if axis[0] not in table)
    return replace(equation, value=value, reduction=reduction)


def apart(equations: list[Equation], params: set[Any]) -> tuple[
    list[Equation], dict[Buffer, Equation]
]:  # fmt: skip
    """The equations without those of windows, and those of windows by what they define.

    A result that is one reads a buffer in its place.
    """
    kept: list[Equation] = []
    windows: dict[Buffer, Equation] = {}
    for equation in equations:
        one = _without_single_steps(equation)
        if not is_window(one):
            kept.append(equation)
        elif one.buffer in params:
            shape, dtype = list(one.buffer.shape), str(one.buffer.dtype)
            place = tirx.decl_buffer(shape, dtype, f"{one.buffer.name}_window")
            windows[place] = one
            value = place[tuple(load_of(one).indices)]
            kept.append(Equation(one.block, one.buffer, one.indices, value, one.spatial))
        else:
            windows[one.buffer] = one
    return kept, windows
