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
from warploom.lower.analysis.gather_rows import gathered
from warploom.lower.analysis.rings import PipelinePlan, Ring, RingUse
from warploom.lower.analysis.shared_tiles import stacked
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global
from warploom.tile.statement import Allocation, Block, Load, Loop, Mma, Statement, raws, walk


def plan_pipeline(
    program: TileProgram, multicast: bool = True, apart: bool = False, several: bool = False,
    by_reads: bool = False,
) -> PipelinePlan:  # fmt: skip
    """Find the rings of a program.

    Parameters
    ----------
    multicast : bool
        Whether CTAs of a cluster may load parts of a tile for each other.
    apart : bool
        Whether loads of a block that different statements use are rings of their own. Then a tile
        may be loaded in several places, one after the other.
    several : bool
        Whether such places fill the stages of one ring; else each has a ring of its own.
    by_reads : bool
        Whether loads of a block that stand behind a statement that reads the tiles before them are
        a ring of their own.

    Raises
    ------
    Decline
        If a tile is used outside the block that loads it, its loads do not fill it, or it is loaded
        in two places where that is not allowed.
    """
    found: list[_Loaded] = []
    for place in blocks(program):
        loads = [load for load in place.statements if isinstance(load, Load)]
        for together in _groups(loads, place.statements, apart, by_reads):
            found.append(_loaded(place, together, program.tensor_memory))
    rings: dict[int | frozenset[Buffer], list[_Loaded]] = {}
    for number, one in enumerate(found):
        rings.setdefault(one.tiles if apart and several else number, []).append(one)
    uses: dict[_Loaded, RingUse] = {}
    names: list[str] = []
    for places in rings.values():
        uses |= _ring(program, places, names, multicast)
    plan = PipelinePlan(tuple(uses[one] for one in found))
    _check(program, plan.uses, apart)
    return plan


@dataclass(frozen=True, eq=False)
class _Loaded:
    """Loads of a block that travel together.

    Attributes
    ----------
    place : Place
        The block.
    loads : list of Load
    users : list of int
        Positions in the block of the statements that touch their tiles.
    """

    place: Place
    loads: list[Load]
    users: list[int]

    @property
    def tiles(self) -> frozenset[Buffer]:
        """What is loaded."""
        return frozenset(load.tile for load in self.loads)


def _loaded(place: Place, loads: list[Load], gathers: bool) -> _Loaded:
    """Loads of a block and their users; they fill their tiles.

    ``gathers`` says whether TMA gathers rows, four at a time.
    """
    tiles = {load.tile for load in loads}
    users = _users(tiles, place.statements)
    if not users:
        names = ", ".join(sorted(tile.name for tile in tiles))
        raise Decline(
            f"Nothing in the block that loads {names} uses it; load a tile in the same loop or "
            "branch as the statements that use it."
        )
    for tile in tiles:
        _check_filled(tile, [load for load in loads if load.tile.same_as(tile)], gathers)
    return _Loaded(place, loads, users)


def _ring(
    program: TileProgram, places: list[_Loaded], names: list[str], multicast: bool
) -> dict[_Loaded, RingUse]:
    """The uses of a ring that is filled in these places; ``names`` has those that are taken."""
    users = walk(tuple(one.place.statements[number] for one in places for number in one.users))
    paired = any(
        isinstance(user, Mma) and user.ctas > 1 and user.effects.touched & places[0].tiles
        for user in users
    )  # fmt: skip
    loads = [(one.place, load) for one in places for load in one.loads]
    stages = max(one.place.stages for one in places)
    tiles = list(dict.fromkeys(load.tile for load in places[0].loads))
    made: list[str] = []
    for _ in places:
        made.append(_fresh("_".join(tile.name for tile in tiles), names))
        names.append(made[-1])
    ring = Ring(
        made[0],
        raws(load for _, load in loads),
        {tile: stacked(tile, stages) for tile in tiles},
        stages,
        [peers_of(load, program, place.differs, ATOM_ROWS) if multicast else None
         for place, load in loads],
        pairs_of(program) if paired else None,
    )  # fmt: skip
    return {
        one: RingUse(
            ring, name, raws(one.loads), one.place.statements, one.users[0], one.users[-1],
            one.place.loop,
        )
        for one, name in zip(places, made, strict=True)
    }  # fmt: skip


