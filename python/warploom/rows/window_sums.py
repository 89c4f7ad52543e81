"""Statements that reduce windows of rows.

A thread has a vector of some neighbouring rows. It goes over a window, loads what its rows read of
each step, every vector once, and adds it to their sums.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.gemm.equations import simplify, strip_casts
from warploom.gemm.memory import static
from warploom.rows.axes import analyzer_of, settle, settle_index
from warploom.rows.guards import Guards
from warploom.rows.plan import RowPlan
from warploom.rows.problem import RowFunction, loads_of
from warploom.rows.reductions import COMBINE
from warploom.rows.vectors import offset, window_vectors
from warploom.rows.windows import Window
from warploom.rows.words import declared, words_of
from warploom.tile import ir

#: The most steps along the last axis of a window that are written out where its others are loops.
_WRITTEN = 16
Table = Mapping[Any, Any]


@dataclass(frozen=True)
class _Read:
    """A vector that a thread loads in a step of a window.

    Attributes
    ----------
    load : TensorLoad
        Of one element, in terms of axes.
    guard : Expr, optional
        The condition under which it may be read.
    registers : Buffer
    """

    load: TensorLoad
    guard: Any
    registers: Buffer


class WindowSums:
    """The windows of a function: registers for their results, and statements that compute them.

    Parameters
    ----------
    function : RowFunction
        With neighbours as the plan has them.
    plan : RowPlan
    """

    def __init__(self, function: RowFunction, plan: RowPlan) -> None:
        self.function, self.plan = function, plan
        self.analyzer = analyzer_of(function.axes)
        self.guards = Guards(function, plan.vector)
        self.vectors = window_vectors(function, plan.vector)
        size = plan.points * plan.vector
        self.sums = {
            window.result: tirx.decl_buffer(
                (size,), str(window.result.ty.dtype), f"{window.result.name}_r", scope="local"
            )
            for window in function.windows
        }

    def results(self, point: int, lane: int) -> dict[Var, Any]:
        """The results of an element of a neighbour, by the variables for them."""
        return {var: sums[point * self.plan.vector + lane] for var, sums in self.sums.items()}

    def statements(self, table: Table, number: Any) -> Iterator[Stmt]:
        """Compute the sums of a thread; their registers are allocated outside.

        Parameters
        ----------
        table : mapping
            What axes and parameters of the function are in the kernel.
        number : Expr
            Of the thread's vector in its rows.
        """
        for window in self.function.windows:
            sums = self.sums[window.result]
            for place in range(int(sums.shape[0])):
                yield tirx.BufferStore(sums, window.start, [place])
            yield from self._steps(window, {**table, self.function.columns.var: number})

    def _steps(self, window: Window, table: Table) -> Iterator[Stmt]:
        count = len(window.axes) if self.plan.written else 1
        if count == 1 and static(window.axes[-1].extent) > _WRITTEN:
            count = 0
        outer = window.axes[: len(window.axes) - count]
        written = window.axes[len(outer) :]
        numbers = itertools.product(*(range(static(axis.extent)) for axis in written))
        steps: list[dict[Var, Any]] = [
            {axis.var: tirx.const(at, "int32") for axis, at in zip(written, step, strict=True)}
            for step in numbers
        ]
        body = self._step(window, steps, table)
        for axis in reversed(outer):
            body = [ir.loop(axis.var, axis.extent, body)]
        yield from body

    def _step(self, window: Window, steps: list[dict[Var, Any]], table: Table) -> list[Stmt]:
        """Some steps of a window, for all neighbours."""
        reads: list[_Read] = []
        taken: list[Stmt] = []
        term = self._without_choices(window.term)
        for step, point in itertools.product(steps, range(self.plan.points)):
            known = dict(step)
            if self.function.point is not None:
                known[self.function.point.var] = tirx.const(point, "int32")
            registers = self._registers(window, known, reads)
            for lane in range(self.plan.vector):
                element = self._element(term, registers, known, lane, table)
                # Windows that the term reads were reduced before.
                element = ir.substitute(element, self.results(point, lane))
                taken.append(self._taken(window, element, point * self.plan.vector + lane))
        return [*self._loaded(reads, table), *taken]

    def _registers(
        self, window: Window, known: dict[Var, Any], reads: list[_Read]
    ) -> list[tuple[TensorLoad, Buffer]]:
        """Registers of the loads of a step of a neighbour; what is not loaded yet is to be."""
        found = []
        wanted = loads_of((window.term,))
        for load, guard in self.vectors:
            if not any(tvm_ffi.structural_equal(load, one) for one in wanted):
                continue
            own = settle(ir.substitute(load, known), self.analyzer)
            when = None if guard is None else self._condition(guard, known)
            same = next((one for one in reads if _are_equal(one, own, when)), None)
            if same is None:
                name = f"{load.source.name}_w{len(reads)}"
                registers = tirx.decl_buffer(
                    (self.plan.vector,), str(load.source.dtype), name, scope="local"
                )
                same = _Read(own, when, registers)
                reads.append(same)
            found.append((load, same.registers))
        return found

    def _condition(self, guard: Any, known: Table) -> Any:
        return settle_index(ir.substitute(guard, known), self.analyzer)

    def _taken(self, window: Window, element: Any, index: int) -> Stmt:
        """Take a term of an element into its sum."""
        sums = self.sums[window.result]
        return tirx.BufferStore(sums, COMBINE[window.combine](sums[index], element), [index])

    def _element(
        self, term: Any, registers: list[tuple[TensorLoad, Buffer]], known: Table, lane: int,
        table: Table,
    ) -> Any:  # fmt: skip
        """A term of one element, what is loaded read from registers."""

        def load(node: TensorLoad) -> Any:
            own = (mine for known, mine in registers if tvm_ffi.structural_equal(known, node))
            mine = next(own, None)
            return node if mine is None else mine[lane]

        term = ir.map_nodes(term, {TensorLoad: load}, {})
        column = self.function.columns.var
        place = {**table, column: table[column] * self.plan.vector + lane}
        return simplify(ir.substitute(ir.substitute(term, known), place))

    def _without_choices(self, term: Any) -> Any:
        """A term without choices between an element and 0: registers of what is not read are 0."""

        def call(node: Call) -> Any:
            if len(node.args) != 3 or not _is_zero(node.args[2]):
                return node
            load = strip_casts(node.args[1])
            read = isinstance(load, TensorLoad) and any(
                guard is not None and tvm_ffi.structural_equal(load, known)
                for known, guard in self.vectors
            )
            return node.args[1] if read and self.guards.is_choice(node, load) else node

        return ir.map_nodes(term, {Call: call}, {})

    def _loaded(self, reads: list[_Read], table: Table) -> Iterator[Stmt]:
        """All vectors of some steps, in their registers."""
        vector, column = self.plan.vector, self.function.columns.var
        place = {**table, column: table[column] * vector}
        for read in reads:
            source = table[read.load.source]
            view, inside = words_of(source, vector), words_of(read.registers, vector)
            yield tirx.AllocBuffer(read.registers)
            yield from (declared(view, source), declared(inside, read.registers))
            words = int(inside.shape[0])
            start = T.truncdiv(simplify(offset(read.load, place)), vector // words)
            loads = [
                tirx.BufferStore(inside, view[simplify(start + word)], [word])
                for word in range(words)
            ]
            if read.guard is None:
                yield from loads
                continue
            dtype = str(read.registers.dtype)
            zeros = [
                tirx.BufferStore(read.registers, tirx.const(0, dtype), [lane])
                for lane in range(vector)
            ]
            yield ir.when(simplify(ir.substitute(read.guard, place)), loads, zeros)


def _are_equal(one: _Read, load: TensorLoad, guard: Any) -> bool:
    if (one.guard is None) != (guard is None):
        return False
    same = guard is None or tvm_ffi.structural_equal(one.guard, guard)
    return same and bool(tvm_ffi.structural_equal(one.load, load))


def _is_zero(value: Any) -> bool:
    value = strip_casts(value)
    return isinstance(value, (tirx.IntImm, tirx.FloatImm)) and value.value == 0
