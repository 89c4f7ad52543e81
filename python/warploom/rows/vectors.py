"""Which elements of its row a thread loads ahead, in vectors.

All that lie beside each other in memory, and begin where a vector may. Elements that are only read
under a condition are not: they may lie outside of their buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Var

from warploom.errors import Decline
from warploom.gemm.equations import loads
from warploom.rows.plan import VECTOR_BITS, RowPlan
from warploom.rows.problem import RowFunction
from warploom.target.dtypes import bits_of
from warploom.tile import ir

#: The operator that evaluates one of its arguments only.
_CHOICE = "prim.if_then_else"


@dataclass(frozen=True)
class Vector:
    """A load of neighbouring elements.

    Attributes
    ----------
    load : TensorLoad
        The load of one of them, as the function has it.
    start : Expr
        The place of the first one in its buffer.
    registers : Buffer
        The buffer that holds them.
    """

    load: TensorLoad
    start: Any
    registers: Buffer


def vectors_of(function: RowFunction, plan: RowPlan, vector: Var) -> Iterator[Vector]:
    """The loads of a function that are done in vectors.

    Parameters
    ----------
    function : RowFunction
    plan : RowPlan
    vector : Var
        Which vector of the row it is, in terms of which starts are.

    Raises
    ------
    Decline
        If neighbours in a row are no vector in memory.
    """
    column, sometimes = function.columns.var, _loaded_sometimes(function)
    analyzer = Analyzer()
    for axis in function.rows:
        analyzer.bind(axis.var, ir.whole_range(axis.extent))
    analyzer.bind(vector, ir.whole_range(plan.vectors))
    for load in function.loads:
        if not any(column in ir.uses(index) for index in load.indices):
            continue
        lane = Var("lane", "int32")
        analyzer.bind(lane, ir.whole_range(plan.vector))
        first = vector * plan.vector
        start = analyzer.simplify(offset(load, {column: first}))
        moved = offset(load, {column: first + lane}) - start
        moved = analyzer.simplify(_apart(moved, lane, plan.vector, analyzer))
        if lane not in ir.uses(moved):
            continue
        if any(tvm_ffi.structural_equal(load, known) for known in sometimes):
            continue
        bits = bits_of(str(load.source.dtype))
        width = min(plan.vector * bits, VECTOR_BITS) // bits
        follows = ir.is_constant(analyzer.simplify(moved - lane), 0)
        if not follows or not _divides(width, start, analyzer):
            raise Decline(
                f"{load.source.name} is read at {list(load.indices)}, where {plan.vector} "
                "neighbours of a row are no vector in memory."
            )
        yield Vector(load, start, registers_for(load.source.name, str(load.source.dtype), plan))


def offset(load: TensorLoad, table: dict[Var, Any]) -> Any:
    """The place of an element in its buffer, row after row; ``table`` has values of variables."""
    place: Any = 0
    for index, extent in zip(load.indices, load.source.shape, strict=True):
        place = place * extent + ir.substitute(index, table)
    return place


def registers_for(name: str, dtype: str, plan: RowPlan) -> Buffer:
    """Registers of a thread for its elements of a row of a buffer."""
    shape = (plan.per_thread * plan.vector,)
    return tirx.decl_buffer(shape, dtype, f"{name}_r", scope="local")


def _apart(value: Any, lane: Var, width: int, analyzer: Analyzer) -> Any:
    """A sum with the lane, less than ``width``, taken out of divisions that it does not change."""

    def division(node: Any) -> Any:
        rest = analyzer.simplify(node.a - lane)
        exact = all(_divides(width, part, analyzer) for part in (rest, node.b))
        if not exact or lane in ir.uses(rest):
            return node
        inside = type(node)(rest, node.b)
        return inside + lane if isinstance(node, tirx.FloorMod) else inside

    return ir.map_nodes(value, {tirx.FloorMod: division, tirx.FloorDiv: division}, {})


def _divides(divisor: int, value: Any, analyzer: Analyzer) -> bool:
    return bool(analyzer.can_prove(T.floormod(value, divisor) == 0))


def _loaded_sometimes(function: RowFunction) -> list[TensorLoad]:
    """Loads that a condition guards."""
    result: list[TensorLoad] = []

    def visit(call: Call) -> None:
        if isinstance(call.op, Op) and call.op.name == _CHOICE:
            result.extend(load for arg in call.args[1:] for load in loads(arg))

    for value in function.values:
        tvm_ffi.structural_walk(value, (Call, visit))
    return result
