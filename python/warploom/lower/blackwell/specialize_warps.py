"""Carries out a plan on Blackwell: a warp loads, a thread multiplies, warpgroups do the rest.

The first warpgroup has the single-threaded roles: its warp 0 loads by TMA, warp 1 multiplies into
tensor memory, warp 2 allocates that memory, warp 3 asks for tiles where they are handed out as the
kernel runs. Four kinds of mbarriers connect the roles: ``full`` and ``empty`` of the rings of
loads, and those of the tiles that threads and the tensor core hand over. Where an accumulator has
two sets of columns, threads read one while the other is filled. Of a pair of CTAs, warp 1 of the
first multiplies for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.lower.analysis.budget import (
    ctas_per_sm,
    describe,
    launch_bounds,
    launch_registers,
    register_split,
    shared_bytes,
)
from warploom.lower.analysis.clusters import pairs_of
from warploom.lower.analysis.consumers import consumer_tiles
from warploom.lower.analysis.own_barriers import initialisations, own_tiles
from warploom.lower.analysis.own_pool import own_pool
from warploom.lower.analysis.plan_pipeline import plan_pipeline
from warploom.lower.analysis.rings import PipelinePlan, is_consumer_tile
from warploom.lower.analysis.shared_tiles import tile_bytes
from warploom.lower.blackwell.change_places import is_rewritten, starts_afresh
from warploom.lower.blackwell.handovers import Handover, Role
from warploom.lower.blackwell.launch_control import LaunchControl, is_dynamic
from warploom.lower.blackwell.plan_tensor_memory import SETS, plan_tensor_memory
from warploom.lower.blackwell.resolve_tensor_memory import is_accumulator
from warploom.lower.blackwell.role_order import leaves, roles_of
from warploom.lower.blackwell.split_roles import RoleSplitter, Streams
from warploom.lower.emit import barriers
from warploom.lower.emit.next_kernel import let_next_start
from warploom.lower.emit.produce import Producer
from warploom.lower.emit.warm_l2 import wait_and_warm_l2
from warploom.target import SM100A, Swizzle
from warploom.tile import ir
from warploom.tile.program import Id, TileProgram, allocations
from warploom.tile.roles import ThreadRole
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Mma, walk

#: Warps of a warpgroup.
_WARPS = 4
#: Registers of a thread of the first warpgroup, where consumers take the others.
_FIRST_REGISTERS = 96
#: Shared memory for barriers, addresses and answers, with some to spare.
_BARRIER_BYTES = 2048
#: Warps of the first warpgroup and what they do.
_LOADS, _MULTIPLIES, _ALLOCATES, _ASKS = range(4)


@dataclass(frozen=True)
class _Streams:
    """The statements of each role."""

    loading: list[Stmt]
    multiplying: list[Stmt]
    asking: list[Stmt]
    computing: list[Stmt]


@dataclass(frozen=True)
class _Threads:
    """Which threads have which role.

    Attributes
    ----------
    role : Var
        The number of a thread's warpgroup among all, those of the consumers from 1 on.
    warp : Expr
        The number of its warp in that.
    leads : Expr
        Whether its CTA multiplies: the first of a pair does for both.
    """

    role: Var
    warp: Any
    leads: Any

    def one_of(self, warp: int) -> Any:
        """One thread of a warp, for threads of the first warpgroup."""
        is_warp = self.warp == warp
        if warp == _MULTIPLIES:
            is_warp = T.And(self.leads, is_warp)
        return T.And(is_warp, T.cuda.elect_sync() != T.uint32(0))

    @property
    def loading(self) -> Any:
        """The thread that loads."""
        first = T.And(self.role == 0, self.warp == _LOADS)
        return T.And(first, T.cuda.elect_sync() != T.uint32(0))

    @property
    def allocating(self) -> Any:
        """The warp that allocates tensor memory, and frees it."""
        return T.And(self.role == 0, self.warp == _ALLOCATES)


def specialize_warps_sm100(program: TileProgram) -> TileProgram:
    """Plan the rings of a program; carry them out with warps that load and multiply, and consumers.

    Raises
    ------
    Decline
        If a tile has no place in a ring, a load depends on what consumers compute, or accumulators
        do not fit.
    """
    plan = plan_pipeline(program)
    splitter, streams = _part(program, plan)
    memory, consumers = splitter.memory, splitter.warpgroups
    control = _launch_control(program, consumers, memory.ctas)
    starts = _streams(program, plan, streams, control)
    leads = pairs_of(program).leads if memory.ctas > 1 else tirx.const(True, "bool")
    threads = _Threads(Var("wg", "int32"), program.var("warp_in_warpgroup"), leads)
    allocated = _allocations(program, plan, splitter, control)
    inits = _initialisations(program, plan, splitter, control)
    count = (consumers + 1) * SM100A.warpgroup
    chosen, roles = _choose_role(program, threads, starts, consumers, count)
    waiting, program = wait_and_warm_l2(program, plan, threads.loading)
    # No CTA starts before the barriers of the others are there, or leaves while one may use its.
    cluster = program.id("cta_in_cluster") is not None
    sync = ir.evaluate(T.cuda.cluster_sync() if cluster else T.cuda.cta_sync())
    body = [
        *allocated,
        let_next_start(),
        ir.when(T.cuda.thread_rank() == 0, inits),
        *barriers.publish(),
        ir.when(threads.allocating, memory.allocate()),
        sync,
        *waiting,
        *memory.open(),
        chosen,
        sync,
        ir.when(threads.allocating, memory.free()),
    ]
    if program.hints.specialise is False:
        program = program.not_followed(
            "specialise", "the tensor core needs a thread of its own; leave it out"
        )
    return _with_roles(program, threads.role, body, consumers, roles).decided(
        f"roles: a loading warp, a multiplying warp, {consumers} "
        f"warpgroup{'s' * (consumers > 1)} for the rest",
        *describe(program, count),
        *memory.describe(),
        *(handover.describe() for handover in splitter.handovers.values()),
        *plan.describe(),
        *([control.describe()] if control else []),
    )


def _part(program: TileProgram, plan: PipelinePlan) -> tuple[RoleSplitter, Streams]:
    """The programs of the tensor core's thread and of the consumers."""
    moves = _may_move(program, plan)
    splitter, streams = _split(program, plan, moves)
    # What returns untouched from the other role must still be where it was.
    stay = {tile for tile in splitter.passed_on if moves.get(tile)}
    if _shared_bytes(program, plan, splitter) > shared_bytes(program):
        stay |= {
            tile for tile, handover in splitter.handovers.items() if handover.stack is not None
        }
    if not stay:
        return splitter, streams
    return _split(program, plan, moves | dict.fromkeys(stay, False))


