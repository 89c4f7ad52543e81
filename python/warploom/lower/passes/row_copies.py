"""Rows that have an index each, as one statement: ``gather``, and the loops that it stands for.

On Hopper TMA copies boxes of rows that follow each other. The warps of the role that loads gather
other rows ahead, 16 bytes a thread, where this module says that they can: such a loop of loads is
one ``gather`` then, a load like others for the passes that follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Op, TensorLoad
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.exec_scope import ExecScope
from tvm.tirx.tile_primitive import LambdaExpr, TilePrimitiveCall

from warploom.lower.analysis.tma_regions import at_launch
from warploom.lower.emit.copy_by_threads import copied_elements
from warploom.lower.stores.cut_tiles import STAGED_BYTES
from warploom.target import TMA
from warploom.tile import ir
from warploom.tile.annotations import BY_THREADS
from warploom.tile.primitives import op_name, primitive
from warploom.tile.scopes import is_shared, is_tile
from warploom.tile.statement import (
    Allocation,
    Block,
    Copy,
    ForLoader,
    Gather,
    Load,
    Loop,
    Mma,
    Scalar,
    Scatter,
    block,
    walk,
)
from warploom.tile_primitives import GATHER, SCATTER


def of_rows(raw: Stmt) -> bool:
    """Whether a statement is a ``gather`` or a ``scatter``."""
    return isinstance(raw, TilePrimitiveCall) and op_name(raw) in (GATHER, SCATTER)


def as_loop(call: TilePrimitiveCall) -> Stmt:
    """The loop of copies of single rows that a ``gather`` or a ``scatter`` stands for."""
    gathers = op_name(call) == GATHER
    tile, tensor = call.args[:2] if gathers else reversed(call.args[:2])
    *lead, (first, rows), columns = ir.ranges(tile)
    row = Var("r", "int32")
    of_tile = ir.region(tile.source, *lead, (first + row, 1), columns)
    places = [(place.apply([row]), 1) for place in call.args[2:]]
    of_tensor = ir.region(tensor.source, *places, ir.ranges(tensor)[-1])
    copied = (of_tile, of_tensor) if gathers else (of_tensor, of_tile)
    name = "copy_async" if gathers else "copy"
    copy = primitive(name, *copied, scope="cta", **call.config)
    return ir.loop(row, rows, [ir.written_at(copy, call.span)])


def with_values(loop: Loop) -> Loop:
    """The loop without variables that an iteration defines and sets once: they are values."""
    scalars = [one for one in loop.body if isinstance(one, Scalar)]
    defined = {one.variable for one in scalars if one.allocates}
    for variable in list(defined):
        if sum(one.variable.same_as(variable) for one in scalars if not one.defines) != 1:
            defined.discard(variable)
    if not defined:
        return loop
    values: dict[Var, Any] = {}

    def value(load: TensorLoad) -> Any:
        return values.get(load.source, load)

    kept: list[Stmt] = []
    for one in loop.body:
        raw = ir.map_nodes(one.raw, {TensorLoad: value}, {})
        if isinstance(one, Scalar) and one.variable in defined:
            if isinstance(raw, tirx.BufferStore):
                values[one.variable] = raw.value
        else:
            kept.append(raw)
    (made,) = block([ir.with_body(loop.raw, kept)])
    return made


def as_one(
    loop: Loop, copy: Copy | Load, table: Mapping[Var, Any], rows: int
) -> TilePrimitiveCall | None:
    """One ``gather`` or ``scatter`` for a copy in all iterations; None if they copy no whole rows.

    Parameters
    ----------
    table : dict
        What the scalars of an iteration stand for.
    rows : int
        Rows of the tile that an iteration copies.
    """
    gathers = isinstance(copy, Load)
    tile, region = (copy.to, copy.source) if gathers else (copy.source, copy.to)
    *outer, (column, columns) = ir.ranges(region)
    wide = [number for number, (_, extent) in enumerate(outer) if not ir.is_constant(extent, 1)]
    many = [] if rows == 1 else wide
    if len(tile.source.shape) != 2 or wide != many or len(many) != (rows > 1):
        return None
    column = ir.substitute(column, table)
    if not ir.is_constant(columns, int(tile.source.shape[1])) or loop.var in ir.uses(column):
        return None

    def place(dimension: int) -> LambdaExpr:
        def of_row(r: Var) -> Any:
            start = ir.substitute(ir.as_expr(outer[dimension][0]), table)
            iteration = r if rows == 1 else T.truncdiv(r, rows)
            dtype = str(loop.var.ty.dtype)
            start = ir.substitute(start, {loop.var: T.Cast(dtype, iteration)})
            return start + T.truncmod(r, rows) if dimension in many else start

        return LambdaExpr(of_row)

    tensor = region.source
    whole = [(0, size) for size in tensor.shape[:-1]]
    operands = [ir.whole(tile.source), ir.region(tensor, *whole, (column, columns))]
    places = [place(dimension) for dimension in range(len(outer))]
    call = TilePrimitiveCall(
        *(operands if gathers else operands[::-1]), *places,
        op=Op.get(f"tirx.tile.{GATHER if gathers else SCATTER}"), config=copy.raw.config,
        scope=ExecScope("cta"),
    )  # fmt: skip
    return ir.written_at(call, copy.raw.span)


def why_by_elements(scatter: Scatter, program: Block, in_fours: bool) -> str | None:
    """Why threads store the elements of scattered rows where they hold them; None if no need.

    ``in_fours`` says that TMA stores four rows at a time.
    """
    tile, tensor = scatter.source.source, scatter.to.source
    every = list(walk(program))
    if not any(isinstance(one, Mma) for one in every):
        return "the program has no MMA"
    bits = tvm.DataType(str(tile.dtype)).bits
    if not scatter.of_registers or bits // 8 not in STAGED_BYTES:
        return f"{tile.name} is a tile of {tile.dtype} in {tile.scope()} memory"
    if str(tensor.dtype) != str(tile.dtype) or scatter.raw.config:
        return f"{tile.name} is {tile.dtype} and {tensor.name} {tensor.dtype}"
    if in_fours and len(tensor.shape) != 2:
        return f"{tensor.name} has {len(tensor.shape)} dimensions; TMA scatters rows of a matrix"
    unit = TMA.chunk_bytes * 8 // bits
    column = ir.as_expr(ir.ranges(scatter.to)[-1][0])
    if not all(
        Analyzer().can_prove(T.floormod(size, unit) == 0)
        for size in (tensor.shape[-1], column)
    ):
        return (
            f"rows of {tensor.name}, or the columns that are stored, are not known to begin at "
            f"multiples of {TMA.chunk_bytes} bytes"
        )
    used = set().union(*(ir.uses(row.pred) for row in scatter.rows))
    if any(ir.is_buffer(one) and is_tile(one) for one in used):
        return f"the rows of {tensor.name} depend on a tile"
    others = sum(tensor in ir.uses(one.raw) for one in every if not one.blocks)
    if others != 1:
        return f"another statement uses {tensor.name}, too"
    return None


def why_not_ahead(gather: Gather, loop: Stmt, siblings: Block, program: Block) -> str | None:
    """Why no warp that does nothing else loads these rows ahead; None if one does.

    Parameters
    ----------
    gather : Gather
        It stands in place of ``loop``.
    siblings : tuple of Statement
        The statements of the block that the loop stands in.
    program : tuple of Statement
        All statements.
    """
    tile, tensor = gather.tile, gather.source.source
    every = list(walk(program))
    if not any(isinstance(one, Mma) for one in every):
        return "the program has no MMA, and each CTA of an SM loads for itself"
    if any(isinstance(one, ForLoader) for one in every):
        return "wl.loading() and mbar= are for one thread that loads, and these rows take many"
    bits = tvm.DataType(str(tile.dtype)).bits
    if not is_shared(tile) or str(tensor.dtype) != str(tile.dtype):
        return f"{tile.name} is no shared tile of {tensor.dtype}, as {tensor.name} is"
    # The launch chooses this kernel for such rows, and another for those of other lengths.
    known = BY_THREADS not in gather.raw.config and at_launch(gather.source) is not None
    if copied_elements(gather.to, gather.source, known) * bits != TMA.chunk_bytes * 8:
        return (
            f"rows of {tensor.name}, or the columns that are taken of them, are not known to begin "
            f"and end at multiples of {TMA.chunk_bytes} bytes; give rows and tiles such numbers of "
            "columns"
        )
    tiles = [one.name for one in gather.place if ir.is_buffer(one) and is_tile(one)]
    if tiles:
        return (
            f"the rows of {tensor.name} depend on the tile {tiles[0]}, which warps that load do "
            "not have; read indices from global memory"
        )
    return _why_no_ring(tile, loop, siblings, every)


def _why_no_ring(tile: Buffer, loop: Stmt, siblings: Block, every: list[Any]) -> str | None:
    """Why a tile has no place in a ring: it is used elsewhere than behind its load, in a block."""
    number = next(i for i, one in enumerate(siblings) if one.raw.same_as(loop))
    before = [*walk(siblings[: number + 1])]
    behind = [*walk(siblings[number + 1 :])]
    used = [
        one for one in every
        if not one.blocks and not isinstance(one, Allocation) and tile in ir.uses(one.raw)
    ]  # fmt: skip
    within = [one for one in walk(siblings[number : number + 1]) if tile in ir.uses(one.raw)]
    uses = [one for one in used if not any(one.raw.same_as(each.raw) for each in within)]
    if any(_writes(one.raw, tile) for one in uses):
        return f"another statement writes {tile.name}, too; give it a tile of its own"
    if not uses or any(
        any(one.raw.same_as(each.raw) for each in before)
        or not any(one.raw.same_as(each.raw) for each in behind)
        for one in uses
    ):
        return (
            f"{tile.name} is used outside the block that loads it, or before it there; use it "
            "behind the load, in the same loop or branch"
        )
    return None


def _writes(raw: Stmt, tile: Buffer) -> bool:
    if isinstance(raw, TilePrimitiveCall):
        return raw.args[0].source.same_as(tile)
    found: list[Stmt] = []

    def store(node: tirx.BufferStore) -> None:
        if node.buffer.same_as(tile):
            found.append(node)

    tvm_ffi.structural_walk(raw, (tirx.BufferStore, store))
    return bool(found)
