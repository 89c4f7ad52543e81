"""Tiles in registers of three and more dimensions are matrices of their last dimension.

Layouts of registers know rows and columns. All dimensions but the last are rows, counted as memory
counts them: ``tile[i, j, k]`` of shape ``(I, J, K)`` is ``flat[i * J + j, k]``. A nest that counts
``i`` and ``j`` counts the rows instead, from which both follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.lower.analysis.layouts import has_layout, register_places
from warploom.lower.passes.parts_of_tiles import is_whole
from warploom.lower.passes.reduced_matrix import from_tile, matrix_of, placed
from warploom.lower.passes.reductions import plain_reduction, wide_dtype
from warploom.tile import ir
from warploom.tile.effects import REDUCTIONS
from warploom.tile.primitives import op_name, tile_call
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES
from warploom.tile.statement import Nest, Statement, view

_Flat = Mapping[Buffer, Buffer]


def is_deep(tile: Buffer) -> bool:
    """Whether a tile in registers has more dimensions than rows and columns."""
    return tile.scope() in TILE_SCOPES and len(tile.shape) > 2


def flat_fragments(program: TileProgram) -> TileProgram:
    """The program with matrices in place of tiles in registers of more than two dimensions.

    Its element-wise primitives and copies on such tiles are nests before.

    Raises
    ------
    Decline
        If another primitive than a reduction has such a tile, if the launch alone knows which part
        of it is reduced, or if it has a layout of its own.
    """
    flat: dict[Buffer, Buffer] = {}
    for tile in filter(is_deep, allocations(program.body)):
        if has_layout(tile):
            raise Decline(
                f"The tile {tile.name} of {len(tile.shape)} dimensions has a layout of its own; "
                "leave layout= out, or give the tile two dimensions."
            )
        *lead, last = (int(extent) for extent in tile.shape)
        shape = (math.prod(lead), last)
        flat[tile] = tirx.decl_buffer(shape, str(tile.dtype), tile.name, scope=tile.scope())
    if not flat:
        return program

    def change(statement: Statement) -> Stmt:
        raw = statement.raw
        if isinstance(statement, Nest):
            return _nest(statement, flat)
        if isinstance(raw, TilePrimitiveCall):
            return ir.written_at(_call(raw, flat), raw.span)
        return statement.with_each(change)

    body = [leaf for statement in program.block for leaf in ir.flatten(change(statement))]
    body = [ir.substitute(_flatten(raw, flat), flat) for raw in body]
    return program.replace(body=tuple(body)).decided(
        *(f"{tile.name}: {len(tile.shape)} dimensions, the last of which are columns"
          for tile in flat)
    )  # fmt: skip


@dataclass(frozen=True)
class _Rows:
    """A loop over the rows of deep tiles, in place of loops over all dimensions but the last.

    Attributes
    ----------
    loops : tuple of Var
        Those that it replaces, the outermost dimension first. A dimension of one element has none.
    extents : tuple of int
        Of those.
    row : Var
    """

    loops: tuple[Var, ...]
    extents: tuple[int, ...]
    row: Var

    def counts(self, tile: Buffer, indices: Sequence[Any]) -> bool:
        """Whether these indices of a tile, all but the last, are the row."""
        counted = _counted(tile, indices)
        same = all(index.same_as(var) for (index, _), var in zip(counted, self.loops, strict=False))
        return same and tuple(size for _, size in counted) == self.extents

    @property
    def of_loops(self) -> dict[Var, Any]:
        """The variables of the loops from the row."""
        table: dict[Var, Any] = {}
        below = 1
        for var, extent in reversed(list(zip(self.loops, self.extents, strict=True))):
            place = self.row if below == 1 else T.floordiv(self.row, below)
            table[var] = place if var is self.loops[0] else T.floormod(place, extent)
            below *= extent
        return table


def _counted(tile: Buffer, indices: Sequence[Any]) -> list[tuple[Any, int]]:
    """Indices of all dimensions but the last and their extents, without the only index of one."""
    pairs = [(index, int(size)) for index, size in zip(indices, tile.shape[:-1], strict=False)]
    return [pair for pair in pairs if not (pair[1] == 1 and ir.is_constant(pair[0], 0))]


def _row(tile: Buffer, indices: Sequence[Any]) -> Any:
    """The row of an element, from its indices in all dimensions but the last."""
    row = indices[0]
    for index, extent in zip(indices[1:], tile.shape[1:-1], strict=True):
        row = row * int(extent) + index
    return row


def _flatten(statement: Stmt, flat: _Flat, rows: _Rows | None = None) -> Stmt:
    """The statement with elements of matrices in place of those of deep tiles."""

    def moved(tile: Buffer, indices: Sequence[Any]) -> tuple[Buffer, list[Any]] | None:
        if tile not in flat:
            return None
        *lead, last = indices
        counted = rows is not None and rows.counts(tile, lead)
        return flat[tile], [rows.row if counted else _row(tile, lead), last]

    return tvm_ffi.structural_map(statement, ir.element_callbacks(moved), order="post")


def _nest(nest: Nest, flat: _Flat) -> Stmt:
    """A nest whose loops over all dimensions but the last of a deep tile are one over its rows."""
    loops = {loop.loop_var: loop for loop in nest.loops}
    rows = _rows(nest, flat)
    if rows is None:
        return _flatten(nest.raw, flat)
    body = _flatten(ir.seq(part.raw for part in nest.parts), flat, rows)
    rest = [loop for var, loop in loops.items() if var not in rows.loops]
    return ir.nest(
        [rows.row, *(loop.loop_var for loop in rest)],
        [math.prod(rows.extents), *(loop.extent for loop in rest)],
        [_simple_places(ir.substitute(body, rows.of_loops))],
        dict(nest.loops[0].annotations),
    )


def _simple_places(statement: Stmt) -> Stmt:
    """The statement with simplified indices: ``row // 8 * 8 + row % 8`` is the row."""
    analyzer = Analyzer()

    def moved(buffer: Buffer, indices: Sequence[Any]) -> tuple[Buffer, list[Any]]:
        return buffer, [analyzer.simplify(index) for index in indices]

    return tvm_ffi.structural_map(statement, ir.element_callbacks(moved), order="post")


