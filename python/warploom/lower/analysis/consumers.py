"""The warpgroups that compute: how many there are, and which shared tiles are theirs alone."""

from __future__ import annotations

from tvm.tirx import Stmt

from warploom.lower.analysis.rings import PipelinePlan, Ring, is_consumer_tile
from warploom.tile.mbarriers import SCOPE as MBARRIER
from warploom.tile.program import TileProgram
from warploom.tile.statement import Allocation, Load, Mma, walk


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
    """Whether threads read a tile of a ring themselves, beside the tensor core."""
    use = next(use for use in plan.uses if use.ring is ring)
    return any(
        statement.effects.reads & set(ring.tiles)
        for statement in use.block
        if not isinstance(statement, (Mma, Load, Allocation))
    )
