"""Decides which loads run ahead of the computation, how far, and where their stages are free.

Loads that stand together in one block and feed statements of that block travel together: they are
a ring of stages in shared memory. A stage is in use from the first statement that touches one of
its tiles to the last. The result is a plan; both lowerings carry it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx import Buffer, Var

from warploom.errors import Decline
from warploom.layout.smem_matrix import ATOM_ROWS
from warploom.lower.analysis.clusters import Dimensions, control_of, dependence, pairs_of, peers_of
from warploom.lower.analysis.rings import PipelinePlan, Ring, RingUse
from warploom.lower.analysis.shared_tiles import stacked
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global
from warploom.tile.statement import Allocation, Block, Load, Loop, Mma, Statement, raws, walk


def plan_pipeline(program: TileProgram, multicast: bool = True) -> PipelinePlan:
    """Find the rings of a program.

    Parameters
    ----------
    multicast : bool
        Whether CTAs of a cluster may load parts of a tile for each other.

    Raises
    ------
    Decline
        If a tile is loaded in two places, used outside the block that loads it, or its loads do
        not fill it.
    """
    uses: list[RingUse] = []
    for place in blocks(program):
        statements, stages = place.statements, place.stages
        loads = [load for load in statements if isinstance(load, Load)]
        if not loads:
            continue
        tiles = {load.tile for load in loads}
        touching = [i for i, statement in enumerate(statements) if _uses(statement, tiles)]
        if not touching:
            names = ", ".join(sorted(tile.name for tile in tiles))
            raise Decline(
                f"Nothing in the block that loads {names} uses it; load a tile in the same loop or "
                "branch as the statements that use it."
            )
        for tile in tiles:
            _check_filled(tile, [load for load in loads if load.tile.same_as(tile)])
        users = walk(tuple(statements[number] for number in touching))
        paired = any(isinstance(user, Mma) and user.ctas > 1 for user in users)
        ring = Ring(
            "_".join(dict.fromkeys(load.tile.name for load in loads)),
            raws(loads),
            {load.tile: stacked(load.tile, stages) for load in loads},
            stages,
            [peers_of(load, program, place.differs, ATOM_ROWS) if multicast else None
             for load in loads],
            pairs_of(program) if paired else None,
        )  # fmt: skip
        uses.append(RingUse(ring, statements, touching[0], touching[-1], place.loop))
    _check(program, uses)
    return PipelinePlan(tuple(uses))


def _check_filled(tile: Buffer, loads: list[Load]) -> None:
    """Loads of a tile fill whole rows of it, each once, in parts that begin at a swizzle atom."""
    parts = []
    for load in loads:
        (first, rows), *others = ir.ranges(load.to)
        whole = all(
            ir.is_constant(start, 0) and int(extent) == int(size)
            for (start, extent), size in zip(others, tile.shape[1:], strict=True)
        )
        if not whole or not isinstance(first, (int, tirx.IntImm)):
            raise Decline(
                f"A load fills a part of the rows of the tile {tile.name}; load all of them, or "
                "use two tiles."
            )
        parts.append((int(first), int(rows)))
    end = 0
    for first, rows in sorted(parts):
        if first != end or (first and (first % ATOM_ROWS or rows % ATOM_ROWS)):
            raise Decline(
                f"Loads of the tile {tile.name} fill the rows {sorted(parts)}, by the first and "
                f"their number; each must be filled once, in multiples of {ATOM_ROWS}."
            )
        end = first + rows
    if end != int(tile.shape[0]):
        raise Decline(
            f"A load fills a part of the tile {tile.name}; load all of it, or use two tiles."
        )


@dataclass(frozen=True)
class Place:
    """Where statements that follow each other stand.

    Attributes
    ----------
    statements : tuple of Statement
        They.
    loop : Loop or None
        The loop whose body they are.
    stages : int
        Stages that loads among them have.
    differs : frozenset of int
        Dimensions of a cluster along which CTAs may not come to them alike.
    """

    statements: Block
    loop: Loop | None
    stages: int
    differs: Dimensions


def blocks(program: TileProgram) -> Iterator[Place]:
    """Every block of a program."""
    yield from _blocks(program.block, None, 1, frozenset(), dependence(program))


def _blocks(
    statements: Block, loop: Loop | None, stages: int, differs: Dimensions,
    known: dict[Var, Dimensions],
) -> Iterator[Place]:  # fmt: skip
    yield Place(statements, loop, stages, differs)
    for statement in statements:
        within = differs | control_of(statement, known)
        inside, count = None, stages
        if isinstance(statement, Loop):
            inside = statement
            if not statement.over_tiles:
                count = statement.stages or 1
        for inner in statement.blocks:
            yield from _blocks(inner, inside, count, within, known)


def _uses(statement: Statement, tiles: set[Buffer]) -> bool:
    """Whether a statement touches tiles and is neither their load nor their definition."""
    if isinstance(statement, (Load, Allocation)):
        return False
    return bool(tiles & statement.effects.touched)


def _check(program: TileProgram, uses: list[RingUse]) -> None:
    seen: dict[Buffer, RingUse] = {}
    for use in uses:
        for tile in use.ring.tiles:
            if tile in seen:
                raise Decline(
                    f"The tile {tile.name} is loaded in two places; use one tile for each."
                )
            seen[tile] = use
    _check_global_memory(program)
    outside: list[Buffer] = []

    def visit(statements: Block, owned: set[Buffer]) -> None:
        own = owned | {tile for use in uses if use.is_in(statements) for tile in use.ring.tiles}
        for statement in statements:
            if isinstance(statement, (Load, Allocation)):
                continue
            if not statement.blocks:
                touched = statement.effects.touched
                outside.extend(t for t in touched if t in seen and t not in own)
            for inner in statement.blocks:
                visit(inner, own)

    visit(program.block, set())
    if outside:
        name = outside[0].name
        raise Decline(
            f"The tile {name} is used outside the block that loads it; use it in the same loop or "
            "branch, or load it before."
        )


def _check_global_memory(program: TileProgram) -> None:
    """Decline reads of memory that the CTA stores: loads run ahead, stores complete late."""
    reads: dict[Buffer, list[Statement]] = {}
    writes: dict[Buffer, list[Statement]] = {}
    for statement in walk(program.block):
        if statement.blocks or isinstance(statement, Allocation):
            continue
        for table, buffers in (
            (reads, statement.effects.reads),
            (writes, statement.effects.writes),
        ):
            for buffer in filter(is_global, buffers):
                table.setdefault(buffer, []).append(statement)
    # Sums in a workspace have flags of their own.
    for buffer, stores in writes.items():
        if buffer in program.workspaces:
            continue
        readers = [reader for reader in reads.get(buffer, []) if reader not in stores]
        if readers:
            raise Decline(
                f"The buffer {buffer.name} is stored and also read by another statement; keep the "
                "value in a tile, or use a second kernel."
            )
