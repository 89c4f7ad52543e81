"""Common loads of the CTAs of a cluster: which CTAs load the same, and whose stages they write.

The CTAs of a cluster differ in their tile along some dimensions of the grid. The loads of a
statement may depend on some of these; CTAs that differ only in the others load the same. They are
peers: each loads a part, and multicasts it to all of them. A CTA may have other peers for each
operand: in a cluster (2, 2), rows of A come to the CTAs of a row of tiles, those of B to a column.

A stage must be free in all CTAs that a load of this CTA writes to. Since peers are mutual, these
are the CTAs that write into the stage of this one: it tells all of them when it has read it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Var

from warploom.target.tcgen05 import PAIR
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.statement import Branch, Gather, Load, Loop, Statement

#: Numbers of the dimensions along which the CTAs of a cluster differ.
Dimensions = frozenset[int]


def cluster_shape(program: TileProgram) -> tuple[int, ...]:
    """CTAs of a cluster along each dimension in which they differ, the one ranks count first."""
    cluster = program.id("cta_in_cluster")
    if cluster is None:
        return ()
    if program.cluster:
        return tuple(extent for _, extent in program.cluster)
    return (math.prod(int(extent) for extent in cluster.extents),)


def dependence(program: TileProgram) -> dict[Var, Dimensions]:
    """Variables whose values differ between CTAs of a cluster -> the dimensions that matter."""
    shape = cluster_shape(program)
    if not shape:
        return {}
    every = frozenset(range(len(shape)))
    dimensions: dict[Var, Dimensions] = dict.fromkeys(program.id("cta_in_cluster").vars, every)
    places = {scalar: frozenset([d]) for d, (scalar, _) in enumerate(program.cluster)}
    dimensions |= places

    def visit(statement: Statement, control: Dimensions) -> bool:
        """Note the scalars that a statement sets; ``control`` decides whether it is executed."""
        raw = statement.raw
        if isinstance(raw, (tirx.BufferStore, tirx.Bind)):
            to = raw.buffer if isinstance(raw, tirx.BufferStore) else raw.var
            before = dimensions.get(to, frozenset())
            now = before | control | depends_on(raw.value, dimensions)
            if to in places or now == before:
                return False
            dimensions[to] = now
            return True
        inside = control | control_of(statement, dimensions)
        return any([visit(inner, inside) for block in statement.blocks for inner in block])

    while any([visit(statement, frozenset()) for statement in program.block]):
        pass
    return dimensions


def depends_on(node: Any, known: dict[Var, Dimensions]) -> Dimensions:
    """The dimensions that the value of an expression, or the effect of a statement, depends on."""
    return frozenset().union(*(known.get(var, frozenset()) for var in ir.uses(node)))


def control_of(statement: Statement, known: dict[Var, Dimensions]) -> Dimensions:
    """The dimensions that decide how often the body of a loop or branch is executed."""
    match statement:
        case Loop(extent=decides) | Branch(condition=decides):
            return depends_on(decides, known)
    return frozenset()


@dataclass(frozen=True)
class Pairs:
    """The pairs of CTAs of a cluster that multiply together: ranks 0 and 1, 2 and 3, ...

    Attributes
    ----------
    count : int
        How many they are.
    rank : Expr
        That of this CTA.
    """

    count: int
    rank: Any

    @property
    def leader(self) -> Any:
        """The rank of the CTA of this pair that multiplies for both."""
        return 0 if self.count == 1 else T.truncdiv(self.rank, PAIR) * PAIR

    @property
    def leads(self) -> Any:
        """Whether this CTA does."""
        return (self.rank if self.count == 1 else T.truncmod(self.rank, PAIR)) == 0

    @property
    def mask(self) -> Any:
        """A bit for each CTA of this pair."""
        both = (1 << PAIR) - 1
        if self.count == 1:
            return both
        return T.shift_left(T.uint32(both), T.Cast("uint32", self.leader))


def pairs_of(program: TileProgram) -> Pairs:
    """The pairs of a cluster."""
    cluster = program.id("cta_in_cluster")
    return Pairs(math.prod(int(extent) for extent in cluster.extents) // PAIR, *cluster.vars)


@dataclass(frozen=True)
class Peers:
    """CTAs of a cluster that differ along some dimensions, this one among them.

    Attributes
    ----------
    shape : tuple of int
        The cluster.
    along : frozenset of int
        The dimensions.
    """

    shape: tuple[int, ...]
    along: Dimensions

    @property
    def count(self) -> int:
        """How many they are."""
        return math.prod(self.shape[d] for d in self.along)

    def ranks(self, rank: int = 0) -> set[int]:
        """The ranks of the peers of a CTA."""
        own = self._places(rank)
        return {
            rank for rank in range(math.prod(self.shape))
            if all(d in self.along or a == b
                   for d, (a, b) in enumerate(zip(own, self._places(rank), strict=True)))
        }  # fmt: skip

    def mask(self, rank: Any) -> Any:
        """A bit for each peer: an int if all CTAs of the cluster have the same."""
        pattern = sum(1 << rank for rank in self.ranks())
        across = [d for d in range(len(self.shape)) if d not in self.along]
        if not across:
            return pattern
        first = _sum(self._place(rank, d) * self._stride(d) for d in across)
        return T.shift_left(T.uint32(pattern), T.Cast("uint32", first))

    def number(self, rank: Any) -> Any:
        """Which of the peers this CTA is."""
        if len(self.along) == len(self.shape):
            return rank
        parts, stride = [], 1
        for d in sorted(self.along):
            parts.append(self._place(rank, d) * stride)
            stride *= self.shape[d]
        return _sum(parts)

    def _places(self, rank: int) -> list[int]:
        return [rank // self._stride(d) % extent for d, extent in enumerate(self.shape)]

    def _place(self, rank: Any, dimension: int) -> Any:
        above = T.truncdiv(rank, self._stride(dimension)) if dimension else rank
        last = dimension == len(self.shape) - 1
        return above if last else T.truncmod(above, self.shape[dimension])

    def _stride(self, dimension: int) -> int:
        return math.prod(self.shape[:dimension])


def _sum(terms: Iterable[Any]) -> Any:
    total, *rest = terms
    for term in rest:
        total = total + term
    return total


def peers_of(load: Load, program: TileProgram, differs: Dimensions, rows: int) -> Peers | None:
    """The CTAs that load the same as this one, each a multiple of ``rows`` rows of the tile.

    Parameters
    ----------
    differs : frozenset of int
        Dimensions along which CTAs may not come to this load alike.

    Returns
    -------
    Peers or None
        As many as the rows of the tile, or of the part that is loaded, divide among; None for one.
    """
    if isinstance(load, Gather):
        return None  # threads copy to their own CTA alone
    shape = cluster_shape(program)
    alike = sorted(set(range(len(shape))) - differs - depends_on(load.source, dependence(program)))
    height = int(ir.ranges(load.to)[0][1])
    choices = [
        Peers(shape, frozenset(along))
        for count in range(1, len(alike) + 1) for along in itertools.combinations(alike, count)
    ]  # fmt: skip
    # The CTAs share the first dimension of the load.
    outer = next(
        (int(extent) for _, extent in ir.ranges(load.source) if not ir.is_constant(extent, 1)), 1
    )
    choices = [
        choice for choice in choices if height % (choice.count * rows) == outer % choice.count == 0
    ]
    return max(choices, key=lambda choice: choice.count, default=None)


def writers(groups: Iterable[Peers], rank: Any) -> tuple[int, Any]:
    """CTAs that write into a stage of this one: how many, and a bit for each.

    The mask is an int if all CTAs of the cluster write, an expression of this CTA's rank otherwise.
    """
    groups = list(groups)
    ranks = set().union(*(group.ranks() for group in groups))
    if groups and len(ranks) == math.prod(groups[0].shape):
        return len(ranks), (1 << len(ranks)) - 1
    mask = None
    for group in groups:
        part = group.mask(rank)
        mask = part if mask is None else T.bitwise_or(mask, part)
    return max(1, len(ranks)), mask


def is_in(lane: Any, mask: Any) -> Any:
    """Whether the CTA with the number of a lane is in a mask of :func:`writers`."""
    if isinstance(mask, int):
        return lane < mask.bit_length()
    return T.bitwise_and(T.shift_right(mask, T.Cast("uint32", lane)), T.uint32(1)) > T.uint32(0)
