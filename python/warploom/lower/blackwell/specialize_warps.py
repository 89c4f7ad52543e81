"""Carries out a plan on Blackwell: a warp loads, a thread multiplies, warpgroups do the rest.

The first warpgroup has the single-threaded roles: its warp 0 loads by TMA, warp 1 multiplies into
tensor memory, warp 2 allocates that memory, warp 3 asks for tiles where they are handed out as the
kernel runs. Four kinds of mbarriers connect the roles: ``full`` and ``empty`` of the rings of
loads, and the barriers of tiles that pass between threads and the tensor core. Where an accumulator
has two sets of columns, threads read one set while the other is filled. Of a pair of CTAs, warp 1
of the first multiplies for both.
"""

from __future__ import annotations

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var

from warploom.lower.analysis.budget import (
    describe,
    launch_bounds,
)
from warploom.lower.analysis.clusters import pairs_of
from warploom.lower.analysis.own_barriers import initialisations
from warploom.lower.analysis.plan_pipeline import plan_pipeline
from warploom.lower.analysis.rings import PipelinePlan
from warploom.lower.blackwell.launch_control import LaunchControl
from warploom.lower.blackwell.role_threads import WARPS, RoleStreams, RoleThreads, choose_role
from warploom.lower.blackwell.split_roles import RoleSplitter
from warploom.lower.blackwell.tile_barriers import Role
from warploom.lower.blackwell.tile_places import shared_tiles, split_program
from warploom.lower.blackwell.tile_states import Streams
from warploom.lower.emit import barriers
from warploom.lower.emit.handed_out import HandedOut, tiles_handed_out
from warploom.lower.emit.next_kernel import let_next_start
from warploom.lower.emit.prefetch_l2 import wait_and_prefetch_l2
from warploom.lower.emit.produce import Producer
from warploom.lower.emit.tile_counter import TileCounter
from warploom.target import SM100A
from warploom.tile import ir
from warploom.tile.ids import Id
from warploom.tile.program import TileProgram
from warploom.tile.roles import ThreadRole


def specialize_warps_sm100(program: TileProgram) -> TileProgram:
    """Plan the rings of a program; carry them out with warps that load and multiply, and consumers.

    Raises
    ------
    Decline
        If a tile has no place in a ring, a load depends on a result of consumers, or accumulators
        do not fit.
    """
    plan = plan_pipeline(program)
    splitter, streams = split_program(program, plan)
    memory, consumers = splitter.memory, splitter.warpgroups
    control = _handed_out(program, consumers, memory.ctas)
    if control:
        program = program.replace(host=(*program.host, *control.workspace))
    starts = _streams(program, plan, streams, control)
    leads = pairs_of(program).leads if memory.ctas > 1 else tirx.const(True, "bool")
    threads = RoleThreads(Var("wg", "int32"), program.var("warp_in_warpgroup"), leads)
    allocated = _allocations(program, plan, splitter, control)
    inits = _initialisations(program, plan, splitter, control)
    count = (consumers + 1) * SM100A.warpgroup
    chosen, roles = choose_role(program, threads, starts, consumers, count)
    waiting, program = wait_and_prefetch_l2(program, plan, threads.loading)
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
        *(pair.describe() for pair in splitter.tile_barriers.values()),
        *plan.describe(),
        *([control.describe()] if control else []),
    )


def _streams(
    program: TileProgram, plan: PipelinePlan, streams: Streams, control: HandedOut | None
) -> RoleStreams:
    """The statements of all roles, which follow the tiles that are handed out, if they are."""
    producer = Producer(program, plan)
    loading = ir.renewed([*producer.run(), *producer.drain()])
    multiplying, computing = ir.renewed(streams[0]), streams[1]
    if control is None:
        return RoleStreams(loading, multiplying, [], computing)
    loading = control.follow(loading, "loading")
    multiplying = control.follow(multiplying, "multiplying")
    computing = control.follow(computing, "computing", warp=True)
    return RoleStreams(loading, multiplying, control.ask(), computing)


def _allocations(
    program: TileProgram, plan: PipelinePlan, splitter: RoleSplitter, control: HandedOut | None
) -> list[Stmt]:
    """Shared memory: tiles, barriers, the address of tensor memory, answers of the scheduler."""
    buffers = [barrier for ring in plan.rings for barrier in (ring.full, ring.empty)]
    for pair in splitter.tile_barriers.values():
        buffers += [pair.to_threads, pair.to_tensor_core]
    return [
        *shared_tiles(program, plan, splitter),
        *map(tirx.AllocBuffer, [*buffers, splitter.memory.address]),
        *(control.allocate() if control else []),
    ]


def _initialisations(
    program: TileProgram, plan: PipelinePlan, splitter: RoleSplitter, control: HandedOut | None
) -> list[Stmt]:
    """Return the initialisation of all mbarriers, which one thread executes."""
    inits: list[Stmt] = control.initialise() if control else []
    arrivals = {Role.TENSOR_CORE: 1, Role.THREADS: splitter.warpgroups * WARPS}
    for ring in plan.rings:
        inits.append(barriers.initialise(ring.full, 1))
        count = sum(arrivals[user] for user in splitter.users(ring))
        inits.append(barriers.initialise(ring.empty, count * ring.shared_by))
    for pair in splitter.tile_barriers.values():
        inits += pair.initialise()
    return inits + initialisations(program)


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


def _handed_out(program: TileProgram, consumers: int, ctas: int) -> HandedOut | None:
    """Return who hands out the tiles; None where every CTA knows its tiles.

    The threads that ask, load and multiply, and the warps of the consumers, read which is next.
    """
    tiles = tiles_handed_out(program)
    if tiles is None:
        return None
    readers = 2 + consumers * WARPS
    if program.hints.scheduler == "counter":
        return TileCounter(program, tiles, readers + 1)
    return LaunchControl(program, tiles, readers, ctas)
