"""A grid of as many CTAs as there are SMs, each of which computes many tiles.

A grid with one CTA for each tile pays for launch, set-up and drain once a tile. Here the grid
becomes a loop over tiles, in an order that keeps rows of A and columns of B in L2, around the
body. The program stays sequential.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, Stmt, Var

from warploom.errors import Decline
from warploom.lower.grid.resident import Resident
from warploom.schedulers.raster import grouped_tile
from warploom.tile import ir
from warploom.tile.annotations import DYNAMIC, TILES, Tiles
from warploom.tile.ids import Id
from warploom.tile.program import TileProgram
from warploom.tile.scalar import ThreadScalar, below

#: Rows of tiles that are visited together.
DEFAULT_GROUP = 8


@dataclass(frozen=True)
class Grid:
    """The CTAs of a persistent grid, and the tiles that they share.

    Attributes
    ----------
    cta, rank : Var
        Number of this CTA, and its place in its cluster.
    size : int
        CTAs of a cluster.
    clusters : int or Var
        How many, a variable of the host where the device decides; 0 where there is one for each
        tile.
    tiles : int or Expr
        Tiles, in units of clusters.
    """

    cta: Var
    rank: Var
    size: int
    clusters: Any
    tiles: Any

    @property
    def cluster(self) -> Any:
        """Number of this CTA's cluster."""
        return T.truncdiv(self.cta, self.size) if self.size > 1 else self.cta

    @property
    def place(self) -> Any:
        """Place of this CTA in its cluster."""
        return self.rank if self.size > 1 else 0

    @property
    def is_fixed(self) -> bool:
        """Whether the number of clusters is known when the kernel is compiled."""
        return isinstance(self.clusters, int)


@dataclass(frozen=True)
class TileSchedule:
    """How a cluster goes through tiles.

    Attributes
    ----------
    start : list of Stmt
        Scalars that are set before the first iteration.
    iterations : Expr
        How many there are.
    tile_of : callable
        From the number of a iteration to scalars that are set in it, and the number of its tile.
    slots : int or Expr
        Parts of tiles that CTAs leave to others in the workspace.
    host : tuple of Stmt
        What the host computes before the launch, for all CTAs.
    dynamic : bool
        Whether a cluster executes those of the iterations that it is handed out.
    """

    start: list[Stmt]
    iterations: Any
    tile_of: Callable[[Var], tuple[list[Stmt], Any]]
    slots: Any = 0
    host: tuple[Stmt, ...] = ()
    dynamic: bool = False


def static_schedule(grid: Grid) -> TileSchedule:
    """Every cluster takes every so many-th tile, all of it."""
    if not grid.is_fixed:
        return _divided_by_host(grid)
    iterations = T.truncdiv(grid.tiles - grid.cluster + (grid.clusters - 1), grid.clusters)
    return TileSchedule([], iterations, lambda i: ([], grid.cluster + i * grid.clusters))


def _divided_by_host(grid: Grid) -> TileSchedule:
    """The same, where a kernel would divide by a number that is known at the launch alone."""
    rounds, rest, host = _rounds(grid)
    iterations = T.Select(grid.cluster < rest, rounds + 1, rounds)
    return TileSchedule([], iterations, lambda i: ([], grid.cluster + i * grid.clusters), host=host)


def _rounds(grid: Grid) -> tuple[Var, Var, tuple[Stmt, ...]]:
    """Tiles of every cluster, and those that are left, which the host computes."""
    rounds, rest = Var("rounds", "int32"), Var("rest", "int32")
    host = (
        tirx.Bind(rounds, T.truncdiv(ir.as_expr(grid.tiles), grid.clusters)),
        tirx.Bind(rest, T.truncmod(ir.as_expr(grid.tiles), grid.clusters)),
    )
    return rounds, rest, host


def snake_schedule(grid: Grid) -> TileSchedule:
    """As many tiles for each cluster, but every other round goes from the last one to the first."""
    if grid.is_fixed:
        tiles = ir.as_expr(grid.tiles)
        rounds, rest = T.truncdiv(tiles, grid.clusters), T.truncmod(tiles, grid.clusters)
        host: tuple[Stmt, ...] = ()
    else:
        rounds, rest, host = _rounds(grid)

    def place(number: Any) -> Any:
        backwards = grid.clusters - 1 - grid.cluster
        return T.Select(T.truncmod(number, 2) == 0, grid.cluster, backwards)

    iterations = T.Select(place(rounds) < rest, rounds + 1, rounds)
    return TileSchedule(
        [], iterations, lambda i: ([], place(i) + i * grid.clusters), host=host
    )


def dynamic_schedule(grid: Grid) -> TileSchedule:
    """All tiles, of which this cluster executes those that it is handed out."""
    return TileSchedule([], grid.tiles, lambda iteration: ([], iteration), dynamic=True)


def grid_of(
    program: TileProgram,
    ctas: int | Resident | None,
    cluster: tuple[int, ...],
    ctas_a_tile: int = 1,
) -> Grid:
    """The grid of so many CTAs, or of a cluster for each tile, in place of that of a program.

    Raises
    ------
    Decline
        If ``ctas`` is no multiple of the cluster's size.
    """
    size = math.prod(cluster_shape(program, cluster)) * ctas_a_tile
    if isinstance(ctas, int) and ctas % size:
        raise Decline(
            f"{ctas} CTAs are no multiple of the {size} of a cluster; choose another number."
        )
    tiles: Any = 1
    for count in _counts(program, cluster):
        tiles = tiles * count
    if isinstance(ctas, Resident):
        assert ctas.size == size
        clusters: Any = ctas.clusters
    else:
        clusters = 0 if ctas is None else ctas // size
    return Grid(Var("cta", "int32"), Var("rank", "int32"), size, clusters, tiles)