def _rows(nest: Nest, flat: _Flat) -> _Rows | None:
    """The loops that count rows: those of a deep tile that it stores, or else reads, by them."""
    loops = {loop.loop_var: loop for loop in nest.loops}
    stored = {store.buffer for store in nest.stores}
    every = [(tile, at) for tile, at in register_places(nest.raw) if tile in flat]
    for tile, (*before, last) in sorted(every, key=lambda place: place[0] not in stored):
        lead = tuple(index for index, _ in _counted(tile, before))
        column = last in loops or (ir.is_constant(last, 0) and int(tile.shape[-1]) == 1)
        if lead and len(set(lead)) == len(lead) and column and all(v in loops for v in lead):
            extents = tuple(int(loops[var].extent) for var in lead)
            name = "_".join(var.name for var in lead)
            return _Rows(lead, extents, Var(name, lead[0].ty.dtype))
    return None


def _call(call: TilePrimitiveCall, flat: _Flat) -> Stmt:
    """A reduction of a deep tile, as those of the matrix."""
    deep = [a.source for a in call.args if isinstance(a, TensorRegion) and a.source in flat]
    if not deep:
        return call
    if op_name(call) not in REDUCTIONS:
        raise Decline(
            f"{op_name(call)} takes the tile {deep[0].name} of {len(deep[0].shape)} dimensions; "
            "copy it to a tile of one or two dimensions before."
        )
    to, source, axes, accumulate = call.args
    if source.source not in flat:  # as no reduction adds dimensions
        raise Decline(f"The reduction into {to.source.name} is over no dimension.")
    last = len(source.source.shape) - 1
    reduced = {int(axis) % (last + 1) for axis in axes}
    tile = flat[source.source]
    of_rows, of_columns = reduced >= set(range(last)), last in reduced
    matrix_axes = [axis for axis, is_reduced in enumerate((of_rows, of_columns)) if is_reduced]
    if is_whole(source) and to.source not in flat and (
        of_rows or (reduced == {last} and len(to.source.shape) == 1)
    ):
        return plain_reduction(tile_call(call, to, ir.whole(tile), matrix_axes, accumulate))
    if is_whole(source) and reduced == {last}:
        return _into_rows(call, flat)
    return _of_other_dimensions(call, reduced, flat)


def _into_rows(call: TilePrimitiveCall, flat: _Flat) -> Stmt:
    """A reduction over the last dimension: a vector of all rows, then each result in its place."""
    rows, _ = (int(extent) for extent in flat[call.args[1].source].shape)
    total = _vector(call, rows)
    return ir.seq([
        tirx.AllocBuffer(total),
        plain_reduction(
            tile_call(call, ir.whole(total), ir.whole(flat[call.args[1].source]), [1], False)
        ),
        _nest(view(placed(call, total)), flat),
    ])  # fmt: skip


def _of_other_dimensions(call: TilePrimitiveCall, reduced: set[int], flat: _Flat) -> Stmt:
    """A reduction over any dimensions of any part of a tile.

    Its elements go to a shared matrix, a row of it for each result.
    """
    _, source, _, _ = call.args
    tile, ranges = source.source, ir.ranges(source)
    if not all(isinstance(extent, tirx.IntImm) for _, extent in ranges):
        raise Decline(
            f"The reduction of {tile.name}, a tile of {len(tile.shape)} dimensions, is of a part "
            "whose extents the launch alone knows; reduce constant extents of it, or give the tile "
            "two dimensions."
        )
    matrix = matrix_of(source, reduced, "shared")
    total = _vector(call, int(matrix.shape[0]))
    return ir.seq([
        tirx.AllocBuffer(matrix),
        tirx.AllocBuffer(total),
        _nest(view(from_tile(matrix, source, reduced)), flat),
        plain_reduction(tile_call(call, ir.whole(total), ir.whole(matrix), [1], False)),
        _nest(view(placed(call, total)), flat),
    ])  # fmt: skip


def _vector(call: TilePrimitiveCall, rows: int) -> Buffer:
    """A vector for so many results of a reduction."""
    to = call.args[0].source
    return tirx.decl_buffer((rows,), wide_dtype(to), f"{to.name}_of_rows", scope="fragment")
