"""The kernel of a function that reads along one axis and stores along another.

A thread reads vectors across the rows into registers, one for each element that it stores together,
and writes whole vectors of results for each of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, PrimFunc, Stmt, Var

from warploom.gemm.equations import simplify
from warploom.lower.emit.next_kernel import let_next_start, wait_for_last
from warploom.rows.crossing import Crossing, Place
from warploom.rows.frame import framed, ids_of, parameters
from warploom.rows.plan import MAP_THREADS, WARP, RowPlan
from warploom.rows.problem import RowFunction
from warploom.rows.words import declared, words_of
from warploom.target.dtypes import bits_of
from warploom.tile import ir


def crossed_kernel(function: RowFunction, crossing: Crossing, plan: RowPlan) -> PrimFunc:
    """The kernel of a function with a crossing, and with its plan."""
    return _Kernel(function, crossing, plan).kernel()


def lanes_of(crossing: Crossing, plan: RowPlan) -> tuple[int, int]:
    """Lanes of a warp along columns and across them: what both transfer together is balanced.

    >>> lanes_of(crossing, RowPlan(8, 64, points=8, across=True))  # float16: 64 bytes each
    (8, 4)
    """
    stored = min(bits_of(str(one.load.source.dtype)) for one in crossing.stored) * plan.vector
    read = min(bits_of(str(one.load.source.dtype)) for one in crossing.crossed) * plan.points
    choices = [(1 << n, WARP >> n) for n in range(WARP.bit_length())]
    return max(choices, key=lambda one: (min(one[0] * stored, one[1] * read), one[0]))


class _Kernel:
    def __init__(self, function: RowFunction, crossing: Crossing, plan: RowPlan) -> None:
        self.function, self.crossing, self.plan = function, crossing, plan
        self.table = parameters(function)
        #: The values of the axes of the crossing, but for the elements of a thread's square.
        self.first: dict[Var, Any] = {}
        self.registers: list[tuple[TensorLoad, Buffer, bool]] = []

    def kernel(self) -> PrimFunc:
        """The whole function."""
        crossing, plan = self.crossing, self.plan
        columns = simplify(T.truncdiv(crossing.columns.extent, plan.vector))
        groups = simplify(T.truncdiv(crossing.across.extent, plan.points))
        beside, across = lanes_of(crossing, plan)
        wide, high = (
            simplify(T.truncdiv(count + (lanes - 1), lanes))
            for count, lanes in ((columns, beside), (groups, across))
        )
        outer = reduce(lambda x, y: x * y, (axis.extent for axis in crossing.outer), 1)
        warps = simplify(ir.as_expr(outer * wide * high))
        per_cta = MAP_THREADS // WARP
        cta, thread, warp = (Var(name, "int32") for name in ("cta", "thread", "warp"))
        lane, column, group = (Var(name, "int32") for name in ("lane", "column", "group"))
        grid = simplify(T.truncdiv(warps + (per_cta - 1), per_cta))
        body: list[Stmt] = [*ids_of(cta, thread, grid, MAP_THREADS), let_next_start()]
        body += [
            wait_for_last(), tirx.Bind(warp, cta * per_cta + T.truncdiv(thread, WARP)),
            tirx.Bind(lane, T.truncmod(thread, WARP)),
            tirx.Bind(column, T.truncmod(warp, wide) * beside + T.truncmod(lane, beside)),
        ]  # fmt: skip
        rest: Any = T.truncdiv(warp, wide)
        body.append(tirx.Bind(group, T.truncmod(rest, high) * across + T.truncdiv(lane, beside)))
        rest = T.truncdiv(rest, high)
        for axis in reversed(crossing.outer[1:]):
            body.append(tirx.Bind(axis.var, T.truncmod(rest, axis.extent)))
            rest = T.truncdiv(rest, axis.extent)
        if crossing.outer:
            body.append(tirx.Bind(crossing.outer[0].var, rest))
        self.first = {axis.var: axis.var for axis in crossing.outer}
        self.first |= {
            crossing.columns.var: column * plan.vector, crossing.across.var: group * plan.points,
        }  # fmt: skip
        inside = T.And(warp < warps, T.And(column < columns, group < groups))
        loads = [*self._loads()]
        statements = [*loads, *self._stores()]
        body += [tirx.AllocBuffer(registers) for _, registers, _ in self.registers]
        body.append(ir.when(inside, statements))
        return framed(self.function, self.table, body)

    def _loads(self) -> Iterator[Stmt]:
        """All operands of a square that lie in vectors, into registers."""
        crossing, plan = self.crossing, self.plan
        for place in crossing.crossed:
            yield from self._vectors(place, plan.points, crossing.columns.var, plan.vector, True)
        for place in crossing.along:
            yield from self._vectors(place, plan.vector, crossing.across.var, plan.points, False)

    def _vectors(
        self, place: Place, width: int, step: Var, count: int, is_crossed: bool
    ) -> Iterator[Stmt]:
        """So many vectors of an operand, from one to the next along an axis."""
        source = self.table[place.load.source]
        registers = _registers(source, width * count)
        self.registers.append((place.load, registers, is_crossed))
        view, inside = words_of(source, width), words_of(registers, width)
        yield from (declared(view, source), declared(inside, registers))
        words = int(inside.shape[0]) // count
        for number in range(count):
            at = {**self.first, step: self.first[step] + number}
            start = T.truncdiv(place.at(at), width // words)
            loaded = [
                tirx.BufferStore(inside, view[simplify(start + word)], [number * words + word])
                for word in range(words)
            ]
            guard = True if place.guard is None else simplify(ir.substitute(place.guard, at))
            yield ir.when(guard, loaded)

    def _stores(self) -> Iterator[Stmt]:
        """The results of a square, row after row."""
        crossing, plan = self.crossing, self.plan
        for output, place in zip(self.function.outputs, crossing.stored, strict=True):
            target = self.table[output.buffer]
            registers = _registers(target, plan.vector)
            view, inside = words_of(target, plan.vector), words_of(registers, plan.vector)
            yield tirx.AllocBuffer(registers)
            yield from (declared(view, target), declared(inside, registers))
            words = int(inside.shape[0])
            for point in range(plan.points):
                for lane in range(plan.vector):
                    value = self._element(output.value, point, lane)
                    yield tirx.BufferStore(registers, value, [lane])
                across = self.first[crossing.across.var] + point
                at = {**self.first, crossing.across.var: across}
                start = T.truncdiv(place.at(at), plan.vector // words)
                for word in range(words):
                    yield tirx.BufferStore(view, inside[word], [simplify(start + word)])

    def _element(self, value: Any, point: int, lane: int) -> Any:
        """A value of one element of the square."""

        def load(node: TensorLoad) -> Any:
            for known, registers, is_crossed in self.registers:
                if tvm_ffi.structural_equal(known, node):
                    if is_crossed:
                        return registers[lane * self.plan.points + point]
                    return registers[point * self.plan.vector + lane]
            return node

        crossing = self.crossing
        at = dict(self.first)
        at[crossing.across.var] = at[crossing.across.var] + point
        at[crossing.columns.var] = at[crossing.columns.var] + lane
        changed = ir.map_nodes(value, {TensorLoad: load}, {})
        changed = ir.substitute(changed, dict(crossing.table))
        return simplify(ir.substitute(changed, {**self.table, **at}))


def _registers(buffer: Buffer, count: int) -> Buffer:
    return tirx.decl_buffer((count,), str(buffer.dtype), f"{buffer.name}_r", scope="local")