def _may_move(program: TileProgram, plan: PipelinePlan) -> dict[Buffer, bool]:
    """The tiles that both roles may touch, and whether each may have two places, used by turns."""
    block, index = program.block, program.var("warpgroup")
    consumers = int(program.id("warpgroup").extents[0])
    allocated = list(allocations(program.body))
    tiles = [tile for tile in allocated if is_accumulator(tile)]
    if not tiles:
        raise Decline("The program has no product; there is nothing to do for the tensor core.")
    own = own_tiles(program)
    tiles += [tile for tile in allocated if is_consumer_tile(tile, plan) and tile not in own]
    return {
        tile: starts_afresh(block, tile) or is_rewritten(block, tile, index, consumers)
        for tile in tiles
    }


def _streams(
    program: TileProgram, plan: PipelinePlan, streams: Streams, control: LaunchControl | None
) -> _Streams:
    """The statements of all roles, which follow the tiles that are handed out, if they are."""
    producer = Producer(program, plan)
    loading = ir.renewed([*producer.run(), *producer.drain()])
    multiplying, computing = ir.renewed(streams[0]), streams[1]
    if control is None:
        return _Streams(loading, multiplying, [], computing)
    loading = control.follow(loading, "loading")
    multiplying = control.follow(multiplying, "multiplying")
    computing = control.follow(computing, "computing", warp=True)
    return _Streams(loading, multiplying, control.ask(), computing)


