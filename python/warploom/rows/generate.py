"""The kernel of a function of rows.

A thread loads its part of a row in vectors into registers, takes part in the sums, and computes
and stores the same part of the results. The kernel starts before its predecessor ends
(PDL).
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
from tvm.tirx.layout import S, TileLayout

from warploom.decide.problem import ALIGN
from warploom.gemm.equations import simplify
from warploom.gemm.problem import Axis
from warploom.lower.emit.next_kernel import let_next_start, wait_for_last
from warploom.rows.plan import VECTOR_BITS, WARP, RowPlan
from warploom.rows.problem import Reduction, RowFunction
from warploom.rows.vectors import offset, registers_for, vectors_of
from warploom.target.dtypes import bits_of
from warploom.tile import ir
from warploom.tile.hints import DEVICE_ENTRY

#: Attribute of the kernels that are made here, by which pipelines tell them.
MARK = "warploom.rows"
#: Bits of registers of a thread that loaded elements may take.
_REGISTER_BITS = 64 * 32
#: Threads of a warp that take part in a shuffle: all.
_EVERYONE = 0xFFFFFFFF
_COMBINE = {"sum": lambda x, y: x + y, "max": T.max}
#: Types of words that are loaded at a time, by their bits.
_WORDS = {128: "uint32x4", 64: "uint32x2", 32: "uint32"}


def row_kernel(function: RowFunction, plan: RowPlan | None = None) -> PrimFunc:
    """The kernel of a function.

    Its parameters are those of the S-TIR function, in the same order and of the same shapes.

    Parameters
    ----------
    function : RowFunction
    plan : RowPlan, optional
        By default :func:`plan_of` the function.

    Raises
    ------
    Decline
        If it reads elements that do not lie beside each other.
    IllegalCombination
        If no plan suits it.
    """
    return _Kernel(function, plan or plan_of(function)).kernel()


def plan_of(function: RowFunction) -> RowPlan:
    """The plan for a function, by the sizes of its loads and stores.

    Raises
    ------
    IllegalCombination
        If none suits it.
    """
    column = function.columns.var
    loaded = [
        bits_of(str(load.source.dtype))
        for load in function.loads
        if any(column in ir.uses(index) for index in load.indices)
    ]
    stored = [bits_of(str(output.buffer.dtype)) for output in function.outputs]
    smallest = min(*loaded, *stored, 32)
    each = VECTOR_BITS // smallest * (sum(loaded) + max(stored))
    per_thread = max(1, min(8, _REGISTER_BITS // each))
    return RowPlan.of(int(function.columns.extent), smallest, bool(function.reductions), per_thread)


class _Kernel:
    """Builds the statements of one kernel; axes are variables that it defines."""

    def __init__(self, function: RowFunction, plan: RowPlan) -> None:
        self.function, self.plan = function, plan
        self.table: dict[Var, Any] = {param: _parameter(param) for param in function.func.params}
        self.cta, self.thread = Var("cta", "int32"), Var("thread", "int32")
        self.vector = Var("vector", "int32")
        self.vectors = list(vectors_of(function, plan, self.vector))
        #: The numbers of a thread's vectors.
        self.numbers = [Var(f"vector{index}", "int32") for index in range(plan.per_thread)]
        singles = [axis.var for axis in function.rows if _is_single(axis)]
        self.table |= {var: tirx.const(0, "int32") for var in singles}
        self.count = reduce(lambda x, y: x * y, (axis.extent for axis in function.rows), 1)

    def kernel(self) -> PrimFunc:
        """The whole function."""
        plan, function = self.plan, self.function
        total = self.count if plan.threads else self.count * plan.vectors
        step = plan.rows if plan.threads else plan.block
        grid = simplify(T.truncdiv(total + (step - 1), step))
        if not isinstance(grid, (int, tirx.IntImm)):
            grid = T.max(grid, 1)
        ids = [
            tirx.ScopeIdDefStmt(tirx.ScopeIdDef([self.cta], [grid], "kernel", "cta")),
            tirx.ScopeIdDefStmt(tirx.ScopeIdDef([self.thread], [plan.block], "cta", "thread")),
        ]
        body = [*ids, let_next_start(), wait_for_last(), *self._places(), *self._load()]
        for reduction in function.reductions:
            body += self._reduce(reduction)
        body += self._store()
        entry = tirx.AttrStmt(0, DEVICE_ENTRY, tirx.const(True, "bool"), ir.seq(body))
        params = [self.table[param] for param in function.func.params]
        made = PrimFunc(params, entry, function.func.ret_type)
        attrs = {**dict((function.func.attrs or {}).items()), "tirx.is_scheduled": True, MARK: True}
        for key, value in attrs.items():
            if key != "s_tir":
                made = made.with_attr(key, value)
        return made

    def _places(self) -> Iterator[Stmt]:
        """Which row, and which of its vectors, a thread has."""
        plan = self.plan
        row: Any = self.cta
        if not plan.threads:
            flat = Var("flat", "int32")
            yield tirx.Bind(flat, self.cta * plan.block + self.thread)
            self.inside = flat < self.count * plan.vectors
            yield tirx.Bind(self.numbers[0], T.truncmod(flat, plan.vectors))
            row = T.truncdiv(flat, plan.vectors)
        else:
            mine: Any = self.thread
            if plan.rows > 1:
                row = self.cta * plan.rows + T.truncdiv(self.thread, WARP)
                mine = T.truncmod(self.thread, WARP)
            self.inside = row < self.count
            for index, number in enumerate(self.numbers):
                yield tirx.Bind(number, mine + index * plan.threads)
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

    def _guarded(self, index: int, statements: list[Stmt]) -> Stmt:
        """Statements for a vector, where the thread has that vector."""
        condition = self.inside
        if self.plan.threads and not self.plan.is_even:
            condition = T.And(condition, self.numbers[index] < self.plan.vectors)
        return ir.when(condition, statements)

    def _load(self) -> Iterator[Stmt]:
        """All vectors of a thread into registers."""
        plan = self.plan
        moves: list[list[Stmt]] = [[] for _ in self.numbers]
        for part in self.vectors:
            source = self.table[part.load.source]
            yield tirx.AllocBuffer(part.registers)
            view, inside = (_words(buffer, plan) for buffer in (source, part.registers))
            yield from (_declared(view, source), _declared(inside, part.registers))
            words = int(inside.shape[0]) // plan.per_thread
            width = plan.vector // words
            for index, vector in enumerate(self.numbers):
                start = ir.substitute(part.start, {**self.table, self.vector: vector})
                start = T.truncdiv(start, width)
                for word in range(words):
                    value = view[simplify(start + word)]
                    moves[index].append(tirx.BufferStore(inside, value, [index * words + word]))
        for index, statements in enumerate(moves):
            if statements:
                yield self._guarded(index, statements)

    def _element(self, value: Any, index: int, lane: int) -> Any:
        """A value of one element that a thread has."""

        def load(node: TensorLoad) -> Any:
            for vector in self.vectors:
                if tvm_ffi.structural_equal(vector.load, node):
                    return vector.registers[index * self.plan.vector + lane]
            return node

        place = self.numbers[index] * self.plan.vector + lane
        changed = ir.map_nodes(value, {TensorLoad: load}, {})
        return simplify(ir.substitute(changed, {**self.table, self.function.columns.var: place}))

    def _reduce(self, reduction: Reduction) -> Iterator[Stmt]:
        """A reduction of a row: of a thread, of a warp, and of all that share the row."""
        plan, combine = self.plan, _COMBINE[reduction.combine]
        dtype = str(reduction.result.ty.dtype)
        own = tirx.decl_buffer((1,), dtype, f"{reduction.result.name}_own", scope="local")
        yield tirx.AllocBuffer(own)
        yield tirx.BufferStore(own, reduction.start, [0])
        for index in range(plan.per_thread):
            terms = [self._element(reduction.term, index, lane) for lane in range(plan.vector)]
            yield self._guarded(
                index, [tirx.BufferStore(own, combine(own[0], term), [0]) for term in terms]
            )
        mask = tirx.const(_EVERYONE, "uint32")
        distance = WARP // 2
        while distance:
            theirs = T.tvm_warp_shuffle_xor(mask, own[0], distance, WARP, WARP)
            yield tirx.BufferStore(own, combine(own[0], theirs), [0])
            distance //= 2
        warps = plan.threads // WARP
        total = own[0]
        if warps > 1:
            shared = tirx.decl_buffer(
                (warps,), dtype, f"{reduction.result.name}_all", scope="shared"
            )
            yield tirx.AllocBuffer(shared)
            first = T.truncmod(self.thread, WARP) == 0
            warp = T.truncdiv(self.thread, WARP)
            yield ir.when(first, [tirx.BufferStore(shared, own[0], [warp])])
            yield ir.evaluate(T.cuda.cta_sync())
            total = reduce(combine, (shared[number] for number in range(warps)))
        yield tirx.Bind(reduction.result, total)

    def _store(self) -> Iterator[Stmt]:
        """All results, in vectors."""
        plan = self.plan
        for output in self.function.outputs:
            element = output.buffer[output.indices]
            column = self.function.columns.var
            registers = registers_for(f"{output.buffer.name}_out", str(output.buffer.dtype), plan)
            target = self.table[output.buffer]
            view, inside = (_words(buffer, plan) for buffer in (target, registers))
            yield tirx.AllocBuffer(registers)
            yield from (_declared(view, target), _declared(inside, registers))
            words = int(inside.shape[0]) // plan.per_thread
            for index, vector in enumerate(self.numbers):
                place = {**self.table, column: vector * plan.vector}
                start = T.truncdiv(offset(element, place), plan.vector // words)
                statements = [
                    tirx.BufferStore(
                        registers, self._element(output.value, index, lane),
                        [index * plan.vector + lane],
                    )
                    for lane in range(plan.vector)
                ]  # fmt: skip
                statements += [
                    tirx.BufferStore(view, inside[index * words + word], [simplify(start + word)])
                    for word in range(words)
                ]
                yield self._guarded(index, statements)


def _is_single(axis: Axis) -> bool:
    return ir.is_constant(axis.extent, 1)


def _parameter(param: Var) -> Any:
    if not ir.is_buffer(param):
        return param  # a size, which shapes of buffers may be in terms of
    shape = list(param.shape)
    # `decl_buffer` gives a tensor without dimensions no layout, which TVM's FlattenBuffer needs.
    layout = "default" if shape else TileLayout(S[()])
    return tirx.decl_buffer(
        shape, str(param.dtype), param.name, scope="global", data_alignment=ALIGN, layout=layout
    )


def _words(buffer: Buffer, plan: RowPlan) -> Buffer:
    """A buffer as words of the size that a thread moves at a time."""
    bits = bits_of(str(buffer.dtype))
    word = min(plan.vector * bits, VECTOR_BITS)
    size = reduce(lambda x, y: x * y, buffer.shape, 1)
    count = simplify(T.truncdiv(size, word // bits))
    return tirx.decl_buffer((count,), _WORDS[word], f"{buffer.name}_words", scope=buffer.scope())


def _declared(view: Buffer, buffer: Buffer) -> Stmt:
    return tirx.DeclBuffer(view, data=buffer.data)
