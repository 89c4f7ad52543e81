"""Spreads tiles in registers over all threads of a CTA, where no MMA says who holds what.

Statements stay those of the CTA: unlike with MMAs, warpgroups do not share out the rows of tiles.
A row may lie with one warp, with several, or with all warpgroups; sums of rows then go from warp to
warp through shared memory (:mod:`warploom.lower.nests.grid_reductions`). Tiles have the extents of
whole rounds of threads, and nests keep to the author's extents by conditions.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.layout.thread_grid import ThreadGrid
from warploom.lower.analysis.choose_threads import choose_threads, excess, require_room
from warploom.lower.analysis.layouts import vector_axes
from warploom.lower.passes.canonicalize import copy_as_nest
from warploom.lower.passes.fetch_elements import fetch_elements
from warploom.lower.passes.infer_layouts import loaded_tiles, spread_over_banks
from warploom.lower.passes.parts_of_tiles import is_whole, store_of_part
from warploom.lower.passes.read_again import read_again
from warploom.lower.passes.reductions import in_registers
from warploom.lower.passes.split_rows import rows_of, split_rows
from warploom.lower.passes.squeeze_vectors import squeeze
from warploom.lower.passes.stage_stores import straight_store
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.ids import Id
from warploom.tile.primitives import op_name
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES, is_shared, is_single
from warploom.tile.statement import Copy, Reduction, Statement, walk
from warploom.tile.updates import reduce_of


def plan_threads(program: TileProgram) -> TileProgram:
    """Choose the grid of threads that tiles in registers are spread over.

    Raises
    ------
    Decline
        If there is none.
    """
    body = (leaf for statement in program.body for leaf in ir.flatten(in_registers(statement)))
    program = program.replace(body=tuple(body))
    program = squeeze(program, _vectors(program), loops=False)
    body = [_as_nests(statement) for statement in program.block]
    program = program.replace(body=tuple(leaf for raw in body for leaf in ir.flatten(raw)))
    for statement in walk(program.block):
        _require_known(statement)
    program = _in_registers(program)
    grid = choose_threads(program)
    require_room(grid, program)
    program = fetch_elements(program, grid)
    warpgroups = grid.threads // SM90A.warpgroup
    return program.replace(threads=(grid.down, grid.across, grid.vector)).decided(
        f"threads: {warpgroups} warpgroups, {grid.across} threads a row with {grid.vector} "
        f"neighbours each, {grid.down} rows at a time"
    )


def _in_registers(program: TileProgram) -> TileProgram:
    """The program with tiles that registers hold: of fewer rows, or of parts of rows."""
    grid = choose_threads(program)
    if not excess(grid, program):
        return program
    try:
        rows = rows_of(program)
    except Decline:
        rows = 1
    for parts in (parts for parts in range(2, rows + 1) if rows % parts == 0):
        split = split_rows(program, parts)
        grid = choose_threads(split)
        if not excess(grid, split):
            return split
        if parts == rows:
            program = split
    try:
        return read_again(program)
    except Decline as reason:
        try:
            require_room(choose_threads(program), program)
        except Decline as no_room:
            raise Decline(f"{no_room} Its rows are not read again in parts: {reason}") from reason
    return program


def _vectors(program: TileProgram) -> set[Buffer]:
    """Matrices of one column, and of one row if others have more; vectors of one element.

    The latter become matrices, of which every thread has a copy.
    """
    every = [tile for tile in allocations(program.body) if tile.scope() in TILE_SCOPES]
    tiles = [tile for tile in every if len(tile.shape) == 2 and not is_single(tile)]
    results = {one.raw.args[0].source for one in walk(program.block) if isinstance(one, Reduction)}
    others = [tile for tile in tiles if tile not in results]
    rows = max((int(tile.shape[0]) for tile in others if int(tile.shape[1]) > 1), default=1)
    return {
        tile for tile in tiles
        if int(tile.shape[1]) == 1 or (int(tile.shape[0]) == 1 and rows > 1)
    } | {tile for tile in every if len(tile.shape) == 1 and is_single(tile)}  # fmt: skip


def _as_nests(statement: Statement) -> Stmt:
    """Copies between registers and global memory as nests: threads access it alike."""
    raw = statement.raw
    if isinstance(statement, Copy):
        to, source = raw.args[:2]
        if to.source.scope() in TILE_SCOPES:
            return ir.written_at(copy_as_nest(raw), raw.span)
        if source.source.scope() in TILE_SCOPES:
            one_row = len(source.source.shape) == 2 and int(source.source.shape[0]) == 1
            made = straight_store(to, source, reduce=reduce_of(statement.raw))
            nest = store_of_part(raw) if one_row else made
            return ir.written_at(nest, raw.span)
    return statement.with_each(_as_nests)


def _require_known(statement: Statement) -> None:
    """Decline primitives on tiles in registers other than reductions of a dimension of two."""
    raw = statement.raw
    regions = [arg for arg in getattr(raw, "args", ()) if isinstance(arg, TensorRegion)]
    if not any(region.source.scope() in TILE_SCOPES for region in regions):
        return
    if not isinstance(statement, Reduction):
        raise Decline(f"Nothing spreads {op_name(raw)} over threads.")
    to, source = regions
    axes = [int(axis) % len(source.source.shape) for axis in raw.args[2]]
    vector = len(source.source.shape) == 1 and is_single(to.source)
    matrix = len(source.source.shape) == 2 and (len(to.source.shape) == 1 or is_single(to.source))
    if source.source.scope() not in TILE_SCOPES or not (vector or matrix) or len(axes) != 1:
        raise Decline(
            f"The reduction into {to.source.name} is not that of the rows or columns of a tile "
            "in registers into a vector."
        )
    if vector:
        return
    kept = 1 - axes[0]
    start, extent = ir.ranges(source)[kept]
    all_of_it = ir.is_constant(start, 0) and ir.is_constant(extent, int(source.source.shape[kept]))
    if not (all_of_it and is_whole(to)):
        raise Decline(
            f"The reduction into {to.source.name} leaves out rows or columns that it could keep."
        )


def spread_tiles(program: TileProgram) -> TileProgram:
    """Give every tile its layout over the grid of threads that has been chosen."""
    grid = ThreadGrid(*program.threads)
    axes = vector_axes(program.block)
    tiles = list(allocations(program.body))
    registers = [tile for tile in tiles if tile.scope() in TILE_SCOPES]
    heights = {int(tile.shape[0]) for tile in registers if len(tile.shape) == 2}
    loaded = loaded_tiles(program.block)
    table: dict[Buffer, Buffer] = {}
    for tile in tiles:
        if tile.scope() in TILE_SCOPES:
            axis = axes[tile].along if tile in axes else None
            shape, layout = _layout(tile, grid, heights, axis)
            table[tile] = ir.declare_tile(shape, str(tile.dtype), tile.name, "local", layout)
        elif is_shared(tile) and tile in loaded and (swizzled := spread_over_banks(tile)):
            table[tile] = tirx.decl_buffer(
                tile.shape, str(tile.dtype), tile.name, scope=tile.scope(), layout=swizzled
            )
    ids = (
        *program.ids,
        Id("warpgroup", (Var("consumer", "int32"),), (grid.threads // SM90A.warpgroup,)),
        Id("warp_in_warpgroup", (Var("warp", "int32"),), (4,)),
        Id("lane", (Var("lane", "int32"),), (32,)),
    )
    body = tuple(ir.substitute(statement, table) for statement in program.body)
    return program.replace(ids=ids, body=body)


def _layout(
    tile: Buffer, grid: ThreadGrid, heights: set[int], axis: str | None
) -> tuple[tuple[int, ...], object]:
    """Padded extents and layout of a tile in registers."""
    shape = tuple(int(extent) for extent in tile.shape)
    if is_single(tile):
        return shape, grid.everywhere(len(shape))
    if len(shape) == 2:
        padded = grid.padded(*shape)
        return padded, grid.matrix(*padded)
    (extent,) = shape
    if axis is None:
        axis = "row" if extent in heights else "column"
    rows, columns = grid.padded(extent, extent)
    if axis == "row":
        return (rows,), grid.along_rows(rows)
    return (columns,), grid.along_columns(columns)