def _allocations(
    program: TileProgram, plan: PipelinePlan, splitter: RoleSplitter, control: LaunchControl | None
) -> list[Stmt]:
    """Shared memory: tiles, barriers, the address of tensor memory, answers of the scheduler."""
    buffers = [barrier for ring in plan.rings for barrier in (ring.full, ring.empty)]
    for handover in splitter.handovers.values():
        buffers += [handover.to_threads, handover.to_tensor_core]
    return [
        *_shared_tiles(program, plan, splitter),
        *map(tirx.AllocBuffer, [*buffers, splitter.memory.address]),
        *(control.allocate() if control else []),
    ]


def _initialisations(
    program: TileProgram, plan: PipelinePlan, splitter: RoleSplitter, control: LaunchControl | None
) -> list[Stmt]:
    """What one thread does to all mbarriers before they are used."""
    inits: list[Stmt] = control.initialise() if control else []
    arrivals = {Role.TENSOR_CORE: 1, Role.THREADS: splitter.warpgroups * _WARPS}
    for ring in plan.rings:
        inits.append(barriers.initialise(ring.full, 1))
        count = sum(arrivals[user] for user in splitter.users(ring))
        inits.append(barriers.initialise(ring.empty, count * ring.shared_by))
    for handover in splitter.handovers.values():
        inits += handover.initialise()
    return inits + initialisations(program)


def _choose_role(
    program: TileProgram, threads: _Threads, streams: _Streams, consumers: int, count: int
) -> tuple[Stmt, tuple[ThreadRole, ...]]:
    """What each of ``count`` threads executes, and the roles that there are."""
    loads, multiplies, asks = ThreadRole("load"), ThreadRole("multiply"), ThreadRole("schedule")
    computes = ThreadRole("compute", consumers, one_thread=False)
    lower, raise_ = _registers(program, consumers, launch_registers(program, count))
    first = _choose(
        (threads.one_of(_LOADS), loads.mark(streams.loading)),
        (threads.one_of(_MULTIPLIES), multiplies.mark(streams.multiplying)),
        (threads.one_of(_ASKS), asks.mark(streams.asking)),
    )
    computing = computes.mark(streams.computing, program.var("warpgroup"))
    chosen = ir.when(threads.role == 0, [*lower, *first], [*raise_, *computing, _before_end()])
    return chosen, (loads, multiplies, *([asks] if streams.asking else []), computes)


def _with_roles(
    program: TileProgram, role: Var, body: list[Stmt], consumers: int,
    roles: tuple[ThreadRole, ...],
) -> TileProgram:  # fmt: skip
    """The program with another body and one more warpgroup."""
    consumer = role - 1 if consumers > 1 else tirx.const(0, "int32")
    table = {program.var("warpgroup"): consumer}
    ids = tuple(
        Id("warpgroup", (role,), (consumers + 1,)) if scope_id.kind == "warpgroup" else scope_id
        for scope_id in program.ids
    )
    return program.replace(
        ids=ids,
        body=tuple(ir.substitute(statement, table) for statement in body),
        attrs=(*program.attrs, launch_bounds(program)),
        roles=roles,
    )


