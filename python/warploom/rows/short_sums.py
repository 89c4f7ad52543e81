"""Sums of a few rows: each element of a result adds the elements above each other.

The results of a token's experts are summed with the weights that its router gives them; so are
those of all experts where there are few. Such a reduction is along no row, and short enough to be
written out, after which the function is an element-wise one.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import Var

from warploom.errors import Decline
from warploom.gemm.equations import Equation, loads, simplify
from warploom.gemm.memory import static
from warploom.gemm.widen import NARROW
from warploom.rows.reductions import COMBINE, NEUTRAL, operator_of
from warploom.tile import ir

#: The most elements that are written out: a thread loads a vector of each before it adds them.
_MOST = 16


def written_out(equation: Equation) -> Equation:
    """An equation without its reduction, if that is over a few rows; others as they are."""
    extents = [static(extent) for _, extent in equation.reduction]
    if not extents or None in extents or math.prod(extents) > _MOST:
        return equation
    try:
        combine, term = operator_of(equation)
    except Decline:
        return equation
    if not _is_of_rows(equation, term):
        return equation
    dtype = str(equation.buffer.dtype)
    wide = "float32" if dtype in NARROW else dtype
    start = simplify(equation.init)
    neutral = combine in NEUTRAL and _is_number(start, NEUTRAL[combine])
    total: Any = None if neutral else tirx.Cast(wide, start)
    for places in itertools.product(*map(range, extents)):
        table = {
            var: tirx.const(place, str(var.ty.dtype))
            for (var, _), place in zip(equation.reduction, places, strict=True)
        }
        value = ir.substitute(term, table)
        value = tirx.Cast(wide, value) if wide != dtype else value
        total = value if total is None else COMBINE[combine](total, value)
    value = tirx.Cast(dtype, total) if wide != dtype else total
    return Equation(equation.block, equation.buffer, equation.indices, value, equation.spatial)


def _is_of_rows(equation: Equation, term: Any) -> bool:
    """Whether the reduction adds whole rows, of which each result has its own.

    A matmul's rows are for many results, and rows that are reduced along themselves are others.
    """
    column = equation.indices[-1] if equation.indices else None
    long = {var for var, extent in equation.spatial if not ir.is_constant(extent, 1)}
    if not isinstance(column, Var) or column not in long:
        return False
    summed = {var for var, _ in equation.reduction}
    found = False
    for load in loads(term):
        used = set().union(*map(ir.uses, load.indices))
        if column not in used:
            continue  # a number for the row
        if summed & used:
            if not _has_own_rows(load, column, long, summed):
                return False
            found = True
    return found


def _has_own_rows(load: TensorLoad, column: Var, long: set[Var], summed: set[Var]) -> bool:
    plain = all(isinstance(index, Var) or not ir.uses(index) for index in load.indices)
    used = {index for index in load.indices if isinstance(index, Var)}
    return plain and load.indices[-1].same_as(column) and long <= used and bool(summed & used)


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, (tirx.IntImm, tirx.FloatImm)) and value.value == number
