"""Which elements of its row a thread loads ahead, in vectors, and how long vectors may be.

All that lie beside each other in memory, and begin where a vector may. Elements that are only read
under a condition are so if that holds for whole vectors: others may lie outside of their buffers.
Nor are those whose places other loads along the row say, nor scattered ones of buffers that are
small beside the results: caches have them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Var

from warploom.errors import Decline
from warploom.gemm.equations import loads, simplify
from warploom.gemm.memory import static
from warploom.rows.axes import analyzer_of
from warploom.rows.guards import Guards
from warploom.rows.plan import VECTOR_BITS, RowPlan
from warploom.rows.problem import RowFunction
from warploom.target.dtypes import bits_of
from warploom.tile import ir

#: Times that results have the bytes of a buffer that is small.
_SMALL = 4


@dataclass(frozen=True)
class Vector:
    """A load of neighbouring elements.

    Attributes
    ----------
    load : TensorLoad
        The load of one of them, as the function has it.
    registers : Buffer
        The buffer that holds them.
    guard : Expr, optional
        The condition under which they may be read: the same for all elements of a vector.
    """

    load: TensorLoad
    registers: Buffer
    guard: Any = None


def widest(function: RowFunction) -> int:
    """Elements that a thread can load and store together, in all buffers.

    Raises
    ------
    Decline
        If neighbours in a row are no neighbours in memory.
    """
    column = function.columns
    whole = _whole_rows(function)
    smallest = min((bits_of(str(load.source.dtype)) for load in whole), default=32)
    for output in function.outputs:
        if _is_view(output.buffer):
            name = output.buffer.name
            raise Decline(f"{name} is a view of memory, where vectors may not begin.")
    extent = static(column.extent)
    run = _Lanes(function, 1).run
    if extent is not None and run < extent and run * smallest < VECTOR_BITS:
        raise Decline(
            f"rows are made of runs of {run} elements of {smallest} bits; of runs shorter than "
            f"{VECTOR_BITS // 8} bytes too little of what memory transfers is used."
        )
    width = VECTOR_BITS // min(smallest, 32)
    while width > 1:
        if extent is not None and extent % width == 0 and not _fault(function, width):
            return width
        width //= 2
    fault = _fault(function, 1)
    if fault is not None:
        raise fault
    return 1


def vectors_of(function: RowFunction, plan: RowPlan) -> list[Vector]:
    """The loads of a function that are done in vectors."""
    return [
        Vector(load, registers_for(load.source.name, str(load.source.dtype), plan), guard)
        for load, guard in _vector_loads(function, plan.vector, function.loads)
    ]


def window_vectors(function: RowFunction, vector: int) -> list[tuple[TensorLoad, Any]]:
    """The loads of windows that are done in vectors, each with its condition."""
    return list(_vector_loads(function, vector, function.window_loads))


def constants_of(function: RowFunction) -> list[Vector]:
    """The loads that are the same for a whole row, such as scales and places of tokens."""
    guards = Guards(function, 1)
    return [
        Vector(load, tirx.decl_buffer((1,), str(load.source.dtype), f"{name}_r", scope="local"))
        for load in function.loads
        if not moves(load, function.columns.var) and guards.of(load) is None
        for name in (load.source.name,)
    ]


def offset(load: TensorLoad, table: dict[Var, Any]) -> Any:
    """The place of an element in its buffer, row after row; ``table`` has values of variables."""
    place: Any = 0
    for index, extent in zip(load.indices, load.source.shape, strict=True):
        place = place * extent + ir.substitute(index, table)
    return place


def reads_across(function: RowFunction, width: int) -> bool:
    """Whether elements that are loaded one by one lie beside those of the neighbouring row.

    Such as the pixels that a filter sees, row after row of a picture: lanes that have neighbouring
    rows read whole sectors of memory together, lanes that share a row read one each.
    """
    column, lanes = function.columns.var, _Lanes(function, width)
    rows = [axis.var for axis in function.rows if static(axis.extent) != 1]
    for load in function.loads if rows else ():
        single = moves(load, column) and not _gathers(load, column) and not lanes.is_vector(load)
        if not (single and _is_small(load, function)):
            continue
        step = simplify(offset(load, {rows[-1]: rows[-1] + 1}) - offset(load, {}))
        bits = bits_of(str(load.source.dtype))
        if isinstance(step, tirx.IntImm) and 0 < abs(int(step)) * bits <= VECTOR_BITS:
            return True
    return False


def is_whole(load: TensorLoad, column: Var) -> bool:
    """Whether a load reads its buffer as elements are numbered."""
    return ir.is_constant(simplify(offset(load, {}) - column), 0)


def registers_for(name: str, dtype: str, plan: RowPlan) -> Buffer:
    """Registers of a thread for its elements of a row of a buffer."""
    shape = (plan.per_thread * plan.vector,)
    return tirx.decl_buffer(shape, dtype, f"{name}_r", scope="local")


def moves(load: TensorLoad, column: Var) -> bool:
    """Whether a load moves along the row."""
    return any(column in ir.uses(index) for index in load.indices)


def _all_loads(function: RowFunction) -> list[TensorLoad]:
    return [*function.loads, *function.window_loads]


def _whole_rows(function: RowFunction) -> list[TensorLoad]:
    """What moves along rows: results, and loads of what is not small beside them."""
    column = function.columns.var
    return [
        *(
            load for load in _all_loads(function)
            if moves(load, column) and not _is_small(load, function)
        ),
        *(output.buffer[output.indices] for output in function.outputs),
    ]  # fmt: skip


def _is_small(load: TensorLoad, function: RowFunction) -> bool:
    """Whether results have so many more bytes than a buffer that caches have what is read of it."""
    size = _bytes(load.source)
    results = sum(_bytes(output.buffer) for output in function.outputs)
    return math.isfinite(size) and size * _SMALL <= results and not function.windows


def _bytes(buffer: Buffer) -> float:
    """Bytes of a buffer; infinite where a call decides."""
    extents = [static(extent) for extent in buffer.shape]
    if None in extents:
        return math.inf
    return math.prod(extents) * bits_of(str(buffer.dtype)) / 8


def _vector_loads(
    function: RowFunction, width: int, among: Sequence[TensorLoad]
) -> Iterator[tuple[TensorLoad, Any]]:
    """Those of some loads that move along a vector of that width, but gathers; with conditions.

    Of a flat function those that are as long as its results: others repeat within a vector.
    """
    column = function.columns.var
    guards, lanes = Guards(function, width), _Lanes(function, width)
    for load in among:
        if not moves(load, column) or _gathers(load, column) or _is_view(load.source):
            continue
        if not function.flat and _is_small(load, function) and not lanes.is_vector(load):
            continue
        if is_whole(load, column) if function.flat else lanes.moves(load):
            guard = guards.of(load)
            if guard is not False:
                yield load, guard


def _fault(function: RowFunction, width: int) -> Decline | None:
    """Why a vector of that width does not lie together in all buffers; None if it does."""
    lanes = _Lanes(function, width)
    stored = [output.buffer[output.indices] for output in function.outputs]
    read = _vector_loads(function, width, _all_loads(function))
    for load in [*(load for load, _ in read), *stored]:
        if not lanes.is_vector(load):
            return Decline(
                f"{load.source.name} is read at {list(load.indices)}, where "
                f"{width if width > 1 else 'the'} neighbours of a row are no vector in memory."
            )
    return None


class _Lanes:
    """What is known of the places of the elements of one vector."""

    def __init__(self, function: RowFunction, width: int) -> None:
        self.column, self.width = function.columns.var, width
        self.analyzer = analyzer_of(function.axes)
        self.extent = static(function.columns.extent)
        # Vectors of one element are to be neighbours of each other, wherever they begin.
        self.run = width if width > 1 else _run(function, self.analyzer)
        self.vector, self.lane = Var("vector", "int32"), Var("lane", "int32")
        if self.extent is not None:
            self.analyzer.bind(self.vector, ir.whole_range(max(1, self.extent // self.run)))
        self.analyzer.bind(self.lane, ir.whole_range(self.run))

    def _moved(self, load: TensorLoad) -> tuple[Any, Any]:
        """The place of the first element, and how far another one is from it."""
        # Simplified first: the parts of a place that is split and put together again are one.
        place = self.analyzer.simplify(offset(load, {}))
        first = self.vector * self.run
        start = self.analyzer.simplify(ir.substitute(place, {self.column: first}))
        moved = ir.substitute(place, {self.column: first + self.lane}) - start
        return start, self.analyzer.simplify(_apart(moved, self.lane, self.run, self.analyzer))

    def moves(self, load: TensorLoad) -> bool:
        """Whether the elements of a vector are several in memory, and neighbours if so."""
        if self.run == 1:
            return True
        return self.lane in ir.uses(self._moved(load)[1]) and not _repeats(
            load, self.column, self.width
        )

    def is_vector(self, load: TensorLoad) -> bool:
        """Whether they follow each other, and begin where a load of them may."""
        if self.run == 1:
            return True
        start, moved = self._moved(load)
        bits = bits_of(str(load.source.dtype))
        unit = min(self.width * bits, VECTOR_BITS) // bits
        follows = ir.is_constant(self.analyzer.simplify(moved - self.lane), 0)
        return follows and _divides(unit, start, self.analyzer)


def _repeats(load: TensorLoad, column: Var, width: int) -> bool:
    """Whether an element is read for more neighbours of a row than a vector has, as scales are."""
    unit = Var("group", "int32")

    def division(node: tirx.FloorDiv) -> Any:
        size = static(node.b)
        slow = node.a.same_as(column) and size is not None and size > max(width, 1)
        return unit if slow else node

    changed = [ir.map_nodes(index, {tirx.FloorDiv: division}, {}) for index in load.indices]
    return not any(column in ir.uses(index) for index in changed)


def _run(function: RowFunction, analyzer: Analyzer) -> int:
    """How many neighbours in a row are neighbours in memory, where vectors have one element.

    All, or those of the last axis along the row.
    """
    extent = static(function.columns.extent)
    column = function.columns.var
    whole = _whole_rows(function)
    places = [
        analyzer.simplify(offset(load, {})) for load in whole if not _repeats(load, column, 1)
    ]
    found: list[int] = [] if extent is None else [extent]

    def visit(node: Any) -> None:
        if node.a.same_as(column) and static(node.b) is not None:
            found.append(int(node.b))

    for place in places:
        tvm_ffi.structural_walk(place, (tirx.FloorMod, visit))
    return min(found, default=8)


def _is_view(buffer: Buffer) -> bool:
    """Whether a buffer begins somewhere in its memory, where no vector may."""
    return not ir.is_constant(buffer.elem_offset, 0)


def _gathers(load: TensorLoad, column: Var) -> bool:
    """Whether another load says where the elements of a row are."""
    return any(moves(inner, column) for index in load.indices for inner in loads(index))


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
