"""Decides which loads run ahead of the computation, how far, and where their stages are free.

Loads that stand together in one block and feed statements of that block travel together: they are
a ring of stages in shared memory. A stage is in use from the first statement that touches one of
its tiles to the last. The result is a plan; both lowerings carry it out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.tirx import Buffer, Var

from warploom.errors import Decline, IllegalCombination
from warploom.layout.smem_matrix import ATOM_ROWS, SharedMatrix
from warploom.target import Major
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global, is_shared
from warploom.tile.statement import (
    Allocation,
    Block,
    Load,
    Loop,
    Mma,
    Statement,
    raws,
    walk,
)
from warploom.transform.barriers import Ring
from warploom.transform.clusters import Dimensions, control_of, dependence, pairs_of, peers_of
from warploom.transform.infer_layouts import has_layout


@dataclass(frozen=True)
class RingUse:
    """Where a ring lives: positions in the block that holds its loads.

    Attributes
    ----------
    block : tuple of Statement
        The statements of the block.
    first, last : int
        The first and the last of them that touch a tile of the ring, loads apart.
    loop : Loop or None
        The loop whose body the block is.
    """

    ring: Ring
    block: Block
    first: int
    last: int
    loop: Loop | None

    def is_in(self, statements: Block) -> bool:
        """Whether statements are the block."""
        return len(self.block) == len(statements) and all(
            a.raw.same_as(b.raw) for a, b in zip(self.block, statements, strict=True)
        )


@dataclass(frozen=True)
class PipelinePlan:
    """All rings of a program, in its order."""

    uses: tuple[RingUse, ...]

    @property
    def rings(self) -> list[Ring]:
        """The rings."""
        return [use.ring for use in self.uses]

    def of_block(self, statements: Block) -> list[RingUse]:
        """The rings whose loads stand in a block."""
        return [use for use in self.uses if use.is_in(statements)]

    def ring_of(self, load: Load) -> Ring:
        """The ring that a load is one of."""
        return next(r for r in self.rings if any(one.same_as(load.raw) for one in r.loads))

    def describe(self) -> list[str]:
        """A sentence for each ring."""
        found = []
        for ring in self.rings:
            size = sum(tile_bytes(tile) for tile in ring.tiles)
            text = (
                f"ring of {', '.join(tile.name for tile in ring.tiles)}: {ring.stages} stages of "
                f"{size} bytes"
            )
            if ring.pairs:
                text += ", of both CTAs of a pair together"
            text += "".join(
                f", {load.args[0].source.name} multicast to {peers.count} CTAs"
                for load, peers in zip(ring.loads, ring.peers, strict=True) if peers
            )  # fmt: skip
            found.append(text)
        return found

    def tiles(self) -> dict[Buffer, Ring]:
        """Logical tile -> its ring."""
        return {tile: ring for ring in self.rings for tile in ring.tiles}


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
        loads = [one for one in statements if isinstance(one, Load)]
        if not loads:
            continue
        tiles = {load.tile for load in loads}
        touching = [i for i, one in enumerate(statements) if _uses(one, tiles)]
        if not touching:
            names = ", ".join(sorted(tile.name for tile in tiles))
            raise Decline(
                f"Nothing in the block that loads {names} uses it; load a tile in the same loop or "
                "branch as the statements that use it."
            )
        for tile in tiles:
            _check_filled(tile, [load for load in loads if load.tile.same_as(tile)])
        users = walk(tuple(statements[number] for number in touching))
        paired = any(isinstance(one, Mma) and one.ctas > 1 for one in users)
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


def with_stages(use: RingUse, stages: int) -> RingUse:
    """A ring with another number of stages."""
    ring = use.ring
    tiles = {tile: stacked(tile, stages) for tile in ring.tiles}
    return dataclasses.replace(
        use, ring=Ring(ring.name, ring.loads, tiles, stages, ring.peers, ring.pairs)
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
    for one in statements:
        within = differs | control_of(one, known)
        inside, count = None, stages
        if isinstance(one, Loop):
            inside = one
            if not one.over_tiles:
                count = one.stages or 1
        for inner in one.blocks:
            yield from _blocks(inner, inside, count, within, known)


def _uses(statement: Statement, tiles: set[Buffer]) -> bool:
    """Whether a statement touches tiles and is neither their load nor their definition."""
    if isinstance(statement, (Load, Allocation)):
        return False
    return bool(tiles & statement.effects.touched)


def stacked(tile: Buffer, stages: int) -> Buffer:
    """A buffer with a stage in front, laid out as copies of the tile.

    Raises
    ------
    Decline
        If the tile has a layout other than row-major, or that of an operand.
    """
    shape = [int(extent) for extent in tile.shape]
    layout = None
    matrix = shared_matrix(tile)
    if matrix is not None:
        layout = matrix.layout((stages, *shape[:-2]))
    elif has_layout(tile):
        raise Decline(
            f"The tile {tile.name} has a layout that is no operand's, and is to have {stages} "
            "copies; write mma_shared_layout(...), or leave layout= out."
        )
    return tirx.decl_buffer(
        (stages, *shape), str(tile.dtype), tile.name, scope="shared", layout=layout or "default"
    )


def shared_matrix(tile: Buffer) -> SharedMatrix | None:
    """The operand of a product that a shared tile is, if its layout is one."""
    for major in Major:
        with contextlib.suppress(IllegalCombination):
            return SharedMatrix.from_buffer(tile, major)
    return None


def tile_bytes(tile: Buffer) -> int:
    """Bytes of a tile."""
    bits = tvm.DataType(str(tile.dtype)).bits
    return math.prod(int(extent) for extent in tile.shape) * bits // 8


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
        own = owned | {
            tile for use in uses if use.is_in(statements) for tile in use.ring.tiles
        }
        for one in statements:
            if isinstance(one, (Load, Allocation)):
                continue
            if not one.blocks:
                touched = one.effects.touched
                outside.extend(t for t in touched if t in seen and t not in own)
            for inner in one.blocks:
                visit(inner, own)

    visit(program.block, set())
    if outside:
        name = outside[0].name
        raise Decline(
            f"The tile {name} is used outside the block that loads it; use it in the same loop or "
            "branch, or load it before."
        )


def _check_global_memory(program: TileProgram) -> None:
    """What a CTA stores it must not read again: loads run ahead, stores complete late."""
    reads: dict[Buffer, list[Statement]] = {}
    writes: dict[Buffer, list[Statement]] = {}
    for one in walk(program.block):
        if one.blocks or isinstance(one, Allocation):
            continue
        for table, buffers in ((reads, one.effects.reads), (writes, one.effects.writes)):
            for buffer in filter(is_global, buffers):
                table.setdefault(buffer, []).append(one)
    # What goes through a workspace has flags of its own.
    for buffer, stores in writes.items():
        if buffer in program.workspaces:
            continue
        others = [one for one in reads.get(buffer, []) if one not in stores]
        if others:
            raise Decline(
                f"The buffer {buffer.name} is stored and also read by another statement; keep the "
                "value in a tile, or use a second kernel."
            )


def is_consumer_tile(tile: Buffer, plan: PipelinePlan) -> bool:
    """Whether a shared tile is written by the consumers themselves."""
    return is_shared(tile) and tile not in plan.tiles()
