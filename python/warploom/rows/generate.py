"""The kernel of a row function.

A thread loads its part of a row in vectors into registers, takes part in the reductions, and
computes and stores the same part of the results. The kernel starts before its predecessor ends
(PDL).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, Stmt, Var

from warploom.gemm.equations import loads, simplify
from warploom.gemm.problem import Axis
from warploom.lower.emit.next_kernel import let_next_start, wait_for_last
from warploom.rows.choose import arranged
from warploom.rows.crossed_kernel import crossed_kernel
from warploom.rows.frame import framed, ids_of, parameters
from warploom.rows.plan import RowPlan
from warploom.rows.problem import RowFunction
from warploom.rows.sharing import SharedReduction
from warploom.rows.vectors import Vector, constants_of, offset, registers_for, vectors_of
from warploom.rows.window_sums import WindowSums
from warploom.rows.words import declared, words_of
from warploom.tile import ir

#: Makes statements for a vector of a thread, from the numbers of its vectors and which one it is.
Each = Callable[[Sequence[Var], int], list[Stmt]]


def row_kernel(function: RowFunction, plan: RowPlan | None = None) -> PrimFunc:
    """The kernel of a function.

    Its parameters are those of the S-TIR function, in the same order and of the same shapes.

    Parameters
    ----------
    function : RowFunction
    plan : RowPlan, optional
        By default that of :func:`arranged`.

    Raises
    ------
    Decline
        If it reads elements that do not lie beside each other.
    IllegalCombination
        If no plan suits it.
    """
    if plan is None:
        function, plan = arranged(function)
    if function.crossing is not None:
        return crossed_kernel(function, function.crossing, plan)
    return _Kernel(function, plan).kernel()


class _Kernel:
    """Builds the statements of one kernel; axes are variables that it defines."""

    def __init__(self, function: RowFunction, plan: RowPlan) -> None:
        self.function, self.plan = function, plan
        self.table: dict[Var, Any] = parameters(function)
        self.cta, self.thread = Var("cta", "int32"), Var("thread", "int32")
        self.rank = Var("rank", "int32")
        self.vectors = vectors_of(function, plan)
        self.constants = constants_of(function)
        self.windows = WindowSums(function, plan) if function.windows else None
        self.point = 0
        singles = [axis.var for axis in function.rows if _is_single(axis)]
        self.table |= {var: tirx.const(0, "int32") for var in singles}
        self.count = reduce(lambda x, y: x * y, (axis.extent for axis in function.rows), 1)
        #: Vectors of a row, the last one of flat elements as far as there are some.
        whole = function.columns.extent + (plan.vector - 1 if function.flat else 0)
        self.row_vectors = simplify(T.truncdiv(whole, plan.vector))
        self.numbers: list[Var] = []
        #: The number of the thread among those that share its row.
        self.mine: Any = self.thread

    def kernel(self) -> PrimFunc:
        """The whole function."""
        plan, function = self.plan, self.function
        rows = T.truncdiv(self.count + (plan.beside - 1), plan.beside) * plan.beside
        total = self.count if plan.threads else rows * self.row_vectors
        step = plan.rows if plan.threads else plan.block
        grid = simplify(T.truncdiv(total + (step - 1), step))
        ids = ids_of(self.cta, self.thread, grid, plan.block, plan.cluster)
        if plan.cluster > 1:
            rank = tirx.ScopeIdDef([self.rank], [ir.as_expr(plan.cluster)], "cluster", "cta")
            ids.insert(0, tirx.ScopeIdDefStmt(rank))
        body = [*ids, let_next_start(), wait_for_last(), *self._places()]
        if self.windows is not None:
            body += self._store_windows(self.windows)
        else:
            body += self._store_rows()
        return framed(function, self.table, body)

    def _store_windows(self, windows: WindowSums) -> Iterator[Stmt]:
        """Reduce windows, then load and store what else there is of each neighbour."""
        yield from map(tirx.AllocBuffer, windows.sums.values())
        yield from self._allocated()
        yield ir.when(self.inside, list(windows.statements(self.table, self.numbers[0])))
        for point in range(self.plan.points):
            self.point = point
            if self.function.point is not None:
                self.table[self.function.point.var] = tirx.const(point, "int32")
            yield from self._load_constants()
            yield from self._load(self.numbers, self.vectors)
            yield from self._store()

    def _store_rows(self) -> Iterator[Stmt]:
        """Load rows, reduce them, and store results."""
        plan, function = self.plan, self.function
        body: list[Stmt] = [*self._allocated(), *self._load_constants()]
        if plan.cluster > 1:
            # The shared memory of a CTA may be written once that CTA runs.
            body.append(ir.evaluate(T.ptx.barrier.cluster.arrive.relaxed.aligned()))
        if not plan.looped:
            body += self._load(self.numbers, self.vectors)
        if plan.cluster > 1:
            body.append(ir.evaluate(T.ptx.barrier.cluster.wait.acquire.aligned()))
        for reduction in function.reductions:
            body += self._reduce(SharedReduction(reduction, plan, self.thread, self.rank))
        yield from body
        yield from self._store()

    def _places(self) -> Iterator[Stmt]:
        """Which row, and which of its vectors, a thread has."""
        plan = self.plan
        row: Any = self.cta
        if not plan.threads:
            flat = Var("flat", "int32")
            yield tirx.Bind(flat, self.cta * plan.block + self.thread)
            self.numbers = [Var("vector0", "int32")]
            if plan.beside > 1:
                part = T.truncmod(flat, plan.beside * self.row_vectors)
                yield tirx.Bind(self.numbers[0], T.truncdiv(part, plan.beside))
                row = T.truncdiv(flat, plan.beside * self.row_vectors) * plan.beside
                row = row + T.truncmod(flat, plan.beside)
                self.inside = row < self.count
            else:
                yield tirx.Bind(self.numbers[0], T.truncmod(flat, self.row_vectors))
                row = T.truncdiv(flat, self.row_vectors)
                self.inside = flat < self.count * self.row_vectors
        else:
            if plan.rows > 1:
                row = self.cta * plan.rows + T.truncdiv(self.thread, plan.threads)
                self.mine = T.truncmod(self.thread, plan.threads)
            if plan.cluster > 1:
                row = T.truncdiv(self.cta, plan.cluster)
                self.mine = self.rank * plan.threads + self.thread
            self.inside = row < self.count
            if not plan.looped:
                self.numbers, bound = self._numbers(0)
                yield from bound
        rest = Var("row", "int32")
        yield tirx.Bind(rest, row)
        first, *others = [axis for axis in self.function.rows if not _is_single(axis)] or [None]
        for axis in reversed(others):
            yield tirx.Bind(axis.var, T.truncmod(rest, axis.extent))
            outer = Var("row", "int32")
            yield tirx.Bind(outer, T.truncdiv(rest, axis.extent))
            rest = outer
        if first is not None:
            yield tirx.Bind(first.var, rest)

    def _numbers(self, first: Any) -> tuple[list[Var], list[Stmt]]:
        """The numbers of a thread's vectors, from the ``first`` of its row on, and statements."""
        plan = self.plan
        numbers = [Var(f"vector{index}", "int32") for index in range(plan.per_thread)]
        values = [self.mine + first + index * plan.sharing for index in range(plan.per_thread)]
        return numbers, list(map(tirx.Bind, numbers, values))

    def _pass(self, values: Sequence[Any], make: Each) -> Iterator[Stmt]:
        """Statements for all vectors of the row, of which some values are computed."""
        plan = self.plan
        if not plan.looped:
            for index in range(len(self.numbers)):
                yield from self._guarded(self.numbers, index, make(self.numbers, index))
            return
        step = Var("step", "int32")
        at_a_time = plan.sharing * plan.per_thread
        numbers, body = self._numbers(step * at_a_time)
        wanted = [load for value in values for load in loads(value)]
        parts = [
            part
            for part in self.vectors
            if any(tvm_ffi.structural_equal(part.load, load) for load in wanted)
        ]
        body += self._load(numbers, parts)
        for index in range(plan.per_thread):
            body += self._guarded(numbers, index, make(numbers, index))
        steps = simplify(T.truncdiv(self.row_vectors + (at_a_time - 1), at_a_time))
        yield ir.loop(step, steps, body)

    def _guarded(self, numbers: Sequence[Var], index: int, statements: list[Stmt]) -> list[Stmt]:
        """Statements for a vector, where the thread has that vector."""
        if not statements:
            return []
        condition = self.inside
        if self.plan.threads and not self.plan.is_even:
            condition = T.And(condition, numbers[index] < self.row_vectors)
        return [ir.when(condition, statements)]

    def _load(self, numbers: Sequence[Var], parts: Sequence[Vector]) -> Iterator[Stmt]:
        """Vectors of a thread into registers."""
        plan = self.plan
        moves: list[list[Stmt]] = [[] for _ in numbers]
        for part in parts:
            source = self.table[part.load.source]
            view, inside = (words_of(buffer, plan.vector) for buffer in (source, part.registers))
            yield from (declared(view, source), declared(inside, part.registers))
            words = int(inside.shape[0]) // plan.per_thread
            for index, vector in enumerate(numbers):
                place = {**self.table, self.function.columns.var: vector * plan.vector}
                start = T.truncdiv(simplify(offset(part.load, place)), plan.vector // words)
                loaded = [
                    tirx.BufferStore(inside, view[simplify(start + word)], [index * words + word])
                    for word in range(words)
                ]
                guard = True if part.guard is None else simplify(ir.substitute(part.guard, place))
                moves[index].append(ir.when(guard, loaded))
        for index, statements in enumerate(moves):
            yield from self._guarded(numbers, index, self._whole(numbers, index, statements))

    def _allocated(self) -> Iterator[Stmt]:
        """Registers of all that is loaded."""
        for part in (*self.constants, *self.vectors):
            yield tirx.AllocBuffer(part.registers)

    def _load_constants(self) -> Iterator[Stmt]:
        """What is the same for a whole row."""
        loaded = []
        for part in self.constants:
            indices = [ir.substitute(index, self.table) for index in part.load.indices]
            value = self.table[part.load.source][tuple(indices)]
            loaded.append(tirx.BufferStore(part.registers, value, [0]))
        if loaded:
            yield ir.when(self.inside, loaded)

    def _whole(self, numbers: Sequence[Var], index: int, statements: list[Stmt]) -> list[Stmt]:
        """Statements for a vector that is whole."""
        if not statements or not self._is_ragged:
            return statements
        return [ir.when(self._has_all(numbers[index]), statements)]

    @property
    def _is_ragged(self) -> bool:
        """Whether the last vector may have fewer elements."""
        columns = self.plan.columns
        return self.function.flat and (columns is None or columns % self.plan.vector > 0)

    def _has_all(self, number: Var) -> Any:
        return (number + 1) * self.plan.vector <= self.function.columns.extent

    def _element(self, value: Any, numbers: Sequence[Var], index: int, lane: int) -> Any:
        """A value of one element that a thread has."""

        def load(node: TensorLoad) -> Any:
            for vector in self.vectors:
                if tvm_ffi.structural_equal(vector.load, node):
                    return vector.registers[index * self.plan.vector + lane]
            for constant in self.constants:
                if tvm_ffi.structural_equal(constant.load, node):
                    return constant.registers[0]
            return node

        place = numbers[index] * self.plan.vector + lane
        changed = ir.map_nodes(value, {TensorLoad: load}, {})
        if self.windows is not None:
            changed = ir.substitute(changed, self.windows.results(self.point, lane))
        return simplify(ir.substitute(changed, {**self.table, self.function.columns.var: place}))

    def _reduce(self, shared: SharedReduction) -> Iterator[Stmt]:
        """A reduction of a row."""
        place = shared.reduction.place
        values = [shared.reduction.term, *([] if place is None else [place.index])]

        def take(numbers: Sequence[Var], index: int) -> list[Stmt]:
            return [
                statement
                for lane in range(self.plan.vector)
                for statement in shared.take(
                    *(self._element(value, numbers, index, lane) for value in values)
                )
            ]

        yield from shared.start()
        yield from self._pass(values, take)
        yield from shared.finish()

    def _store(self) -> Iterator[Stmt]:
        """All results, in vectors; numbers of whole rows by their first thread."""
        plan, outputs = self.plan, self.function.outputs
        parts = []
        for output in outputs:
            registers = registers_for(f"{output.buffer.name}_out", str(output.buffer.dtype), plan)
            target = self.table[output.buffer]
            view, inside = (words_of(buffer, plan.vector) for buffer in (target, registers))
            yield tirx.AllocBuffer(registers)
            yield from (declared(view, target), declared(inside, registers))
            parts.append((output, registers, view, inside))

        def store(numbers: Sequence[Var], index: int) -> list[Stmt]:
            statements: list[Stmt] = []
            for output, registers, view, inside in parts:
                words = int(inside.shape[0]) // plan.per_thread
                element = output.buffer[output.indices]
                place = {**self.table, self.function.columns.var: numbers[index] * plan.vector}
                start = T.truncdiv(simplify(offset(element, place)), plan.vector // words)
                computed = [
                    tirx.BufferStore(
                        registers, self._element(output.value, numbers, index, lane),
                        [index * plan.vector + lane],
                    )
                    for lane in range(plan.vector)
                ]  # fmt: skip
                stored = [
                    tirx.BufferStore(view, inside[index * words + word], [simplify(start + word)])
                    for word in range(words)
                ]
                guard = True if output.guard is None else ir.substitute(output.guard, self.table)
                statements.append(ir.when(guard, [*computed, *stored]))
            if not self._is_ragged:
                return statements
            single = self._one_by_one(numbers[index])
            return [ir.when(self._has_all(numbers[index]), statements, single)]

        if parts:
            yield from self._pass([output.value for output in outputs], store)
        first = T.And(self.inside, self.mine == 0)
        statements = [
            tirx.BufferStore(
                self.table[output.buffer], ir.substitute(output.value, self.table),
                [ir.substitute(index, self.table) for index in output.indices],
            )
            for output in self.function.numbers
        ]  # fmt: skip
        if statements:
            yield ir.when(first, statements)

    def _one_by_one(self, number: Var) -> list[Stmt]:
        """The elements of the last vector, as far as there are some."""
        lane = Var("lane", "int32")
        place = number * self.plan.vector + lane
        table = {**self.table, self.function.columns.var: place}
        statements = [
            tirx.BufferStore(
                self.table[output.buffer], ir.substitute(output.value, table),
                [ir.substitute(index, table) for index in output.indices],
            )
            for output in self.function.outputs
        ]  # fmt: skip
        inside = ir.when(place < self.function.columns.extent, statements)
        return [ir.loop(lane, self.plan.vector, [inside])]


def _is_single(axis: Axis) -> bool:
    return ir.is_constant(axis.extent, 1)