def cluster_shape(program: TileProgram, cluster: tuple[int, ...]) -> tuple[int, ...]:
    """CTAs of a cluster along each dimension of the grid."""
    return (*cluster, 1, 1, 1)[: len(program.id("cta").vars)]


def _counts(program: TileProgram, cluster: tuple[int, ...]) -> list[Any]:
    """Clusters' worth of tiles along each dimension of the grid."""
    return [
        extent if along == 1 else T.truncdiv(extent + (along - 1), along)
        for extent, along in zip(
            program.id("cta").extents, cluster_shape(program, cluster), strict=True
        )
    ]


def persistent_grid(
    program: TileProgram,
    ctas: int | Resident | None,
    group: int | None = DEFAULT_GROUP,
    cluster: tuple[int, ...] = (1, 1),
    schedule: Callable[[Grid], TileSchedule] = static_schedule,
    ctas_a_tile: int = 1,
) -> TileProgram:
    """Replace the grid by a loop over tiles.

    Parameters
    ----------
    ctas : int, Resident or None
        CTAs of the new grid, a multiple of the CTAs of a cluster, or as many as the device holds.
        None for a cluster for each tile, of which those that run take over the tiles of those that
        have not started.
    group : int, optional
        Tiles along the first dimension that are visited together, in units of clusters; None for
        all, that is column after column.
    cluster : tuple of int
        CTAs of a cluster along the dimensions of the grid; those over the edge of the grid compute
        a tile at the edge once more, and store nothing.
    schedule : callable
        Which tiles a cluster computes, in which order.
    ctas_a_tile : int
        CTAs of a cluster that share each tile; ``cluster`` is then (1, 1).

    Raises
    ------
    Decline
        If ``ctas`` is no multiple of the cluster's size.
    """
    schedule = dynamic_schedule if ctas is None else schedule
    old, grid = program.id("cta"), grid_of(program, ctas, cluster, ctas_a_tile)
    shape, counts, size = cluster_shape(program, cluster), _counts(program, cluster), grid.size
    # A grid without CTAs cannot be launched.
    if ctas is None:
        launched = T.max(grid.tiles, 1) * size
    else:
        launched = grid.clusters * size if size > 1 else grid.clusters
    ids = [Id("cta", (grid.cta,), (launched,))]
    if size > 1:
        ids.insert(0, Id("cta_in_cluster", (grid.rank,), (size,)))
    iteration = Var("iteration", "int32")
    index = ThreadScalar("tile")
    names = fresh_names(program.func, *(var.name for var in old.vars), "inside")
    places = [ThreadScalar(name) for name in names[:-1]]
    positions = _positions(index.value, counts, group)
    way = schedule(grid)
    statements, number = way.tile_of(iteration)
    statements = [*statements, *index.define(number)]
    remaining, conditions = grid.rank, []
    for place, position, along, extent in zip(places, positions, shape, old.extents, strict=True):
        if along == 1:
            statements += place.define(position)
            continue
        number = position * along + T.truncmod(remaining, along)
        remaining = T.truncdiv(remaining, along)
        if not (isinstance(extent, tirx.IntImm) and int(extent) % along == 0):
            conditions.append(number < extent)
            number = T.min(number, extent - 1)
        statements += place.define(number)
    stores = None
    if conditions:
        flag = ThreadScalar(names[-1], "bool")
        statements += flag.define(functools.reduce(T.And, conditions))
        stores = flag.value
    statements += [below(place.value, extent)
                   for place, extent in zip(places, old.extents, strict=True)]  # fmt: skip
    table = {var: place.value for var, place in zip(old.vars, places, strict=True)}
    body = [ir.substitute(statement, table) for statement in program.body]
    differ = tuple(
        (place.buffer, along) for place, along in zip(places, shape, strict=True) if along > 1
    )
    notes = {TILES: Tiles(differ, stores).annotation()} | ({DYNAMIC: 1} if way.dynamic else {})
    tiles = ir.loop(iteration, way.iterations, [*statements, *body], notes)
    other_ids = tuple(scope_id for scope_id in program.ids if scope_id.kind != "cta")
    order = "column after column" if group is None else f"in groups of {group} rows"
    together = " x ".join(map(str, shape)) if ctas_a_tile == 1 else f"{ctas_a_tile} CTAs a tile"
    parts = f"clusters of {together}" if size > 1 else "no clusters"
    asked = ctas.statements() if isinstance(ctas, Resident) else ()
    host = (*program.host, *asked, *way.host)
    changed = program.replace(ids=(*ids, *other_ids), body=(*way.start, tiles), host=host)
    return changed.decided(f"grid: {_many(ctas)}, {parts}, tiles {order}")


def _many(ctas: int | Resident | None) -> str:
    if ctas is None:
        return "CTAs that take over tiles of others"
    if isinstance(ctas, int):
        return f"{ctas} persistent CTAs"
    return f"as many persistent CTAs as the device holds ({ctas.example})"


def fresh_names(func: PrimFunc, *names: str) -> list[str]:
    """The names, each with a number behind it where a parameter of the function has it.

    Annotations tell variables by name, and so must not depend on how the printer tells them apart.
    """
    taken = {var.name for var in func.params}
    return [
        next(candidate for candidate in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 1)))
             if candidate not in taken)
        for name in names
    ]  # fmt: skip


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
