"""The warpgroups that compute: how many there are, and which shared tiles are theirs alone."""

from __future__ import annotations

from tvm.tirx import Buffer, Stmt

from warploom.errors import Decline
from warploom.lower.analysis.rings import PipelinePlan, Ring, is_consumer_tile
from warploom.lower.analysis.transposed import transposed_tiles
from warploom.target.wgmma import WGMMA_M
from warploom.tile.hints import Hints
from warploom.tile.mbarriers import SCOPE as MBARRIER
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES, is_single
from warploom.tile.statement import Allocation, Load, Mma, walk

#: Computing warpgroups that a CTA has room for beside the one that loads.
MOST_WARPGROUPS = 3


def consumers(program: TileProgram) -> int:
    """Warpgroups that compute; before the roles, all that there are."""
    return int(program.id("warpgroup").extents[0])


def consumer_tiles(program: TileProgram, plan: PipelinePlan) -> list[Stmt]:
    """Allocations of shared tiles that no ring replaces, and of the author's mbarriers."""
    return [
        allocation.raw
        for allocation in walk(program.block)
        if isinstance(allocation, Allocation) and allocation.allocates
        and (allocation.buffer.scope() == MBARRIER or is_consumer_tile(allocation.buffer, plan))
    ]  # fmt: skip


def read_by_threads(ring: Ring, plan: PipelinePlan) -> bool:
    """Whether threads read a tile of a ring themselves, beside the tensor core.

    They read the metadata of a sparse A, too.
    """
    return any(
        statement.effects.reads & set(ring.tiles)
        for use in plan.uses if use.ring is ring
        for statement in use.block
        if not isinstance(statement, (Mma, Load, Allocation))
    ) or any(
        statement.metadata is not None and statement.metadata.source in ring.tiles
        for use in plan.uses if use.ring is ring
        for statement in walk(use.block)
        if isinstance(statement, Mma)
    )


def wanted_consumers(hints: Hints) -> int | None:
    """Warpgroups that share the rows of tiles as hints want it; None where they say nothing."""
    alone = 1 if hints.slice_k or hints.ping_pong else None  # each has all rows
    return hints.consumers or alone


def computing_warpgroups(program: TileProgram) -> int:
    """Warpgroups that will share the rows of a program's tiles on sm_90a.

    Raises
    ------
    Decline
        If they cannot be shared.
    """
    tiles = (tile for tile in allocations(program.body) if not is_single(tile))
    registers = [tile for tile in tiles if tile.scope() in TILE_SCOPES]
    turned = transposed_tiles(program.block)
    rows = {tile: int(tile.shape[tile in turned]) for tile in registers if len(tile.shape) == 2}
    return warpgroups_for(rows, wanted_consumers(program.hints))


def warpgroups_for(shared_out: dict[Buffer, int], wanted: int | None) -> int:
    """Warpgroups that share tiles by rows, of which each has so many."""
    rows = set(shared_out.values())
    if not rows:
        return wanted or 1
    counts = range(1, MOST_WARPGROUPS + 1)
    allowed = [count for count in counts if all(r % (WGMMA_M * count) == 0 for r in rows)]
    if not allowed:
        tile = next(t for t, count in shared_out.items() if count % WGMMA_M)
        raise Decline(
            f"The tile {tile.name} has {shared_out[tile]} rows; a warpgroup holds multiples of "
            f"{WGMMA_M} rows in its registers, so give it such a number. Accumulators of "
            f"fewer need a multiple of {WGMMA_M} columns, operands in shared memory, and no "
            "reduction of rows."
        )
    if wanted is not None:
        if wanted not in allowed:
            raise Decline(
                f"{wanted} consumer warpgroups cannot share tiles of {sorted(rows)} rows, each "
                f"needs multiples of {WGMMA_M}; allowed are {allowed}."
            )
        return int(wanted)
    return allowed[-1]