def _fresh(name: str, taken: list[str]) -> str:
    """The name, with a number behind it where another ring or use has it."""
    return next(
        one for number in range(len(taken) + 1)
        if (one := f"{name}_{number}" if number else name) not in taken
    )  # fmt: skip


def _groups(loads: list[Load], statements: Block, apart: bool, by_reads: bool) -> list[list[Load]]:
    """The loads of a block, those together that are a ring.

    Only the first CTA of a pair hears of the loads that their MMAs read: others are apart.
    """
    if apart:
        return _by_users(loads, statements)
    if by_reads:
        return _by_reads(statements)
    multiplied = {
        tile
        for mma in walk(statements) if isinstance(mma, Mma) and mma.ctas > 1
        for tile in mma.effects.reads
    }  # fmt: skip
    groups = ([one for one in loads if (one.tile in multiplied) is both] for both in (True, False))
    return [group for group in groups if group]


def _by_users(loads: list[Load], statements: Block) -> list[list[Load]]:
    """The loads of a block, together where the same of its statements use their tiles."""
    groups: dict[tuple[int, ...], list[Load]] = {}
    for load in loads:
        groups.setdefault(tuple(_users({load.tile}, statements)), []).append(load)
    return list(groups.values())


def _by_reads(statements: Block) -> list[list[Load]]:
    """The loads of a block, together where no statement between them uses their tiles."""
    groups: list[list[Load]] = []
    begins = True
    for statement in statements:
        if isinstance(statement, Load):
            before = next((g for g in groups if any(statement.tile is o.tile for o in g)), None)
            if before is not None:
                before.append(statement)  # a part of a tile: the others are in a ring already
            elif begins:
                groups.append([statement])
            else:
                groups[-1].append(statement)
            begins = False
        elif groups:
            begins |= _uses(statement, {load.tile for load in groups[-1]})
    return groups


def _users(tiles: set[Buffer], statements: Block) -> list[int]:
    """Positions of the statements that touch tiles, and do not load them themselves."""
    return [
        number for number, statement in enumerate(statements)
        if _uses(statement, tiles)
        and not any(isinstance(each, Load) and each.tile in tiles for each in walk((statement,)))
    ]  # fmt: skip


def _check_filled(tile: Buffer, loads: list[Load], gathers: bool) -> None:
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
    end, every = 0, raws(loads)
    in_fours = gathers and all(gathered(load, every) is not None for load in every)
    unit = 1 if in_fours else ATOM_ROWS
    for first, rows in sorted(parts):
        if first != end or (first and (first % unit or rows % unit)):
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


def _check(program: TileProgram, uses: tuple[RingUse, ...], apart: bool) -> None:
    seen: dict[Buffer, RingUse] = {}
    for use in uses:
        for tile in use.ring.tiles:
            before = seen.setdefault(tile, use)
            if before is not use and not apart:
                hint = ", or the hint split_rings" if program.arch == SM90A.name else ""
                raise Decline(
                    f"The tile {tile.name} is loaded in two places; use one tile for each{hint}."
                )
            if set(before.ring.tiles) != set(use.ring.tiles):
                raise Decline(
                    f"The tile {tile.name} is loaded in two places, and the statements there use "
                    "other tiles with it; use one tile for each place."
                )
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
        if buffer in program.workspaces or buffer.name in program.in_place:
            continue
        readers = [reader for reader in reads.get(buffer, []) if reader not in stores]
        if readers:
            raise Decline(
                f"The buffer {buffer.name} is stored and also read by another statement, which is "
                "not known to read only elements that this CTA stores afterwards, outside of loops "
                "and without split_k or stream_k; keep the value in a tile, or use a second kernel."
            )