def _split(
    program: TileProgram, plan: PipelinePlan, moves: dict[Buffer, bool]
) -> tuple[RoleSplitter, Streams]:
    """The program of each role; ``moves`` has all tiles, and whether they may change places."""
    consumers = int(program.id("warpgroup").extents[0])
    _require_untouched(program, plan)
    products = [mma for mma in walk(program.block) if isinstance(mma, Mma)]
    ctas = max((mma.ctas for mma in products), default=1)
    accumulators = {tile: twice for tile, twice in moves.items() if is_accumulator(tile)}
    memory = plan_tensor_memory(accumulators, consumers, ctas, ctas_per_sm(program))
    pairs = pairs_of(program) if ctas > 1 else None
    handovers: dict[Buffer, Handover] = {}
    for tile, twice in moves.items():
        roles = roles_of(program.block, tile)
        if len(set(roles)) < 2:
            continue
        sets = memory.tiles[tile].sets if tile in memory.tiles else SETS if twice else 1
        taken = {handover.name for handover in handovers.values()}
        name = f"{tile.name}_{len(handovers)}" if tile.name in taken else tile.name
        handovers[tile] = Handover(tile, name, roles[0], sets, consumers * _WARPS, pairs)
    splitter = RoleSplitter(program, plan, handovers, memory)
    return splitter, splitter.run()


def _shared_tiles(
    program: TileProgram, plan: PipelinePlan, splitter: RoleSplitter
) -> list[tirx.AllocBuffer]:
    """Allocations of the tiles in shared memory."""
    stacks = {
        tile: handover.stack
        for tile, handover in splitter.handovers.items()
        if handover.stack is not None
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
    buffers = [allocation.buffer for allocation in _shared_tiles(program, plan, splitter)]
    buffers = [buffer for buffer in buffers if is_shared(buffer)]
    pool = own_pool(program)
    other_bytes = _BARRIER_BYTES + (0 if pool is None else pool.size)
    return sum(-(-tile_bytes(buffer) // align) * align for buffer in buffers) + other_bytes


def _launch_control(program: TileProgram, consumers: int, ctas: int) -> LaunchControl | None:
    """Who hands out tiles as the kernel runs; None where every CTA knows its tiles.

    Its readers are the threads that ask, load and multiply, and the warps of the consumers.
    """
    tiles = next((statement for statement in program.block if is_dynamic(statement)), None)
    if tiles is None:
        return None
    readers = 2 + consumers * _WARPS
    return LaunchControl(program, tiles, readers, ctas)


def _choose(*cases: tuple[Any, list[Stmt]]) -> list[Stmt]:
    """The statements of the first condition that holds; cases without statements do not count."""
    (condition, statements), *others = cases
    rest = _choose(*others) if others else []
    return [ir.when(condition, statements, rest or None)] if statements else rest


def _require_untouched(program: TileProgram, plan: PipelinePlan) -> None:
    """Rings hand stages from the engine that loads to who reads, not from one reader to another."""
    for role, statement in leaves(program.block):
        changed = statement.effects.writes & set(plan.tiles()) if role is Role.THREADS else set()
        if changed:
            name = next(iter(changed)).name
            raise Decline(
                f"Threads change the tile {name}, which is loaded; on Blackwell the tensor core "
                "does not wait for that, so store the result to another tile."
            )


def _before_end() -> Stmt:
    return ir.evaluate(T.ptx.tcgen05.fence__before_thread_sync())


def _registers(
    program: TileProgram, consumers: int, at_launch: int
) -> tuple[list[Stmt], list[Stmt]]:
    """Moves registers to the consumers, where the first warpgroup has some to give away.

    ``at_launch`` is what every thread has before; all that it can use is enough for anyone, unless
    a hint says otherwise.
    """
    hints = program.hints
    enough = not _FIRST_REGISTERS < at_launch < SM100A.registers_per_thread
    if hints.set_registers is False or (enough and hints.registers is None):
        return [], []
    split = register_split(program, consumers, _FIRST_REGISTERS)
    return [_set_registers("dec", split[0])], [_set_registers("inc", split[1])]


def _set_registers(direction: str, count: int) -> Stmt:
    return ir.evaluate(T.ptx[f"setmaxnreg.{direction}.sync.aligned.u32"](count))
