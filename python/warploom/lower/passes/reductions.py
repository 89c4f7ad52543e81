"""Reductions in the forms that have instructions: along rows, by blocks of rows, of shared tiles.

A thread of the tensor core's fragments holds parts of few rows, and each row lies in one warp: a
reduction along rows stays in registers. What several warps hold goes through shared memory:

* over rows, each warp reduces blocks of its own rows into a row of a shared tile each, and threads
  then put the rows of that tile together;
* over both, rows first;
* of vectors, through a shared copy, as they may lie along rows or along columns.

Where a grid of threads holds the tiles, it reduces rows, columns and vectors where they are.

Results of 16 or 8 bits are computed in 32.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.lower.passes.parts_of_tiles import (
    COMBINE,
    NEUTRAL,
    accumulated,
    flag,
    inside,
    is_whole,
    reduction_of_part,
    with_neutral_rest,
)
from warploom.lower.passes.reduced_matrix import into_matrix, matrix_of, placed
from warploom.tile import ir
from warploom.tile.primitives import op_name, tile_call
from warploom.tile.scopes import TILE_SCOPES, is_shared
from warploom.tile_primitives import BLOCKS

#: Rows of a block, which lie in one warp in every fragment.
_BLOCK_ROWS = 16
#: Dtype of a tile -> the dtype in which it is reduced; others no schedule reduces.
_WIDE = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"), "float32"),
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16"), "int32"),
    "float32": "float32",
    "int32": "int32",
}


def plain_reduction(call: TilePrimitiveCall) -> Stmt:
    """A reduction as statements in the forms that passes and schedules know."""
    reduction = _known(call)
    if reduction is None:
        return call
    to, source, _, accumulate = call.args
    if reduction.axes == {1} and _takes_some_rows(to, source):
        return reduction_of_part(call)  # no schedule does: whoever shares out rows says so
    if len(_wide_extents(to)) > 2:
        return ir.seq(reduction.of_matrix("shared"))  # no registers have so many dimensions
    wide, accumulate = reduction.dtype, flag(accumulate)
    in_place = (
        to.source.scope() == "fragment" and is_whole(to) and str(to.source.dtype) == wide
        and len(to.region) <= 2
    )  # fmt: skip
    if in_place:
        return ir.seq(reduction.into(to, accumulate))
    total = _total(to, wide)
    return ir.seq([
        tirx.AllocBuffer(total),
        *_begun(to, total, accumulate, op_name(call)),
        *reduction.into(ir.whole(total), accumulate is not False),
        _stored(to, total),
    ])  # fmt: skip


def wide_dtype(tile: Buffer) -> str:
    """The dtype in which a tile is reduced: its own, where no schedule reduces its dtype."""
    return _WIDE.get(str(tile.dtype), str(tile.dtype))


def _known(call: TilePrimitiveCall) -> _Reduction | None:
    """A reduction of the statements of a CTA, if there are forms for its dtype and extents."""
    to, source, axes, _ = call.args
    extents = [extent for _, extent in (*ir.ranges(to), *ir.ranges(source))]
    wide = _WIDE.get(str(source.source.dtype))
    known = all(isinstance(extent, tirx.IntImm) for extent in extents)
    if BLOCKS in call.config or wide is None or not known:
        return None
    return _Reduction(call, source, frozenset(int(a) % len(source.region) for a in axes), wide)


def _takes_some_rows(to: TensorRegion, source: TensorRegion) -> bool:
    """Whether a reduction of rows has results in a part of a vector in registers."""
    tiles = (to.source, source.source)
    if any(tile.scope() not in TILE_SCOPES for tile in tiles) or len(source.source.shape) != 2:
        return False
    first, extent = ir.ranges(to)[0]
    rows = int(to.source.shape[0])
    return rows != 1 and not (ir.is_constant(first, 0) and ir.is_constant(extent, rows))


def _wide_extents(region: TensorRegion) -> list[int]:
    return [int(extent) for _, extent in ir.ranges(region) if int(extent) != 1]


def _total(to: TensorRegion, dtype: str, kind: str = "total") -> Buffer:
    """A fragment for the elements of a region."""
    shape = _wide_extents(to) or [1, 1]
    return tirx.decl_buffer(shape, dtype, f"{to.source.name}_{kind}", scope="fragment")


def _between(to: TensorRegion, total: Buffer) -> tuple[list[Var], list[Any]]:
    """Counters of the elements of a total, and the indices of each in the region ``to``."""
    counters = ir.counters(len(total.shape))
    free = iter(counters if len(_wide_extents(to)) == len(counters) else [])
    indices = [
        start if int(extent) == 1 else start + next(free) if not ir.is_constant(start, 0)
        else next(free)
        for start, extent in ir.ranges(to)
    ]  # fmt: skip
    return counters, indices


def _begun(to: TensorRegion, total: Buffer, accumulate: Any, name: str) -> list[Stmt]:
    """The old values of the results, where they take part."""
    if accumulate is False:
        return []
    counters, indices = _between(to, total)
    dtype = str(total.dtype)
    value = T.Cast(dtype, to.source[tuple(indices)])
    if accumulate is not True:
        value = T.if_then_else(accumulate, value, tirx.const(NEUTRAL[name](dtype), dtype))
    store = tirx.BufferStore(total, value, counters)
    return [ir.nest(counters, map(int, total.shape), [store])]


def _stored(to: TensorRegion, total: Buffer) -> Stmt:
    """The results in their place, in its dtype."""
    counters, indices = _between(to, total)
    value = T.Cast(str(to.source.dtype), total[tuple(counters)])
    store = tirx.BufferStore(to.source, value, indices)
    return ir.nest(counters, map(int, total.shape), [store])


def of_vectors(statement: Stmt) -> Stmt:
    """A statement whose reductions of vectors read shared copies.

    So are those of matrices of one row or column, which fragments hold as vectors.
    """

    def call(reduction: TilePrimitiveCall) -> Stmt:
        if op_name(reduction) not in COMBINE or reduction.scope.name != "cta":
            return reduction
        to, source, _, accumulate = reduction.args
        tile, known = source.source, _known(reduction)
        if known is None or tile.scope() not in TILE_SCOPES:
            return reduction
        if len(tile.shape) == 2 and 1 not in map(int, tile.shape):
            return reduction
        return ir.written_at(ir.seq(known.of_vector(to, flag(accumulate))), reduction.span)

    return tvm_ffi.structural_map(statement, (TilePrimitiveCall, call), order="pre")


def in_registers(statement: Stmt) -> Stmt:
    """A statement whose reductions of shared tiles take copies of them in registers.

    So a grid of threads wants it, which reduces what it holds.
    """

    def call(reduction: TilePrimitiveCall) -> Stmt:
        if op_name(reduction) not in COMBINE or reduction.scope.name != "cta":
            return reduction
        to, source, _, accumulate = reduction.args
        in_scope = is_shared(source.source) and to.source.scope() in TILE_SCOPES
        known = _known(reduction)
        if known is None or not in_scope:
            return reduction
        wide = [d for d, (_, extent) in enumerate(ir.ranges(source)) if int(extent) != 1]
        reduced = frozenset(wide.index(axis) for axis in known.axes if axis in wide)
        if not reduced:
            return ir.written_at(known._taken(to, flag(accumulate)), reduction.span)
        if len(wide) > 2:
            return ir.written_at(ir.seq(known.of_matrix("fragment")), reduction.span)
        copy = _total(source, str(source.source.dtype), "copy")
        counters, indices = _between(source, copy)
        store = tirx.BufferStore(copy, source.source[tuple(indices)], counters)
        of_copy = _Reduction(reduction, ir.whole(copy), reduced, known.dtype)
        return ir.written_at(ir.seq([
            tirx.AllocBuffer(copy),
            ir.nest(counters, map(int, copy.shape), [store]),
            *of_copy.into(to, flag(accumulate)),
        ]), reduction.span)  # fmt: skip

    return tvm_ffi.structural_map(statement, (TilePrimitiveCall, call), order="pre")


def by_blocks(statement: Stmt) -> Stmt:
    """A statement whose reductions over rows of fragments go by blocks of rows.

    Warps reduce blocks into a shared tile, and threads its rows.
    """

    def call(reduction: TilePrimitiveCall) -> Stmt:
        if op_name(reduction) not in COMBINE or BLOCKS in reduction.config:
            return reduction
        to, source, axes, accumulate = reduction.args
        tile = source.source
        if tile.scope() not in TILE_SCOPES or [int(axis) for axis in axes] != [0]:
            return reduction
        rows, *columns = (int(extent) for extent in tile.shape)
        blocks = rows // math.gcd(rows, _BLOCK_ROWS)
        parts = tirx.decl_buffer(
            (blocks, *columns), str(to.source.dtype), f"{tile.name}_blocks", scope="shared"
        )
        kept = ir.region(parts, (0, blocks), *ir.ranges(source)[1:])
        options = {BLOCKS: blocks}
        return ir.written_at(ir.seq([
            tirx.AllocBuffer(parts),
            tile_call(reduction, ir.whole(parts), ir.whole(tile), [0], False, **options),
            tile_call(reduction, to, kept, [0], accumulate),
        ]), reduction.span)  # fmt: skip

    return tvm_ffi.structural_map(statement, (TilePrimitiveCall, call), order="pre")


@dataclass
class _Reduction:
    """A reduction of a region over some of its dimensions, in 32 bits."""

    call: TilePrimitiveCall
    source: TensorRegion
    axes: frozenset[int]
    dtype: str
    before: list[Stmt] = field(default_factory=list)

    @property
    def tile(self) -> Buffer:
        return self.source.source

    def into(self, to: TensorRegion, accumulate: Any) -> list[Stmt]:
        """The statements that reduce into a fragment."""
        if is_shared(self.tile):
            return [*self._in_shared(), self._call(to, self.source, sorted(self.axes), accumulate)]
        if len(self.tile.shape) != 2 or 1 in map(int, self.tile.shape):
            if self._of_rows_or_columns():
                (axis,) = self._long_axes()
                return [self._call(to, self.source, [axis], accumulate)]
            return self.of_vector(to, accumulate)
        # One row or column of a tile: the others are neutral.
        single = {d for d, (_, extent) in enumerate(ir.ranges(self.source)) if int(extent) == 1}
        axes = self.axes | single
        if axes == {1}:
            return [reduction_of_part(self._call(to, self.source, [1], accumulate))]
        columns = ir.ranges(self.source)[1]
        if not is_whole(ir.region(self.tile, *self._reduced_part(axes))):
            statements, self.source = with_neutral_rest(self.source, op_name(self.call))
            self.before += statements
        if axes == {0}:
            return [*self.before, *self._over_rows(to, accumulate, columns)]
        row = tirx.decl_buffer((self.tile.shape[0],), self.dtype, "row_total", scope="fragment")
        return [
            *self.before,
            tirx.AllocBuffer(row),
            self._call(ir.whole(row), ir.whole(self.tile), [1], False),
            *_Reduction(self.call, ir.whole(row), frozenset({0}), self.dtype)._over_rows(
                to, accumulate
            ),
        ]

    def _long_axes(self) -> list[int]:
        return [d for d in sorted(self.axes) if int(self.tile.shape[d]) != 1]

    def _of_rows_or_columns(self) -> bool:
        """Whether it is of a vector, or of each row or column of a matrix: threads of a grid do it.

        What is left out of the rows that are reduced may be any part of them.
        """
        axes = self._long_axes()
        if len(self.tile.shape) > 2 or len(axes) != 1:
            return False
        if len(self.tile.shape) == 1:
            return True
        first, extent = ir.ranges(self.source)[1 - axes[0]]
        return ir.is_constant(first, 0) and int(extent) == int(self.tile.shape[1 - axes[0]])

    def _in_shared(self) -> list[Stmt]:
        """Many rows of a shared tile by blocks, which threads share out; the blocks are left."""
        extents = [int(extent) for _, extent in ir.ranges(self.source)]
        height = math.gcd(extents[0], _BLOCK_ROWS)
        blocks = extents[0] // height
        if 0 not in self.axes or height == 1 or blocks == 1:
            return []
        name = f"{self.tile.name}_blocks"
        parts = tirx.decl_buffer((blocks, *extents[1:]), self.dtype, name, scope="shared")
        counters = [Var(f"i{dimension}", "int32") for dimension in range(len(extents))]
        (first, _), *others = ir.ranges(self.source)
        rest = [start + i for (start, _), i in zip(others, counters[1:], strict=True)]
        rows = (
            T.Cast(self.dtype, self.tile[(first + counters[0] * height + row, *rest)])
            for row in range(height)
        )
        total = functools.reduce(COMBINE[op_name(self.call)], rows)
        store = tirx.BufferStore(parts, total, counters)
        self.source = ir.whole(parts)
        return [tirx.AllocBuffer(parts), ir.nest(counters, parts.shape, [store])]

    def _reduced_part(self, axes: frozenset[int]) -> list[tuple[Any, Any]]:
        """The region along dimensions that are reduced; of the others, all."""
        pairs = enumerate(zip(ir.ranges(self.source), self.tile.shape, strict=True))
        return [part if d in axes else (0, int(extent)) for d, (part, extent) in pairs]

    def _over_rows(self, to: TensorRegion, accumulate: Any, *kept: Any) -> list[Stmt]:
        """The reduction over the rows of a whole tile; ``kept`` is which columns it keeps."""
        rows = (0, int(self.tile.shape[0]))
        return [self._call(to, ir.region(self.tile, rows, *kept), [0], accumulate)]

    def of_vector(self, to: TensorRegion, accumulate: Any) -> list[Stmt]:
        """The elements of a vector, of which threads read a shared copy."""
        if not any(int(self.tile.shape[d]) != 1 for d in self.axes):
            return [self._taken(to, accumulate)]
        ranges = ir.ranges(self.source)
        along = next(d for d, extent in enumerate(self.tile.shape) if int(extent) != 1)
        first, extent = ranges[along]
        copy = tirx.decl_buffer(
            (int(extent),), str(self.tile.dtype), f"{self.tile.name}_shared", scope="shared"
        )
        counters = ir.counters(len(self.tile.shape))
        place = counters[along] if is_whole(self.source) else counters[along] - first
        store = tirx.BufferStore(copy, self.tile[tuple(counters)], [place])
        guarded = ir.when(inside(self.source, counters), [store])
        of_copy = _Reduction(self.call, ir.whole(copy), frozenset({0}), self.dtype)
        return [
            tirx.AllocBuffer(copy),
            ir.nest(counters, map(int, self.tile.shape), [guarded]),
            *of_copy.into(to, accumulate),
        ]

    def of_matrix(self, scope: str) -> list[Stmt]:
        """The reduction of a matrix of the elements of several dimensions, into its place."""
        matrix = matrix_of(self.source, self.axes, scope)
        total = tirx.decl_buffer(
            (matrix.shape[0],), self.dtype, f"{self.tile.name}_rows", scope="fragment"
        )
        of_rows = _Reduction(self.call, ir.whole(matrix), frozenset({1}), self.dtype)
        return [
            tirx.AllocBuffer(matrix),
            tirx.AllocBuffer(total),
            into_matrix(matrix, self.source, self.axes),
            *of_rows.into(ir.whole(total), False),
            placed(self.call, total),
        ]

    def _taken(self, to: TensorRegion, accumulate: Any) -> Stmt:
        """A reduction of single elements, which is a copy."""
        wide = [d for d, extent in enumerate(to.source.shape) if int(extent) != 1] or [0]
        counters = ir.counters(len(wide))
        of = dict(zip(wide, counters, strict=True))
        places = [of.get(d, tirx.const(0, "int32")) for d in range(len(to.source.shape))]
        free = iter(counters)
        indices = [
            first if int(extent) == 1 else first + next(free)
            for first, extent in ir.ranges(self.source)
        ]
        value = T.Cast(self.dtype, self.tile[tuple(indices)])
        value = accumulated(self.call, to.source[tuple(places)], value, accumulate)
        store = tirx.BufferStore(to.source, value, places)
        return ir.nest(counters, [int(to.source.shape[d]) for d in wide], [store])

    def _call(self, to: TensorRegion, source: TensorRegion, axes: list[int], add: Any) -> Stmt:
        return tile_call(self.call, to, source, axes, add)
