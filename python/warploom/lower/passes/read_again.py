"""Rows that no registers hold are read again for each use, part by part.

A tile whose elements are computed from global memory and from a few values of its row need not be
kept: each reduction and each store goes through the row in parts and computes the elements anew.
All reads but the first mostly find the row in the L2 cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.lower.analysis.layouts import register_places
from warploom.lower.passes.parts_of_tiles import NEUTRAL
from warploom.tile import ir
from warploom.tile.annotations import PART_OF_ROW
from warploom.tile.nest import Binding, ElementStore, Guard, Part
from warploom.tile.primitives import op_name, tile_call
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES, is_global
from warploom.tile.statement import Allocation, Nest, Reduction, Statement

#: Elements of all rows of a part: 16 for each of 512 threads.
_PART = 8192
#: Loads from memory for an element, beyond which it is not computed anew.
_MOST_LOADS = 8
#: TVM's annotation for ``#pragma unroll 1``: several parts at a time would spill.
_KEPT = {"disable_unroll": True}
_COMBINE = {"sum": lambda a, b: a + b, "max": T.max, "min": T.min}


@dataclass(frozen=True)
class _Formula:
    """An element of a tile from its indices."""

    variables: tuple[Var, ...]
    value: Any

    def at(self, indices: Sequence[Any]) -> Any:
        return ir.substitute(self.value, dict(zip(self.variables, indices, strict=True)))


def read_again(program: TileProgram) -> TileProgram:
    """The program without tiles of whole rows.

    Raises
    ------
    Decline
        If elements cannot be computed anew: other statements have changed what they depend on, or
        they stand in loops or branches.
    """
    tiles = [tile for tile in allocations(program.body) if tile.scope() in TILE_SCOPES]
    columns = max(int(tile.shape[-1]) for tile in tiles)
    long = {tile for tile in tiles if int(tile.shape[-1]) == columns}
    rows = max((int(tile.shape[0]) for tile in long if len(tile.shape) == 2), default=1)
    width = 1 << (max(1, _PART // rows).bit_length() - 1)
    if width >= columns:
        raise Decline(f"{rows} rows of {columns} elements are no long rows.")
    again = _Again(long, columns, width)
    return program.replace(body=tuple(again.run(program.block))).decided(
        f"rows of {columns} elements: read again for each use, {width} elements at a time"
    )


def _may_be(buffer: Buffer, other: Buffer) -> bool:
    """Whether two buffers may be the same memory: tensors of one shape, as a caller gives them."""
    if buffer.same_as(other):
        return True
    alike = is_global(buffer) and is_global(other) and str(buffer.dtype) == str(other.dtype)
    return alike and tvm_ffi.structural_equal(buffer.shape, other.shape)


@dataclass(frozen=True)
class _Stores:
    """A nest that stores elements of rows to memory.

    Attributes
    ----------
    nest : Nest
    column : Var
        Its loop variable that counts the elements of a row.
    parts : list of Stmt
        Its statements, without elements of long tiles.
    """

    nest: Nest
    column: Var
    parts: list[Stmt]

    def loops(self, inner: list[Stmt], column: Var, width: int) -> Stmt:
        """The loops of the nest around other statements, with so many elements of a row."""
        for loop in reversed(self.nest.loops):
            if loop.loop_var.same_as(self.column):
                inner = [ir.loop(column, width, inner)]
            else:
                inner = [ir.loop(loop.loop_var, loop.extent, inner)]
        return inner[0]

    @property
    def single(self) -> tirx.BufferStore | None:
        """The store that the nest of rows and columns consists of, if it does."""
        is_store = len(self.parts) == 1 and isinstance(self.parts[0], tirx.BufferStore)
        return self.parts[0] if is_store and len(self.nest.loops) == 2 else None


@dataclass
class _Again:
    """Goes through a program; ``formulas`` has how elements of long tiles are computed."""

    long: set[Buffer]
    columns: int
    width: int
    formulas: dict[Buffer, _Formula] = field(default_factory=dict)
    #: Stores to memory that follow each other: they go through the row together.
    stores: list[_Stores] = field(default_factory=list)

    def run(self, statements: Sequence[Statement]) -> list[Stmt]:
        """The statements in place of a program's."""
        result: list[Stmt] = []
        for statement in statements:
            if not self._joins(statement):
                result += self._flush()
            result += self.statement(statement)
        return [*result, *self._flush()]

    def _joins(self, statement: Statement) -> bool:
        """Whether a statement is no reason to store what is to be stored."""
        used = ir.uses(statement.raw) & self.long
        if isinstance(statement, Allocation):
            return True
        return isinstance(statement, Nest) and bool(used) and all(
            store.buffer in self.long or is_global(store.buffer) for store in statement.stores
        )

    def statement(self, statement: Statement) -> list[Stmt]:
        """The statements in its place."""
        raw = statement.raw
        if isinstance(statement, Allocation) and statement.buffer in self.long:
            return []
        used = ir.uses(raw) & self.long
        if not used:
            self._changes(statement)
            return [raw]
        if isinstance(statement, Reduction):
            return self._reduction(statement)
        if not isinstance(statement, Nest):
            raise Decline(
                f"{min(tile.name for tile in used)} is used in a loop or branch, where it is not "
                "computed anew; keep fewer elements of a row."
            )
        if any(store.buffer in self.long for store in statement.stores):
            self._define(statement)
            return []
        inlined = [self._part(part) for part in statement.parts]
        self.stores.append(_Stores(statement, self._column_of(statement), inlined))
        return []

    def _changes(self, statement: Statement) -> None:
        """Forget formulas of what a statement changes, or may change: kernels work in place."""
        written = statement.effects.writes
        for tile, formula in list(self.formulas.items()):
            read = [var for var in ir.uses(formula.value) if ir.is_buffer(var)]
            if any(_may_be(one, other) for one in read for other in written):
                del self.formulas[tile]

    # -- formulas ------------------------------------------------------------------------------

    def _define(self, nest: Nest) -> None:
        """Note how a nest computes elements of a tile."""
        *bindings, store = nest.parts
        plain = isinstance(store, ElementStore) and all(isinstance(b, Binding) for b in bindings)
        loops = {loop.loop_var: int(loop.extent) for loop in nest.loops}
        whole = plain and [
            1 if ir.is_constant(index, 0) else loops.get(index, 0) for index in store.indices
        ] == [int(extent) for extent in store.buffer.shape]
        if not whole:
            name = min(s.buffer.name for s in nest.stores if s.buffer in self.long)
            raise Decline(
                f"A nest changes a part of {name}, which is more than registers hold; let it "
                "compute all elements."
            )
        table: dict[Var, Any] = {}
        for binding in bindings:
            table[binding.variable] = ir.substitute(binding.value, table)
        value = self._inlined(ir.substitute(store.value, table))
        variables = tuple(
            index if isinstance(index, Var) else Var("row", "int32") for index in store.indices
        )
        self.formulas[store.buffer] = _Formula(variables, value)

    def _inlined(self, value: Any) -> Any:
        """An expression without elements of long tiles."""

        def load(node: TensorLoad) -> Any:
            if node.source not in self.long:
                return node
            if node.source not in self.formulas:
                raise Decline(
                    f"Elements of {node.source.name} cannot be computed anew, as what they depend "
                    "on may have changed; store results last."
                )
            return self.formulas[node.source].at(node.indices)

        new = tvm_ffi.structural_map(value, (TensorLoad, load), order="post")
        loads: list[TensorLoad] = []
        tvm_ffi.structural_walk(new, (TensorLoad, loads.append))
        if sum(is_global(node.source) for node in loads) > _MOST_LOADS:
            raise Decline("An element depends on too many elements of memory to be computed anew.")
        return new

    # -- uses ----------------------------------------------------------------------------------

    def _in_parts(self, make: Any) -> Stmt:
        """A loop over parts of a row; ``make`` gives statements from a place in the row."""
        part = Var("part_of_row", "int32")
        count = -(-self.columns // self.width)
        # The mark keeps the loop apart from the nest in it, which threads share out.
        body = tirx.AttrStmt(0, PART_OF_ROW, part, ir.seq(make(part * self.width)))
        return ir.loop(part, count, [body], _KEPT)

    def _flush(self) -> list[Stmt]:
        """Store what is to be stored, all of it in one loop over parts of a row."""
        stores, self.stores = self.stores, []
        if not stores:
            return []
        if len(stores) == 1:
            result = [self._in_parts(lambda start: [self._stored(stores[0], start)])]
        else:
            result = self._stored_together(stores)
        for each in stores:
            self._changes(each.nest)
        return result

    def _in_row(self, inner: list[Stmt], place: Any) -> list[Stmt]:
        """Statements for a place of a row, if it is one."""
        return [ir.when(place < self.columns, inner)] if self.columns % self.width else inner

    def _stored(self, stores: _Stores, start: Any) -> Stmt:
        """The stores of one part of a row."""
        local = Var(stores.column.name, "int32")
        inner = [ir.substitute(raw, {stores.column: start + local}) for raw in stores.parts]
        nest = stores.loops(self._in_row(inner, start + local), local, self.width)
        return ir.seq(ir.renewed([nest]))

    def _stored_together(self, stores: list[_Stores]) -> list[Stmt]:
        """Several stores: of each part all values are computed before one of them is stored.

        One of them may go where another reads.
        """
        if any(each.single is None for each in stores):
            raise Decline(
                "Several nests store a long row one after the other under conditions; store it in "
                "one nest, or without."
            )
        tiles = [
            tirx.decl_buffer(
                (int(one.nest.loops[0].extent), self.width), str(one.single.buffer.dtype),
                f"{one.single.buffer.name}_part", scope="fragment",
            )
            for one in stores
        ]  # fmt: skip

        def make(start: Any) -> list[Stmt]:
            values, moves = [], []
            for each, tile in zip(stores, tiles, strict=True):
                store, row = each.single, each.nest.loops[0].loop_var
                for to, result in ((tile, values), (None, moves)):
                    local = Var(each.column.name, "int32")
                    value = tile[row, local] if to is None else store.value
                    raw = tirx.BufferStore(
                        store.buffer if to is None else tile, value,
                        store.indices if to is None else [row, local], store.span,
                    )  # fmt: skip
                    inner = ir.substitute(raw, {each.column: start + local})
                    nest = each.loops(self._in_row([inner], start + local), local, self.width)
                    result += ir.renewed([nest])
            return [*values, *moves]

        return [*map(tirx.AllocBuffer, tiles), self._in_parts(make)]

    def _part(self, part: Part) -> Stmt:
        if isinstance(part, Guard):
            return ir.when(self._inlined(part.condition), [self._part(p) for p in part.parts])
        if isinstance(part, Binding):
            return tirx.Bind(part.variable, self._inlined(part.value))
        indices = [self._inlined(index) for index in part.indices]
        return tirx.BufferStore(part.buffer, self._inlined(part.value), indices, part.raw.span)

    def _column_of(self, nest: Nest) -> Var:
        """The loop variable that counts the elements of a row."""
        found = {
            at[-1] for tile, at in register_places(nest.raw)
            if tile in self.long and isinstance(at[-1], Var)
        }  # fmt: skip
        extents = {loop.loop_var: int(loop.extent) for loop in nest.loops}
        if len(found) != 1 or extents.get(next(iter(found))) != self.columns:
            raise Decline("A nest uses other elements of a row than it counts.")
        return found.pop()

    def _reduction(self, reduction: Reduction) -> list[Stmt]:
        """Reduce part by part into a tile of one part, which is reduced at last."""
        call = reduction.raw
        to, source = call.args[0], call.args[1].source
        if to.source in self.long or len(source.shape) != 2:
            raise Decline(f"{to.source.name} is a reduction of columns, of which there are many.")
        rows, dtype = int(source.shape[0]), str(source.dtype)
        name = op_name(call)
        neutral = tirx.const(NEUTRAL[name](dtype), dtype)
        tile = tirx.decl_buffer((rows, self.width), dtype, f"{source.name}_part", scope="fragment")
        first, size = ir.ranges(call.args[1])[1]

        def nest(value: Any, counters: list[Var]) -> Stmt:
            store = tirx.BufferStore(tile, value, counters, call.span)
            return ir.nest(counters, (rows, self.width), [store])

        def make(start: Any) -> list[Stmt]:
            counters = [Var("i", "int32"), Var("j", "int32")]
            place = start + counters[1]
            value = self._inlined(source[counters[0], place])
            if int(size) % self.width or not ir.is_constant(first, 0):
                inside = T.And(place >= first, place < first + size)
                value = T.if_then_else(inside, value, neutral)
            return [nest(_COMBINE[name](tile[tuple(counters)], value), counters)]

        counters = [Var("i", "int32"), Var("j", "int32")]
        result = tile_call(call, to, ir.whole(tile), *call.args[2:])
        parts = self._in_parts(make)
        self._changes(reduction)
        return [tirx.AllocBuffer(tile), nest(neutral, counters), parts, result]
