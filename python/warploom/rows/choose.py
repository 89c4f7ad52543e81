"""Which plan the kernel of a row function has."""

from __future__ import annotations

from warploom.errors import Decline
from warploom.gemm.memory import static
from warploom.rows.apart import check_apart, multiplies_gathered
from warploom.rows.cross import crossed
from warploom.rows.flat import flattened
from warploom.rows.plan import ROWS_BESIDE, VECTOR_BITS, RowPlan
from warploom.rows.points import of_points
from warploom.rows.problem import RowFunction
from warploom.rows.vectors import moves, reads_across, widest
from warploom.rows.window_plan import window_plan
from warploom.target.dtypes import bits_of

#: Bits of registers of a thread that loaded elements may take.
_REGISTER_BITS = 64 * 32


def plan_of(function: RowFunction) -> RowPlan:
    """The plan for a function as :func:`arranged` has it."""
    return arranged(function)[1]


def arranged(function: RowFunction) -> tuple[RowFunction, RowPlan]:
    """The function with rows as its kernel has them, and the plan for them.

    Raises
    ------
    Decline
        If it reads elements that do not lie beside each other.
    """
    columns = static(function.columns.extent)
    if function.windows:
        plan = window_plan(function)
        return of_points(function, plan.points), plan
    if function.reductions:
        check_apart(function)
        vector = widest(function)
        if multiplies_gathered(function):
            return function, RowPlan.of_products(columns, vector)
        wide = VECTOR_BITS // (vector * _smallest(function))
        return function, RowPlan.of(columns, vector, _per_thread(function, vector), wide)
    try:
        vector, fault = widest(function), None
    except Decline as reason:
        vector, fault = 0, reason
    best = VECTOR_BITS // _smallest(function)
    if vector == best:
        beside = ROWS_BESIDE if reads_across(function, vector) else 1
        return function, RowPlan.of_map(columns, vector, beside)
    try:
        flat = flattened(function)
        return flat, RowPlan.of_map(static(flat.columns.extent), best)
    except Decline:
        pass
    try:
        return crossed(function)
    except Decline as reason:
        if fault is not None:
            raise Decline(f"{fault} Across rows: {reason}") from None
    return function, RowPlan.of_map(columns, vector)


def _smallest(function: RowFunction) -> int:
    """Bits of the smallest elements along a row, at most those of a number."""
    return min([*_loaded(function), *_stored(function), 32])


def _loaded(function: RowFunction) -> list[int]:
    column = function.columns.var
    return [
        bits_of(str(load.source.dtype)) for load in function.loads if moves(load, column)
    ]


def _stored(function: RowFunction) -> list[int]:
    return [bits_of(str(output.buffer.dtype)) for output in function.outputs]


def _per_thread(function: RowFunction, vector: int) -> int:
    """Vectors of a row that a thread has registers for."""
    each = vector * (sum(_loaded(function)) + max(_stored(function), default=0))
    return max(1, _REGISTER_BITS // max(each, 1))


