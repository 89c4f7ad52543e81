"""A grid of as many CTAs as there are SMs, each of which computes many tiles in turn.

A grid with one CTA for each tile pays for launch, set-up and drain once a tile. Here the grid
becomes a loop over tiles, in an order that keeps rows of A and columns of B in L2, around the
body. The program stays sequential.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Var

from warploom.kernels.raster import grouped_tile
from warploom.transform import ir
from warploom.transform.decline import Decline
from warploom.transform.program import PREFIX, Id, TileProgram

#: Annotation of the loop over the tiles of one CTA.
TILES = PREFIX + "tiles"
#: Annotation of that loop where clusters share the tiles out among each other as they run: it goes
#: over all tiles, of which this cluster executes some.
DYNAMIC = PREFIX + "dynamic"
#: Rows of tiles that are visited together.
DEFAULT_GROUP = 8


def persistent_grid(
    program: TileProgram,
    ctas: int | None,
    group: int | None = DEFAULT_GROUP,
    cluster: tuple[int, ...] = (1, 1),
) -> TileProgram:
    """Replace the grid by a loop over tiles.

    Parameters
    ----------
    ctas : int or None
        CTAs of the new grid, a multiple of the CTAs of a cluster. None for a cluster for each
        tile, of which those that run take over the tiles of those that have not started.
    group : int, optional
        Tiles along the first dimension that are visited together, in units of clusters; None for
        all, that is column after column.
    cluster : tuple of int
        CTAs of a cluster along the dimensions of the grid; what lies over the edge of the grid
        computes a tile outside of all matrices, that is nothing.

    Raises
    ------
    Decline
        If ``ctas`` is no multiple of the cluster's size.
    """
    grid = program.id("cta")
    shape = (*cluster, 1, 1, 1)[: len(grid.vars)]
    size = 1
    for extent in shape:
        size *= extent
    if ctas is not None and ctas % size:
        raise Decline(
            f"{ctas} CTAs are no multiple of the {size} of a cluster; choose another number."
        )
    cta, rank = Var("cta", "int32"), Var("rank", "int32")
    counts = [
        extent if along == 1 else T.truncdiv(extent + (along - 1), along)
        for extent, along in zip(grid.extents, shape, strict=True)
    ]
    total: Any = 1
    for count in counts:
        total = total * count
    if ctas is None:
        # A grid without CTAs cannot be launched.
        launched, notes = T.max(total, 1) * size, {TILES: 1, DYNAMIC: 1}
        turn, turns = Var("tile", "int32"), total
        current = turn
    else:
        first, clusters = T.truncdiv(cta, size) if size > 1 else cta, ctas // size
        launched, notes = ctas, {TILES: 1}
        turn, turns = Var("turn", "int32"), T.truncdiv(total - first + (clusters - 1), clusters)
        current = first + turn * clusters
    ids = [Id("cta", (cta,), (launched,))]
    if size > 1:
        ids.insert(0, Id("cta_in_cluster", (rank,), (size,)))
    index = ir.Scalar("tile")
    places = [ir.Scalar(var.name) for var in grid.vars]
    positions = _positions(index.value, counts, group)
    statements = index.define(current)
    remaining = rank
    for place, position, along in zip(places, positions, shape, strict=True):
        inside = 0 if along == 1 else T.truncmod(remaining, along)
        statements += place.define(position if along == 1 else position * along + inside)
        remaining = remaining if along == 1 else T.truncdiv(remaining, along)
    table = {var: place.value for var, place in zip(grid.vars, places, strict=True)}
    body = [ir.substitute(statement, table) for statement in program.body]
    tiles = ir.loop(turn, turns, [*statements, *body], notes)
    others = tuple(one for one in program.ids if one.kind != "cta")
    order = "column after column" if group is None else f"in groups of {group} rows"
    parts = f"clusters of {' x '.join(map(str, shape))}" if size > 1 else "no clusters"
    bounds = tuple(
        (place.buffer, extent if along == 1 else count * along)
        for place, extent, count, along in zip(places, grid.extents, counts, shape, strict=True)
    )
    changed = program.replace(ids=(*ids, *others), body=(tiles,), bounds=bounds)
    many = f"{ctas} persistent CTAs" if ctas else "CTAs that take over tiles of others"
    return changed.decided(f"grid: {many}, {parts}, tiles {order}")


def _positions(index: Any, counts: list[Any], group: int | None) -> list[Any]:
    """Coordinates of tile ``index``: the first two dimensions in groups, the others outside."""
    if len(counts) == 1:
        return [index]
    plane = counts[0] * counts[1]
    within = index if len(counts) == 2 else T.truncmod(index, plane)
    positions = list(grouped_tile(within, counts[0], counts[1], group or counts[0]))
    outer = T.truncdiv(index, plane)
    for count in counts[2:-1]:
        positions.append(T.truncmod(outer, count))
        outer = T.truncdiv(outer, count)
    return positions + ([outer] if len(counts) > 2 else [])
