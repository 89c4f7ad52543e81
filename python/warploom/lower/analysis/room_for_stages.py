"""How many stages of its loads a program has room for, and how many hide the latency of loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tvm import tirx
from tvm.tirx import Buffer

from warploom.lower.analysis.budget import shared_bytes
from warploom.lower.analysis.own_pool import own_pool
from warploom.lower.analysis.shared_tiles import span_bytes, tile_bytes
from warploom.target import TMA, Swizzle
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import is_global, is_shared
from warploom.tile.statement import Block, Copy, Load, Loop, Mma, walk

#: Bytes that an SM receives while a load is on its way: 0.845 us and 78.8 bytes of each of 1980
#: cycles of a microsecond (H200, constants ``latency`` and ``receive_bytes`` of the cost model).
BYTES_ON_THE_WAY = 131_000
#: Stages that any config of a search has at most.
MOST_STAGES = 12
#: Bytes that are left for mbarriers, flags and prints, which later passes allocate; and for
#: mbarriers alone.
_LEFT_FREE, _MBARRIERS = 2048, 1024
#: Bytes of the chunks that a store has buffers for, at most.
STORE_CHUNKS = 32 * 1024


def stages_by_room(program: TileProgram, many_tiles: bool = False) -> tuple[int, str]:
    """The stages of the pipelined loops that nobody has given a number, and the reason.

    They are as many as hide the latency of loads, beside the stage that is computed with, or as
    many as fit into shared memory, if these are fewer; at least one.

    Parameters
    ----------
    many_tiles : bool
        Whether a CTA will compute several tiles, before a pass has made the loop over them.

    Examples
    --------
    >>> stages_by_room(program)
    (4, "for which shared memory has room")
    """
    places = _places_of_loads(program)
    unsaid = {id(loop): loop for loops in places.values() for loop in loops if _is_unsaid(loop)}
    if not unsaid:
        return 1, "as it loads nothing"
    stage = min(
        sum(tile_bytes(tile) for tile, loops in places.items() if any(own is loop for own in loops))
        for loop in unsaid.values()
    )
    wanted = min(MOST_STAGES, 1 + -(-BYTES_ON_THE_WAY // stage))
    why = "which hide the latency of its loads"
    iterations = None if many_tiles else _most_iterations(program, unsaid)
    if iterations is not None and iterations < wanted:
        wanted, why = iterations, "as many as it has iterations"
    room = shared_bytes(program) - _LEFT_FREE - _other_bytes(program, places)
    for stages in range(wanted, 1, -1):
        if _ring_bytes(places, stages) <= room:
            return stages, why
        why = "for which shared memory has room"
    return 1, why


def fits_beside(program: TileProgram, tiles: Iterable[Buffer]) -> bool:
    """Whether shared memory has room for another copy of each of these tiles.

    Loops that say nothing have two stages then, and stores go in chunks.
    """
    places = _places_of_loads(program)
    stores = sum(_chunk_bytes(program).values())
    used = _ring_bytes(places, 2) + _other_bytes(program, places) + stores
    more = sum(_aligned(tile_bytes(tile)) for tile in tiles)
    return used + more <= shared_bytes(program) - _MBARRIERS


def _chunk_bytes(program: TileProgram) -> dict[tuple[str, tuple[int, ...]], int]:
    """Shared memory that chunks of stores go through; tiles of one shape and dtype have it in turn.

    A tile has the dtype of what it is stored to then.
    """
    found: dict[tuple[str, tuple[int, ...]], int] = {}
    for one in walk(program.block):
        if isinstance(one, Copy) and is_global(one.to.source):
            shape, dtype = tuple(map(int, one.source.source.shape)), str(one.to.source.dtype)
            size = tile_bytes(tirx.decl_buffer(shape, dtype))
            found[dtype, shape] = min(STORE_CHUNKS, _aligned(size))
    return found


def _is_unsaid(loop: Loop | None) -> bool:
    return loop is not None and loop.pipelined and loop.stages is None


def _places_of_loads(program: TileProgram) -> dict[Buffer, list[Loop | None]]:
    """Each tile that is loaded, and the loops that its loads stand in; None outside of loops."""
    places: dict[Buffer, list[Loop | None]] = {}

    def visit(statements: Block, loop: Loop | None) -> None:
        for statement in statements:
            if isinstance(statement, Load):
                places.setdefault(statement.tile, []).append(loop)
            inside = loop
            if isinstance(statement, Loop):
                inside = None if statement.over_tiles else statement
            for inner in statement.blocks:
                visit(inner, inside)

    visit(program.block, None)
    return places


def _most_iterations(program: TileProgram, loops: Mapping[int, Loop]) -> int | None:
    """Iterations of the longest of these loops; None if unknown, or if stages serve many tiles."""
    outer = {id(statement) for statement in program.block}
    if any(key not in outer for key in loops):
        return None
    extents = [loop.extent for loop in loops.values()]
    if not all(isinstance(extent, int | tirx.IntImm) for extent in extents):
        return None
    return max(1, *map(int, extents))


def _ring_bytes(places: dict[Buffer, list[Loop | None]], stages: int) -> int:
    """Shared memory of all rings where the loops that say nothing have so many stages."""
    total = 0
    for tile, loops in places.items():
        counts = [
            stages if _is_unsaid(loop) else (loop.stages or 1) if loop is not None else 1
            for loop in loops
        ]
        total += _aligned(max(counts) * _apart(tile))
    return total


def _apart(tile: Buffer) -> int:
    """Bytes from a stage of a tile to the next."""
    return -(-tile_bytes(tile) // TMA.shared_align) * TMA.shared_align


def _other_bytes(program: TileProgram, loads: Iterable[Buffer]) -> int:
    """Shared memory of what is not loaded: tiles that threads write, staged stores, sums."""
    own = own_pool(program)
    total = own.size if own is not None else 0
    loaded = set(loads)
    for buffer in allocations(program.body):
        pool = own is not None and buffer.same_as(own.buffer)
        if is_shared(buffer) and buffer not in loaded and not pool:
            total += _aligned(span_bytes(buffer))
    if (together := program.hints.slice_k or 1) > 1:
        sums = {mma.d for mma in walk(program.block) if isinstance(mma, Mma)}
        total += sum(_aligned((together - 1) * tile_bytes(tile)) for tile in sums)
    return total


def _aligned(size: int) -> int:
    align = Swizzle.B128.atom_bytes
    return -(-size // align) * align
