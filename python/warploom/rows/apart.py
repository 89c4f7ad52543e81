"""Which reductions are those of rows: each row has elements of its own, long enough for vectors.

A matmul is a sum for each element of its result, too, and so is a convolution. They read an element
for many sums, which is what tiles are for. Where a tensor says which matrix each row is multiplied
by, as routers of experts do, the elements of a matrix are read for that row alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Var

from warploom.errors import Decline
from warploom.gemm.equations import loads, strip_casts
from warploom.gemm.memory import static
from warploom.gemm.problem import Axis
from warploom.rows.axes import analyzer_of
from warploom.rows.problem import RowFunction
from warploom.rows.reductions import Reduction
from warploom.rows.vectors import moves
from warploom.tile import ir

#: For how many sums a row of a matrix that is looked up may be read, from the L2 cache but once.
_MOST_READS = 4


def multiplies_gathered(function: RowFunction) -> bool:
    """Whether it only multiplies rows with matrices that a tensor names for each."""
    terms = [strip_casts(reduction.term) for reduction in function.reductions]
    column = function.columns.var
    return bool(terms) and not function.outputs and all(
        isinstance(term, tirx.Mul) and any(_is_gathered(load, column) for load in loads(term))
        for term in terms
    )


def _is_gathered(load: TensorLoad, column: Var) -> bool:
    """Whether a load along the row is from a place that another load says."""
    return moves(load, column) and any(loads(index) for index in load.indices)


def check_apart(function: RowFunction) -> None:
    """Refuse a function whose reductions share elements.

    Raises
    ------
    Decline
        If one multiplies elements of several rows, or windows of rows overlap.
    """
    axes = [(axis.var, axis.extent) for axis in (*function.rows, function.columns)]
    analyzer = analyzer_of(axes)
    rows = {axis.var for axis in function.rows if not ir.is_constant(axis.extent, 1)}
    column = function.columns.var
    for reduction in function.reductions:
        _check_factors(reduction, function.rows, column)
        for load in loads(reduction.term):
            for index in load.indices:
                if column in ir.uses(index) and rows & ir.uses(index):
                    _check_window(load, index, rows, column, analyzer)


def _check_factors(reduction: Reduction, axes: Sequence[Axis], column: Var) -> None:
    """A sum of products of elements of different rows is a matmul."""
    term = strip_casts(reduction.term)
    if reduction.combine != "sum" or not isinstance(term, tirx.Mul):
        return
    rows = {axis.var for axis in axes if not ir.is_constant(axis.extent, 1)}
    along = [[load for load in loads(side) if moves(load, column)] for side in (term.a, term.b)]
    first, second = ({frozenset(ir.uses(load) & rows) for load in found} for found in along)
    if not first or not second or first == second:
        return
    for load in (load for found in along for load in found if _is_gathered(load, column)):
        others = [static(axis.extent) for axis in axes if axis.var not in ir.uses(load)]
        if None not in others and math.prod(others) <= _MOST_READS:
            return
    raise Decline(
        f"{reduction.result.name} sums products of elements of different rows; matmuls are "
        "left to rules for those."
    )


def _check_window(
    load: TensorLoad, index: Any, rows: set[Var], column: Var, analyzer: Analyzer
) -> None:
    """An index made of a row and a place in it: rows may not overlap."""
    zero = tirx.const(0, "int32")
    place = analyzer.simplify(ir.substitute(index, dict.fromkeys(rows, zero)))
    row = analyzer.simplify(index - place)
    size = int(analyzer.const_int_bound(place).max_value) + 1
    if column in ir.uses(row) or not analyzer.can_prove(T.floormod(row, size) == 0):
        raise Decline(
            f"{load.source.name} is read at {index}, where windows overlap; each row must have "
            "elements of its own."
        )
