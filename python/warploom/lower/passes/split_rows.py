"""Gives rows of a tile that is more than the registers of a CTA hold to several CTAs.

Where no MMA wants so many rows at a time and each row is computed alone, a CTA may have fewer: the
grid gets one more dimension, and the nests count the rows of a part.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, TensorRegion
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.lower.analysis.layouts import register_places, vector_axes
from warploom.tile import ir
from warploom.tile.ids import Id
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES, is_global
from warploom.tile.statement import (
    Allocation,
    Branch,
    Loop,
    Nest,
    Reduction,
    Scalar,
    Statement,
    While,
    walk,
)

_PLAIN = (Allocation, Branch, Loop, Nest, Reduction, Scalar, While)


def rows_of(program: TileProgram) -> int:
    """The rows of a program's tiles, if each is computed alone.

    Raises
    ------
    Decline
        If statements use several rows together, or say nothing of rows.
    """
    tiles = [tile for tile in allocations(program.body) if tile.scope() in TILE_SCOPES]
    heights = {int(tile.shape[0]) for tile in tiles if len(tile.shape) == 2}
    if len(heights) != 1 or program.hints.cluster not in (None, (1, 1)):
        raise Decline("Tiles in registers have different numbers of rows.")
    (rows,) = heights
    by_row = _by_row(program)
    for statement in walk(program.block):
        _require_rows_alone(statement, by_row)
    return rows


def _by_row(program: TileProgram) -> set[Buffer]:
    """Tiles in registers whose first dimension are rows."""
    axes = vector_axes(program.block)
    return {
        tile for tile in allocations(program.body)
        if tile.scope() in TILE_SCOPES
        and (len(tile.shape) == 2 or (tile in axes and axes[tile].along == "row"))
    }  # fmt: skip


def _require_rows_alone(statement: Statement, by_row: set[Buffer]) -> None:
    raw = statement.raw
    if not isinstance(statement, _PLAIN):
        raise Decline("A statement takes all rows at once.")
    if isinstance(statement, Allocation) and statement.buffer.scope() not in TILE_SCOPES:
        raise Decline(f"{statement.buffer.name} has elements of all rows.")
    if isinstance(statement, Reduction) and int(raw.args[2][0]) % 2 == 0:
        raise Decline(f"The reduction into {raw.args[0].source.name} takes all rows.")
    if not isinstance(statement, Nest):
        return
    rows = _row_variables(statement, by_row)
    stores = any(is_global(store.buffer) for store in statement.stores)
    if len(rows) > 1 or (stores and not rows):
        raise Decline("A nest stores what is not that of one row.")
    for tile, at in register_places(raw):
        if tile in by_row and not isinstance(at[0], Var):
            raise Decline(f"A nest indexes rows of {tile.name} by {at[0]}.")


def _row_variables(nest: Nest, by_row: set[Buffer]) -> set[Var]:
    return {
        at[0] for tile, at in register_places(nest.raw)
        if tile in by_row and isinstance(at[0], Var)
    }  # fmt: skip


def split_rows(program: TileProgram, parts: int) -> TileProgram:
    """The program of CTAs with so many rows less each; ``parts`` divides the rows."""
    by_row = _by_row(program)
    part = Var("part", "int32")
    table = {
        tile: ir.declare_tile(
            (int(tile.shape[0]) // parts, *tile.shape[1:]), str(tile.dtype), tile.name,
            tile.scope(),
        )
        for tile in by_row
    }  # fmt: skip

    def change(statement: Statement) -> Stmt:
        if isinstance(statement, Nest):
            return _of_part(statement, _row_variables(statement, by_row), table, part, parts)
        if isinstance(statement, Reduction):
            args = [
                _narrowed(arg, table) if isinstance(arg, TensorRegion) else arg
                for arg in statement.raw.args
            ]
            return tile_call(statement.raw, *args)
        if statement.blocks:
            return statement.with_each(change)
        return ir.substitute(statement.raw, table)

    body = tuple(leaf for s in program.block for leaf in ir.flatten(change(s)))
    ids = tuple(
        Id("cta", (part, *scope_id.vars), (parts, *scope_id.extents))
        if scope_id.kind == "cta" else scope_id
        for scope_id in program.ids
    )  # fmt: skip
    rows = int(next(iter(table.values())).shape[0])
    return program.replace(ids=ids, body=body).decided(
        f"rows: {rows} for each CTA, as registers do not hold {rows * parts}"
    )


def _narrowed(region: TensorRegion, table: dict[Buffer, Buffer]) -> TensorRegion:
    if region.source not in table:
        return region
    tile = table[region.source]
    return ir.region(tile, (0, int(tile.shape[0])), *ir.ranges(region)[1:])


def _of_part(
    nest: Nest, rows: set[Var], table: dict[Buffer, Buffer], part: Var, parts: int
) -> Stmt:
    """A nest on the rows of a part."""
    if not rows:
        return ir.substitute(nest.raw, table)
    (row,) = rows
    local = Var(row.name, "int32")

    def places(indices: Any) -> list[Any]:
        return [local if index.same_as(row) else index for index in indices]

    def load(node: TensorLoad) -> Any:
        tile = table.get(node.source)
        return node if tile is None else tile[tuple(places(node.indices))]

    def store(node: tirx.BufferStore) -> Any:
        tile = table.get(node.buffer)
        if tile is None:
            return node
        return tirx.BufferStore(tile, node.value, places(node.indices), node.span)

    def loop(raw: Stmt) -> Stmt:
        if not isinstance(raw, tirx.For):
            callbacks = [(TensorLoad, load), (tirx.BufferStore, store)]
            inner = tvm_ffi.structural_map(raw, callbacks, order="post")
            size = next(int(each.extent) for each in nest.loops if each.loop_var.same_as(row))
            return ir.substitute(inner, {row: part * (size // parts) + local})
        inner = loop(raw.body)
        if raw.loop_var.same_as(row):
            return ir.loop(local, int(raw.extent) // parts, [inner], raw.annotations, raw.kind)
        return ir.with_body(raw, [inner])

    return loop(nest.raw)
