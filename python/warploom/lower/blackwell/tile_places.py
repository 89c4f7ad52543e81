"""The programs of both roles on Blackwell, with one or two places for each tile that they share.

Two places cost memory: a tile has two where its contents may move and where they fit.
"""

from __future__ import annotations

from tvm import tirx
from tvm.tirx import Buffer

from warploom.errors import Decline
from warploom.lower.analysis.budget import ctas_per_sm, shared_bytes
from warploom.lower.analysis.clusters import pairs_of
from warploom.lower.analysis.consumers import consumer_tiles
from warploom.lower.analysis.own_barriers import own_tiles
from warploom.lower.analysis.own_pool import own_pool
from warploom.lower.analysis.rings import PipelinePlan, is_consumer_tile
from warploom.lower.analysis.shared_tiles import tile_bytes
from warploom.lower.blackwell.double_buffer import is_rewritten, starts_afresh
from warploom.lower.blackwell.emit_mmas import copied_columns
from warploom.lower.blackwell.plan_tensor_memory import COPIES, SETS, plan_tensor_memory
from warploom.lower.blackwell.role_order import leaves, roles_of
from warploom.lower.blackwell.role_threads import WARPS
from warploom.lower.blackwell.split_roles import RoleSplitter
from warploom.lower.blackwell.tensor_memory_chunks import is_accumulator
from warploom.lower.blackwell.tile_barriers import Role, TileBarriers
from warploom.lower.blackwell.tile_states import Streams
from warploom.target import Swizzle
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Mma, walk

#: Shared memory for barriers, addresses and answers, with some to spare.
_BARRIER_BYTES = 2048


def split_program(program: TileProgram, plan: PipelinePlan) -> tuple[RoleSplitter, Streams]:
    """The programs of the tensor core's thread and of the consumers."""
    moves = _may_move(program, plan)
    splitter, streams = _split(program, plan, moves)
    # A tile that returns untouched from the other role must still be where it was.
    stay = {tile for tile in splitter.tile_states.passed_on if moves.get(tile)}
    if _shared_bytes(program, plan, splitter) > shared_bytes(program):
        stay |= {
            tile for tile, pair in splitter.tile_barriers.items() if pair.stack is not None
        }
    if not stay:
        return splitter, streams
    return _split(program, plan, moves | dict.fromkeys(stay, False))


def _may_move(program: TileProgram, plan: PipelinePlan) -> dict[Buffer, bool]:
    """The tiles that both roles may touch, and whether each may have two places."""
    block, index = program.block, program.var("warpgroup")
    consumers = int(program.id("warpgroup").extents[0])
    allocated = list(allocations(program.body))
    tiles = [tile for tile in allocated if is_accumulator(tile)]
    own = own_tiles(program)
    tiles += [tile for tile in allocated if is_consumer_tile(tile, plan) and tile not in own]
    return {
        tile: starts_afresh(block, tile) or is_rewritten(block, tile, index, consumers)
        for tile in tiles
    }


def _require_untouched(program: TileProgram, plan: PipelinePlan) -> None:
    """Rings pass stages from the loading engine to the readers, not from reader to reader."""
    for role, statement in leaves(program.block):
        changed = statement.effects.writes & set(plan.tiles()) if role is Role.THREADS else set()
        if changed:
            name = next(iter(changed)).name
            raise Decline(
                f"Threads change the tile {name}, which is loaded; on Blackwell the tensor core "
                "does not wait for that, so store the result to another tile."
            )


def _split(
    program: TileProgram, plan: PipelinePlan, moves: dict[Buffer, bool]
) -> tuple[RoleSplitter, Streams]:
    """The program of each role; ``moves`` has all tiles, and whether they may have two places."""
    consumers = int(program.id("warpgroup").extents[0])
    _require_untouched(program, plan)
    mmas = [mma for mma in walk(program.block) if isinstance(mma, Mma)]
    ctas = max((mma.ctas for mma in mmas), default=1)
    accumulators = {tile: twice for tile, twice in moves.items() if is_accumulator(tile)}
    copies = max(map(copied_columns, mmas), key=lambda one: one[1], default=(COPIES[0], 0))
    memory = plan_tensor_memory(accumulators, consumers, ctas, ctas_per_sm(program), copies)
    pairs = pairs_of(program) if ctas > 1 else None
    tile_barriers: dict[Buffer, TileBarriers] = {}
    for tile, twice in moves.items():
        roles = roles_of(program.block, tile)
        if len(set(roles)) < 2:
            continue
        sets = memory.tiles[tile].sets if tile in memory.tiles else SETS if twice else 1
        taken = {pair.name for pair in tile_barriers.values()}
        name = f"{tile.name}_{len(tile_barriers)}" if tile.name in taken else tile.name
        tile_barriers[tile] = TileBarriers(tile, name, roles[0], sets, consumers * WARPS, pairs)
    splitter = RoleSplitter(program, plan, tile_barriers, memory)
    return splitter, splitter.run()


def shared_tiles(
    program: TileProgram, plan: PipelinePlan, splitter: RoleSplitter
) -> list[tirx.AllocBuffer]:
    """Allocations of the tiles in shared memory."""
    stacks = {
        tile: pair.stack
        for tile, pair in splitter.tile_barriers.items()
        if pair.stack is not None
    }
    rings = [tirx.AllocBuffer(b) for ring in plan.rings for b in ring.tiles.values()]
    tiles = [
        tirx.AllocBuffer(stacks[allocation.buffer]) if allocation.buffer in stacks else allocation
        for allocation in consumer_tiles(program, plan)
    ]
    return [*rings, *tiles]


def _shared_bytes(program: TileProgram, plan: PipelinePlan, splitter: RoleSplitter) -> int:
    """Bytes of shared memory that the tiles take, each aligned, and all else at most."""
    align = Swizzle.B128.atom_bytes
    buffers = [allocation.buffer for allocation in shared_tiles(program, plan, splitter)]
    buffers = [buffer for buffer in buffers if is_shared(buffer)]
    pool = own_pool(program)
    other_bytes = _BARRIER_BYTES + (0 if pool is None else pool.size)
    return sum(-(-tile_bytes(buffer) // align) * align for buffer in buffers) + other_bytes
