"""Gives tiles of the dialect's scopes a home: registers of consumer warpgroups.

On Blackwell, accumulators stay accumulators, in tensor memory; but each consumer warpgroup has its
own, and the layout says what its threads hold when they have read it.

The consumer warpgroups of a CTA share its tiles by rows: warpgroup w of W takes rows
``[w r, (w + 1) r)`` of every tile, ``r = rows / W``, or such columns of transposed ones. Each then
runs the same program on tiles of r rows. Loads into shared memory stay whole: they belong to nobody
yet.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import LambdaExpr, TilePrimitiveCall

from warploom.errors import Decline
from warploom.layout.fragment import single_fragment
from warploom.lower.analysis.fragments import byte_operands_of, fragments, rows_of
from warploom.lower.analysis.layouts import register_places, vector_axes
from warploom.lower.analysis.rows import part_of_rows, row_dimensions
from warploom.lower.analysis.transposed import transposed_tiles
from warploom.lower.passes.parts_of_tiles import store_of_part
from warploom.lower.passes.stage_stores import straight_store
from warploom.tile import ir
from warploom.tile.effects import REDUCTIONS
from warploom.tile.ids import Id
from warploom.tile.primitives import is_scaled, op_name, tile_call
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES, is_global, is_shared, is_single
from warploom.tile.statement import Load, Mma, Nest, Statement, view
from warploom.tile_primitives import BLOCKS, SCATTER

#: The argument of an MMA that has the scales of operand A.
_SCALES_OF_A = 3


@dataclass(frozen=True)
class _Split:
    """How tiles are shared: tile -> part of a warpgroup; ``rows`` of the parts that are split.

    Of those that are ``transposed``, these are columns.
    """

    parts: dict[Buffer, Buffer]
    rows: dict[Buffer, int]
    transposed: frozenset[Buffer]
    count: int
    index: Var

    def along(self, tile: Buffer) -> int:
        """The dimension of a tile that is shared out."""
        return int(tile in self.transposed)

    def start(self, rows: int) -> Any:
        """First row of this warpgroup among those of a tile."""
        return 0 if self.count == 1 else self.index * rows


def resolve_scopes(program: TileProgram) -> TileProgram:
    """Make tiles registers of warpgroups, and statements those of one warpgroup.

    Raises
    ------
    Decline
        If a statement takes a part of the rows of a tile.
    """
    count = program.hints.consumers
    axes = vector_axes(program.block)
    index = Var("consumer", "int32")
    parts: dict[Buffer, Buffer] = {}
    rows: dict[Buffer, int] = {}
    tiles = [tile for tile in allocations(program.body) if tile.scope() in TILE_SCOPES]
    turned = transposed_tiles(program.block)
    matrices = [tile for tile in tiles if len(tile.shape) == 2 and not is_single(tile)]
    heights = {tile: int(tile.shape[tile in turned]) // count for tile in matrices}
    bytes_of_a = frozenset() if program.tensor_memory else byte_operands_of(program.block)
    for tile in tiles:
        along_columns = tile in axes and axes[tile].along == "column"
        height = rows_of(tile, heights, count, along_columns and tile not in heights)
        kinds = fragments(program.tensor_memory, height)
        shape = [int(extent) for extent in tile.shape]
        if is_single(tile):
            layout = single_fragment()
        elif len(shape) == 2:
            along = int(tile in turned)
            shape[along] //= count
            of_bytes = str(tile.dtype) if tile in bytes_of_a else ""
            own = dataclasses.replace(kinds, transposed=tile in turned, operand=of_bytes)
            rows[tile], layout = shape[along], own.matrix(*shape)
        elif along_columns:
            layout = kinds.along_columns(shape[0])
        else:
            shape[0] //= count
            rows[tile], layout = shape[0], kinds.along_rows(shape[0])
        home = _home(tile, program.tensor_memory)
        parts[tile] = tirx.decl_buffer(shape, str(tile.dtype), tile.name, scope=home, layout=layout)
    split = _Split(parts, rows, turned, count, index)
    body = tuple(_statement(statement, split) for statement in program.block)
    ids = (
        *program.ids,
        Id("warpgroup", (index,), (count,)),
        Id("warp_in_warpgroup", (Var("warp", "int32"),), (4,)),
        Id("lane", (Var("lane", "int32"),), (32,)),
    )
    return program.replace(ids=ids, body=body)


def _home(tile: Buffer, tensor_memory: bool) -> str:
    """Where a tile lies: in registers, or in tensor memory, where the tensor core writes."""
    return "accumulator" if tensor_memory and tile.scope() == "accumulator" else "local"


def _statement(statement: Statement, split: _Split) -> Stmt:
    match statement:
        case Nest():
            return _nest(statement, split)
        case Statement(raw=TilePrimitiveCall()) if not isinstance(statement, Load):
            return _call(statement.raw, split)
        case Statement(blocks=()):
            return ir.substitute(statement.raw, split.parts)
    return statement.with_blocks(
        *([_statement(s, split) for s in block] for block in statement.blocks)
    )


def _call(call: TilePrimitiveCall, split: _Split) -> Stmt:
    if op_name(call) == SCATTER:
        return _scatter(call, split)
    shared = any(is_shared(region.source) for region in call.args[:2])
    if op_name(call) in REDUCTIONS and shared:
        return _reduction(call, split)
    regions = [arg for arg in call.args if isinstance(arg, TensorRegion)]
    tiles = [region for region in regions if region.source in split.rows]
    if not tiles:
        return _of_columns(call, split)
    for tile in tiles:
        _require_all(tile, split, op_name(call))
    first = tiles[0].source
    args = [
        _region(arg, call, position, split, first) if isinstance(arg, TensorRegion) else arg
        for position, arg in enumerate(call.args)
    ]
    return tile_call(call, *args, scope="warpgroup")


def _scatter(call: TilePrimitiveCall, split: _Split) -> Stmt:
    """The rows of this warpgroup, each to its place."""
    to, source, *places = call.args
    if source.source in split.transposed:  # warpgroups share its columns
        nest = straight_store(to, source, scattered=tuple(places))
        return ir.written_at(_nest(view(nest), split), call.span)
    _require_all(source, split, SCATTER)
    start = split.start(split.rows[source.source])
    part = ir.whole(split.parts[source.source])

    def own(place: LambdaExpr) -> LambdaExpr:
        return LambdaExpr(lambda r: place.apply([r + start]))

    return tile_call(call, to, part, *map(own, places), scope="warpgroup")


def _of_columns(call: TilePrimitiveCall, split: _Split) -> Stmt:
    """A statement on vectors along columns, of which every warpgroup has all, or on no tile."""
    if not any(ir.uses(region) & split.parts.keys() for region in call.args[:2]):
        return call
    if is_global(call.args[0].source):
        return _nest(view(store_of_part(call)), split)
    args = [ir.substitute(arg, split.parts) if isinstance(arg, TensorRegion) else arg
            for arg in call.args]  # fmt: skip
    return tile_call(call, *args, scope="warpgroup")


def _require_all(tile: TensorRegion, split: _Split, name: str) -> None:
    """Check that a region of a tile that warpgroups share has all that they share."""
    along = split.along(tile.source)
    first = tile.region[along]
    if not _covers(first, tile.source.shape[along]):
        dimension = "columns" if along else "rows"
        raise Decline(
            f"{name} takes {dimension} {first.min} to "
            f"{first.min + first.extent} of {tile.source.name}; warpgroups share a tile by "
            f"{dimension}, so take all of them."
        )


def _reduction(call: TilePrimitiveCall, split: _Split) -> Stmt:
    """A reduction of a shared tile, or by blocks of rows into one, as one warpgroup does it."""
    to, source, axes, *rest = call.args
    for region in (to, source):
        if region.source in split.rows:
            _require_all(region, split, op_name(call))
    ranges = {side: ir.ranges(region) for side, region in (("to", to), ("source", source))}
    config = {}
    if BLOCKS in call.config:
        blocks = int(call.config[BLOCKS]) // split.count
        ranges["source"][0] = (0, split.rows[source.source])
        ranges["to"][0] = (ranges["to"][0][0] + split.start(blocks), blocks)
        config[BLOCKS] = blocks
    elif to.source in split.rows:
        rows = split.rows[to.source]
        ranges["to"][0] = (0, rows)
        reduced = {int(axis) % len(source.region) for axis in axes}
        kept = (d for d, (_, extent) in enumerate(ranges["source"])
                if d not in reduced and not ir.is_constant(extent, 1))  # fmt: skip
        first = next(kept)
        ranges["source"][first] = (ranges["source"][first][0] + split.start(rows), rows)
    regions = [
        ir.region(split.parts.get(region.source, region.source), *own)
        for region, own in zip((to, source), ranges.values(), strict=True)
    ]
    return tile_call(call, *regions, axes, *rest, scope="warpgroup", **config)


def _covers(part: Any, extent: Any) -> bool:
    return all(isinstance(e, tirx.IntImm) for e in (part.min, part.extent)) and (
        int(part.min) == 0 and int(part.extent) == int(extent)
    )


def _region(
    tile: TensorRegion, call: TilePrimitiveCall, position: int, split: _Split, first: Buffer
) -> TensorRegion:
    """An operand, narrowed to the rows of this warpgroup, as the first tile in registers is."""
    ranges, rows = ir.ranges(tile), split.rows[first]
    if tile.source in split.parts:
        if tile.source in split.rows:
            ranges[split.along(tile.source)] = (0, split.rows[tile.source])
        return ir.region(split.parts[tile.source], *ranges)
    if isinstance(mma := view(call), Mma):
        if is_scaled(call) and position == _SCALES_OF_A:
            return _scales_of(tile, split)
        is_metadata = mma.metadata is not None and tile.same_as(mma.metadata)
        if position != 1 and not is_metadata:
            return tile
        along = len(ranges) - (1 if mma.transposed[0] and not is_metadata else 2)
    elif first in split.transposed:
        along = len(ranges) - 1
    else:
        return ir.region(tile.source, *_rows_of(tile, rows, split))
    start, extent = ranges[along]
    ranges[along] = (start + split.start(rows), rows)
    if int(extent) != rows * split.count:
        dimension = "columns" if first in split.transposed else "rows"
        raise Decline(
            f"{tile.source.name} has {extent} {dimension} where the tile has {rows * split.count}; "
            "give both the same shape."
        )
    return ir.region(tile.source, *ranges)


def _scales_of(tile: TensorRegion, split: _Split) -> TensorRegion:
    """The scales of the rows of this warpgroup: in blocks, of which each warpgroup has one."""
    if split.count == 1:
        return tile
    ranges = ir.ranges(tile)
    along = next(d for d, (_, extent) in enumerate(ranges) if not ir.is_constant(extent, 1))
    ranges[along] = (ranges[along][0] + split.start(1), 1)
    return ir.region(tile.source, *ranges)


def _rows_of(tile: TensorRegion, rows: int, split: _Split) -> list[tuple[Any, Any]]:
    """The part of a region that has the rows of this warpgroup."""
    ranges = ir.ranges(tile)
    extents = [int(extent) for _, extent in ranges]
    dimensions = row_dimensions(ranges, rows * split.count)
    if dimensions is None:
        raise Decline(
            f"The part of {tile.source.name} has extents {extents}; its first dimensions that are "
            f"not 1 must have the {rows * split.count} rows of the tile."
        )
    part = part_of_rows(ranges, dimensions, 0 if split.count == 1 else split.index, rows)
    if part is None:
        raise Decline(
            f"The {extents[dimensions[0]]} rows of the rectangle of {tile.source.name} do not "
            f"divide among {split.count} warpgroups; choose another rectangle, or fewer consumers."
        )
    return part


def _nest(nest: Nest, split: _Split) -> Stmt:
    """A nest on the rows of this warpgroup."""
    statement = nest.raw
    indices = {
        index[split.along(tile)]: tile
        for tile, index in register_places(statement)
        if tile in split.rows
    }
    loops = nest.loops
    row = next((loop for loop in loops if loop.loop_var in indices), None)
    if indices and row is None:
        (tile, *_) = indices.values()
        raise Decline(
            f"A nest indexes the rows of {tile.name} by an expression; use a loop variable."
        )
    if row is None:
        shared_only = not any(tile in split.parts for tile, _ in register_places(statement))
        if not shared_only or split.count == 1:
            own = ir.substitute(statement, split.parts)
            return own if shared_only or split.count == 1 else _by_first(own, split.index)
        row = loops[0]
        if int(row.extent) % split.count:
            raise Decline(
                f"The nest over {row.loop_var.name} has {row.extent} iterations, which "
                f"{split.count} warpgroups cannot share; use a multiple."
            )
    rows = int(row.extent) // split.count
    local = Var(row.loop_var.name, "int32")

    def load(node: TensorLoad) -> Any:
        if node.source not in split.parts:
            return node
        return split.parts[node.source][tuple(_local(node.indices, row.loop_var, local))]

    def store(node: tirx.BufferStore) -> Any:
        if node.buffer not in split.parts:
            return node
        indices = _local(node.indices, row.loop_var, local)
        return tirx.BufferStore(split.parts[node.buffer], node.value, indices, node.span)

    inner = tvm_ffi.structural_map(
        statement, [(TensorLoad, load), (tirx.BufferStore, store)], order="post"
    )
    return _replace_loop(inner, row.loop_var, local, rows, split.start(rows))


def _by_first(nest: Stmt, warpgroup: Var) -> Stmt:
    """A nest on vectors that every warpgroup has; the first of them stores to memory."""

    def store(node: tirx.BufferStore) -> Stmt:
        memory = is_shared(node.buffer) or is_global(node.buffer)
        return ir.when(T.EQ(warpgroup, 0), [node]) if memory else node

    return tvm_ffi.structural_map(nest, (tirx.BufferStore, store), order="post")


def _local(indices: Any, row: Var, local: Var) -> list[Any]:
    return [local if index.same_as(row) else index for index in indices]


def _replace_loop(statement: Stmt, old: Var, new: Var, extent: int, start: Any) -> Stmt:
    if statement.loop_var.same_as(old):
        body = ir.substitute(statement.body, {old: new + start})
        return tirx.For(new, 0, extent, statement.kind, body, annotations=statement.annotations)
    inner = _replace_loop(statement.body, old, new, extent, start)
    return ir.with_body(statement, [inner])
