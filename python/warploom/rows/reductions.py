"""What a row is reduced to: sums, extrema, and where an extremum is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, Var

from warploom.errors import Decline
from warploom.gemm.equations import Equation, loads, strip_casts

#: The operator of a reduction, by the operation between the old value and the new term.
OPERATORS = {tirx.Add: "sum", tirx.Mul: "product", tirx.Max: "max", tirx.Min: "min"}
#: Numbers by kind of reduction, combined.
COMBINE = {
    "sum": lambda x, y: x + y, "product": lambda x, y: x * y, "max": T.max, "min": T.min,
}  # fmt: skip
#: What a thread starts with where that is not the start of the reduction, which counts once.
NEUTRAL = {"sum": 0, "product": 1}
#: The comparison that keeps the old extremum.
_KEEPS = {"max": tirx.GT, "min": tirx.LT}


@dataclass(frozen=True)
class Place:
    """Where in a row its extremum is.

    Attributes
    ----------
    result : Var
        The variable for it.
    start : Expr
        Its initial value.
    index : Expr
        The number of an element, in terms of the columns.
    last : bool
        Whether the largest number counts among equal elements, else the smallest.
    """

    result: Var
    start: Any
    index: Any
    last: bool


@dataclass(frozen=True)
class Reduction:
    """``result = combine(term over the columns)``, one for each row.

    Attributes
    ----------
    result : Var
        The variable for it in terms that follow and in results.
    combine : str
        ``"sum"``, ``"product"``, ``"max"`` or ``"min"``.
    start : Expr
        Its initial value.
    term : Expr
        In terms of axes and earlier reductions.
    place : Place, optional
        Where the extremum is, if that is wanted.
    """

    result: Var
    combine: str
    start: Any
    term: Any
    place: Place | None = None


def operator_of(equation: Equation) -> tuple[str, Any]:
    """The operator of a reduction, and the term that it takes in.

    Raises
    ------
    Decline
        If it has none of the operators here.
    """
    value = strip_casts(equation.value)
    if isinstance(value, tuple(OPERATORS)):
        for own, term in ((value.a, value.b), (value.b, value.a)):
            if equation.is_own(own):
                return OPERATORS[type(value)], term
    for combine, keeps in _KEEPS.items():
        if isinstance(value, tirx.Select) and isinstance(value.condition, keeps):
            own, term = value.condition.a, value.condition.b
            branches = value.true_value, value.false_value
            if equation.is_own(own) and _equal(branches, (own, term)):
                return combine, term
    raise Decline(
        f"block {equation.block.name_hint} combines {equation.buffer.name} with its terms by none "
        f"of {', '.join(NEUTRAL | _KEEPS)}."
    )


def partner_of(equation: Equation, sums: Mapping[Buffer, Equation]) -> Equation | None:
    """The reduction of the same block that one reads while both go on; None if it reads none."""
    for load in loads(equation.value):
        known = sums.get(load.source)
        if known is not None and known is not equation and known.block.same_as(equation.block):
            return known
    return None


def place_in(equation: Equation, extremum: Equation) -> tuple[Any, bool]:
    """The number of an element as ``argmax`` and ``argmin`` of TVM have it, and which counts.

    Raises
    ------
    Decline
        If the reduction is neither.
    """
    value = strip_casts(equation.value)
    combine, term = operator_of(extremum)
    if isinstance(value, tirx.Select) and combine in _KEEPS:
        own, index = strip_casts(value.true_value), strip_casts(value.false_value)
        old = extremum.buffer[extremum.indices]
        for order, last in ((tirx.LT, False), (tirx.GT, True)):
            same = tirx.And(tirx.EQ(old, term), order(own, index))
            wanted = tirx.Or(_KEEPS[combine](old, term), same)
            if equation.is_own(own) and tvm_ffi.structural_equal(value.condition, wanted):
                return index, last
    raise Decline(
        f"block {equation.block.name_hint} reduces several numbers that depend on each other, and "
        "is neither argmax nor argmin."
    )


def _equal(mine: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return all(map(tvm_ffi.structural_equal, mine, others))


def load_of(equation: Equation) -> TensorLoad:
    """The element that a reduction defines, as a result of the function reads it."""
    return equation.buffer[equation.indices]


def as_float32(term: Any) -> Any:
    """A 16-bit term as a float32; products with matrices that are looked up as those of a GEMM."""
    looked_up = any(loads(index) for load in loads(term) for index in load.indices)
    return of_products(term) if looked_up else tirx.Cast("float32", term)


def of_products(term: Any) -> Any:
    """A 16-bit term as a float32; a product is not rounded."""
    if isinstance(term, tirx.Mul):
        return tirx.Mul(*(tirx.Cast("float32", side) for side in (term.a, term.b)))
    return tirx.Cast("float32", term)
