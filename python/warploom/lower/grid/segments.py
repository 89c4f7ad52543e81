"""Which steps of which tiles a cluster computes, where several clusters share a tile.

A tile has as many steps as its loop over K has iterations. Some tiles are cut into units, of a
step each or of more; the units of all of these tiles stand in a row, of which every cluster gets
an equal part. Its part of one tile is a segment. The CTA with the first step of a tile is its
owner: it adds the sums of the other CTAs, and finishes the tile.

Parts are dealt out from the last cluster to the first. So a CTA comes to the one tile that it owns
a part of last, when the other CTAs, which have lower numbers, have long done their parts.
GPUs start CTAs in the order of their numbers: the CTA that another waits for is under way, even
where another kernel holds a part of the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var

from warploom.lower.grid.persistent import Grid, TileSchedule, static_schedule
from warploom.tile import ir
from warploom.tile.scalar import ThreadScalar

#: Fewest steps of a part that is worth a round trip of its sum through global memory.
LEAST_STEPS = 4


@dataclass(frozen=True)
class Segment:
    """Scalars of one iteration: the segment that it computes.

    Attributes
    ----------
    first, steps : Scalar
        The first step, and how many.
    part : Scalar
        0 for the owner of the tile.
    others : Scalar
        For the owner of a tile: how many others have segments of it.
    slot, stride : Scalar
        Where in the workspace this CTA puts its sum; the sums of the others are ``stride``,
        ``2 * stride``, ... before that.
    """

    first: ThreadScalar = field(default_factory=lambda: ThreadScalar("first"))
    steps: ThreadScalar = field(default_factory=lambda: ThreadScalar("steps"))
    part: ThreadScalar = field(default_factory=lambda: ThreadScalar("part"))
    others: ThreadScalar = field(default_factory=lambda: ThreadScalar("others"))
    slot: ThreadScalar = field(default_factory=lambda: ThreadScalar("slot"))
    stride: ThreadScalar = field(default_factory=lambda: ThreadScalar("stride"))

    def define(self, **values: Any) -> list[Stmt]:
        """Statements that set them."""
        return [s for name, value in values.items() for s in getattr(self, name).define(value)]


@dataclass(frozen=True)
class Cut:
    """How tiles are cut.

    Attributes
    ----------
    steps : int or Expr
        Steps of a tile.
    units : int or Expr
        Units of a tile, at least 1.
    shared : callable
        From tiles and clusters to how many of the tiles are cut.
    least : int
        Fewest units that a cluster gets, if there are more than tiles.
    """

    steps: Any
    units: Any
    shared: Callable[[Any, Any], Any]
    least: int

    def start(self, unit: Any) -> Any:
        """The first step of a unit."""
        if self.units is self.steps:
            return unit
        quotient = T.truncdiv(ir.as_expr(self.steps), self.units)
        return _start(unit, quotient, T.truncmod(ir.as_expr(self.steps), self.units))


def split_k(steps: Any, parts: Any) -> Cut:
    """All tiles, each in as many parts, or in single steps if it has fewer."""
    units = T.min(ir.as_expr(parts), T.max(ir.as_expr(steps), 1))
    return Cut(steps, units, lambda tiles, clusters: ir.as_expr(tiles), 1)


def stream_k(steps: Any) -> Cut:
    """The tiles that would not keep all clusters busy, in single steps.

    Where the tiles are no multiple of the clusters, the last round of whole tiles would leave
    clusters idle. Those tiles are cut, and those of one full round, so that each cluster gets
    between one and two tiles' worth, and a tile is cut about once. The rest are full waves of
    whole tiles, which need no reduction and keep their order in L2.
    """

    def shared(tiles: Any, clusters: Any) -> Any:
        rest = T.truncmod(ir.as_expr(tiles), clusters)
        return T.Select(T.EQ(rest, 0), ir.as_expr(0), T.min(tiles, rest + clusters))

    units = steps if isinstance(steps, int) and steps > 0 else T.max(ir.as_expr(steps), 1)
    return Cut(steps, units, shared, LEAST_STEPS)


def _start(number: Any, quotient: Any, remainder: Any) -> Any:
    """Where part ``number`` begins, if the first ``remainder`` parts have one more than others."""
    return number * quotient + T.min(number, remainder)


def in_segments(segment: Segment, cut: Cut) -> Callable[[Grid], TileSchedule]:
    """A schedule that sets the scalars of a segment in every iteration.

    Tiles that are not cut come last: then owners wait when others still have work.
    """
    return lambda grid: _SegmentSchedule(segment, cut, grid).schedule()


def in_clusters(segment: Segment, cut: Cut, parts: int) -> Callable[[Grid], TileSchedule]:
    """A schedule where the ``parts`` CTAs of a cluster share each tile, which the last owns."""

    def schedule(grid: Grid) -> TileSchedule:
        part = segment.part.value
        scalars = segment.define(
            part=parts - 1 - grid.place,
            first=cut.start(T.min(part, cut.units)),
            steps=cut.start(T.min(part + 1, cut.units)) - segment.first.value,
            others=cut.units - 1,
            slot=grid.cta,
            stride=1,
        )
        whole = static_schedule(grid)
        slots = grid.clusters * grid.size
        return replace(whole, tile_of=lambda i: (scalars, whole.tile_of(i)[1]), slots=slots)

    return schedule


def in_teams(segment: Segment, steps: Any, parts: int) -> Callable[[Grid], TileSchedule]:
    """A schedule where teams of ``parts`` clusters share tiles, each every so many-th.

    For tiles of which the device knows whether there is anything to compute: where the first ones
    have all the work, all clusters have a part of it. A team's last cluster owns its tiles. Each
    part of a tile has a slot of its own, so that no cluster waits until another has read its sums.
    Clusters that fill no team have no work; a device that holds fewer has one team of them.
    """

    def schedule(grid: Grid) -> TileSchedule:
        values = {
            "members": T.min(ir.as_expr(parts), grid.clusters),
            "teams": T.max(T.truncdiv(grid.clusters, parts), 1),
        }
        host: tuple[Stmt, ...] = ()
        if not grid.is_fixed:
            bound = {name: (Var(name, "int32"), value) for name, value in values.items()}
            host = tuple(tirx.Bind(var, value) for var, value in bound.values())
            values = {name: var for name, (var, _) in bound.items()}
        members, teams = values["members"], values["teams"]
        team, place = T.truncdiv(grid.cluster, members), T.truncmod(grid.cluster, members)
        tiles = ir.as_expr(grid.tiles)
        rounds = T.truncdiv(T.max(tiles - team, 0) + (teams - 1), teams)

        def tile_of(number: Var) -> tuple[list[Stmt], Any]:
            tile, part = team + number * teams, segment.part.value
            cut = split_k(steps, members)
            return segment.define(
                part=members - 1 - place,
                first=cut.start(T.min(part, cut.units)),
                steps=cut.start(T.min(part + 1, cut.units)) - segment.first.value,
                others=cut.units - 1,
                slot=(tile * members + place) * grid.size + grid.place,
                stride=grid.size,
            ), tile

        iterations = T.Select(team < teams, rounds, ir.as_expr(0))
        slots = T.max(tiles * parts, 1) * grid.size
        return TileSchedule([], iterations, tile_of, slots, host)

    return schedule


#: What is the same for all clusters, and what is not.
_COMMON = ("shared", "workers", "quotient", "remainder", "rounds")
_OWN = ("begin", "end", "segments")


class _SegmentSchedule:
    """The share of one cluster.

    Where the device decides how many clusters there are, the host computes what is the same for
    all of them, and the kernel does not divide by that number.
    """

    def __init__(self, segment: Segment, cut: Cut, grid: Grid) -> None:
        self.segment, self.cut, self.grid = segment, cut, grid
        self.scalars = {name: ThreadScalar(name) for name in (*_COMMON, *_OWN)}
        self.of_host = {} if grid.is_fixed else {name: Var(name, "int32") for name in _COMMON}

    def value(self, name: str) -> Any:
        """Return a scalar that is set before the first iteration."""
        return self.of_host.get(name, self.scalars[name].value)

    @property
    def mine(self) -> Any:
        """Number of this cluster, counted from the last one."""
        return self.grid.clusters - 1 - self.grid.cluster

    def schedule(self) -> TileSchedule:
        """The schedule of the cluster, with the scalars that it needs."""
        grid, units = self.grid, self.cut.units
        shared, workers = self.value("shared"), self.value("workers")
        quotient, remainder = self.value("quotient"), self.value("remainder")
        begin, end = self.value("begin"), self.value("end")
        total = shared * units
        wanted = T.max(T.min(shared, grid.clusters), T.truncdiv(total, self.cut.least))
        touched = T.truncdiv(end - 1, units) - T.truncdiv(begin, units) + 1
        values = {
            "shared": self.cut.shared(grid.tiles, grid.clusters),
            "workers": T.max(1, T.min(grid.clusters, wanted)),
            "quotient": T.truncdiv(total, workers),
            "remainder": T.truncmod(total, workers),
            "begin": T.min(_start(self.mine, quotient, remainder), total),
            "end": T.min(_start(self.mine + 1, quotient, remainder), total),
            "segments": T.Select(begin < end, touched, ir.as_expr(0)),
        }
        rounds = T.truncdiv(grid.tiles - shared, grid.clusters)
        host: list[Stmt] = []
        if self.of_host:
            values["rounds"], rounds = rounds, self.value("rounds")
            host = [tirx.Bind(var, values.pop(name)) for name, var in self.of_host.items()]
        start = [s for name, value in values.items() for s in self.scalars[name].define(value)]
        iterations = self.value("segments") + rounds
        # Of the tiles of a cluster, only the first can be owned by another.
        slots = grid.clusters * grid.size
        return TileSchedule(start, iterations, self._tile_of, slots, tuple(host))

    def _tile_of(self, number: Any) -> tuple[list[Stmt], Any]:
        grid, units, begin = self.grid, self.cut.units, self.value("begin")
        partial = number < self.value("segments")
        tile, low, high = (ThreadScalar(name) for name in ("number", "low", "high"))
        after = number - self.value("segments")
        whole = self.value("shared") + grid.cluster + after * grid.clusters
        at = tile.value * units
        scalars = [
            *tile.define(T.Select(partial, T.truncdiv(begin, units) + number, whole)),
            *low.define(T.Select(partial, T.max(begin - at, 0), ir.as_expr(0))),
            *high.define(
                T.Select(partial, T.min(self.value("end") - at, units), ir.as_expr(units))
            ),
            *self.segment.define(
                part=low.value,
                first=self.cut.start(low.value),
                steps=T.min(self.cut.start(high.value), self.cut.steps) - self.segment.first.value,
                others=T.Select(
                    T.And(partial, high.value < units),
                    self._holder(at + (units - 1)) - self.mine, ir.as_expr(0),
                ),
                slot=grid.cta,
                stride=grid.size,
            ),
        ]  # fmt: skip
        return scalars, tile.value

    def _holder(self, unit: Any) -> Any:
        """The cluster, counted from the last one, that has a unit."""
        quotient, remainder = self.value("quotient"), self.value("remainder")
        longer = remainder * (quotient + 1)
        return T.Select(
            unit < longer,
            T.truncdiv(unit, quotient + 1),
            remainder + T.truncdiv(unit - longer, T.max(quotient, 1)),
        )
