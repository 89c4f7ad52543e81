"""Splits a program into roles: one thread loads ahead, warpgroups compute.

The producer executes the program with only its loads left; consumers execute it with everything
else. They meet at the rings of the plan: the producer waits until a stage is free and announces
its bytes, consumers wait until it is full and give it back. Control flow and scalars are common to
both. Where CTAs of a cluster load the same tile, each loads a part of it for all.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var

from warploom.lower.analysis.budget import (
    describe,
    launch_bounds,
    launch_registers,
    producer_registers,
    register_split,
    require_accumulators,
    require_mmas,
)
from warploom.lower.analysis.consumers import consumer_tiles, consumers, read_by_threads
from warploom.lower.analysis.own_barriers import initialisations
from warploom.lower.analysis.plan_pipeline import plan_pipeline
from warploom.lower.analysis.rings import PipelinePlan, Ring
from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import positions
from warploom.lower.emit.copy_by_threads import arrivals as arrivals_of
from warploom.lower.emit.handed_out import tiles_handed_out
from warploom.lower.emit.named_barriers import one_consumer
from warploom.lower.emit.next_kernel import let_next_start
from warploom.lower.emit.prefetch_l2 import wait_and_prefetch_l2
from warploom.lower.emit.produce import Producer
from warploom.lower.emit.tile_counter import TileCounter
from warploom.lower.hopper.consume import Consumer
from warploom.lower.hopper.slice_k import readers
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.ids import Id
from warploom.tile.program import TileProgram
from warploom.tile.roles import ThreadRole
from warploom.tile.statement import ForLoader, Load, Loop

#: Warps of the loading warpgroup: the one that loads, and the one that draws tiles.
_LOADS, _ASKS = 0, SM90A.warpgroup // SM90A.warp - 1


def specialize_warps(program: TileProgram) -> TileProgram:
    """Plan the rings of a program; carry them out with a producer warp and consumer warpgroups.

    Raises
    ------
    Decline
        If a tile has no place in a ring, or a load depends on a result of consumers.
    """
    plan = plan_pipeline(program, apart=bool(program.hints.split_rings), several=True)
    count = consumers(program)
    role = Var("wg", "int32")
    consumer = role - 1 if count > 1 else tirx.const(0, "int32")
    shared = [tirx.AllocBuffer(buffer) for ring in plan.rings for buffer in ring.tiles.values()] + [
        tirx.AllocBuffer(b) for ring in plan.rings for b in (ring.full, ring.empty)
    ]
    shared += consumer_tiles(program, plan)
    producer = Producer(program, plan, _gathering_warps(program))
    producing = ir.renewed(producer.run())
    one_thread = producer.copiers is None
    consuming = Consumer(program, plan, positions(plan), _FromProducer(program, plan)).run()
    drawn = _tile_counter(program, count, 1 if one_thread else _gathering_warps(program))
    if drawn:
        producing = drawn.follow(producing, "loading", warp=not one_thread)
        consuming = drawn.follow(consuming, "computing", warp=True)
        shared += drawn.allocate()
    loads = ThreadRole("load", one_thread=one_thread)
    computes = ThreadRole("compute", count, one_thread=False)
    elected = _elected(program, _LOADS)
    threads = (count + 1) * SM90A.warpgroup
    at_launch = launch_registers(program, threads)
    moves = program.hints.set_registers is not False
    registers = (at_launch, at_launch)
    if moves:
        registers = register_split(program, count, producer_registers(program, count))
    require_accumulators(program, registers[1])
    require_mmas(program, at_launch)
    cluster = program.id("cta_in_cluster") is not None
    inits = [
        barriers.initialise(barrier, arrivals)
        for ring, users in {
            use.ring.name: (use.ring, readers(use, program)) for use in plan.uses
        }.values()
        for barrier, arrivals in (
            (ring.full, arrivals_of(ring, _gathering_warps(program) * SM90A.warp)),
            (ring.empty, users * ring.shared_by),
        )
    ] + initialisations(program)
    loading = loads.mark(producing)
    gathering = program.var("warp_in_warpgroup") < _gathering_warps(program)
    first = ir.when(elected if one_thread else gathering, loading)
    roles: tuple[ThreadRole, ...] = (loads, computes)
    if drawn:
        inits += drawn.initialise()
        asks = ThreadRole("schedule")
        asking = ir.when(_elected(program, _ASKS), asks.mark(drawn.ask()))
        first, roles = ir.seq([first, asking]), (loads, asks, computes)
        program = program.replace(host=(*program.host, *drawn.workspace))
    waiting, program = wait_and_prefetch_l2(program, plan, T.And(role == 0, elected))
    body = [
        *shared,
        let_next_start(),
        ir.when(T.cuda.thread_rank() == 0, inits),
        *barriers.publish(),
        *barriers.meet(cluster),
        *waiting,
        ir.when(
            role == 0,
            [*_set_registers("dec", registers[0], moves), first],
            [*_set_registers("inc", registers[1], moves), *computes.mark(consuming, consumer)],
        ),
    ]
    if cluster:
        # No CTA leaves while another may still write to its memory or its barriers.
        body += barriers.meet(cluster)
    body = [ir.substitute(statement, {program.var("warpgroup"): consumer}) for statement in body]
    ids = tuple(
        Id("warpgroup", (role,), (count + 1,)) if scope_id.kind == "warpgroup" else scope_id
        for scope_id in program.ids
    )
    attrs = (*program.attrs, launch_bounds(program))
    return program.replace(ids=ids, body=tuple(body), attrs=attrs, roles=roles).decided(
        f"roles: one loading {'warp' if one_thread else 'warpgroup'} with {registers[0]} "
        f"registers a thread, {count} computing warpgroups with {registers[1]}",
        *describe(program, threads),
        *plan.describe(),
        *([drawn.describe()] if drawn else []),
    )


def _elected(program: TileProgram, warp: int) -> Any:
    """The condition for one thread of a warp of the loading warpgroup."""
    return T.And(program.var("warp_in_warpgroup") == warp, T.cuda.elect_sync() != T.uint32(0))


def _gathering_warps(program: TileProgram) -> int:
    """Warps that gather rows; where tiles are drawn, the last of the warpgroup draws them."""
    return SM90A.warpgroup // SM90A.warp - (tiles_handed_out(program) is not None)


def _tile_counter(program: TileProgram, count: int, loading: int) -> TileCounter | None:
    """The tiles that are drawn from a counter; None where every CTA knows its tiles.

    The thread that draws, ``loading`` threads or warps, and the warps of ``count`` warpgroups read
    which is next.
    """
    tiles = tiles_handed_out(program)
    if tiles is None:
        return None
    return TileCounter(program, tiles, 1 + loading + count * SM90A.warpgroup // SM90A.warp)


def _set_registers(direction: str, registers: int, moves: bool) -> list[Stmt]:
    if not moves:
        return []
    return [ir.evaluate(T.ptx[f"setmaxnreg.{direction}.sync.aligned.u32"](registers))]


class _FromProducer:
    """Consumers leave loads to the producer, and tell it which stages are free."""

    refills_after_loops = True

    def __init__(self, program: TileProgram, plan: PipelinePlan) -> None:
        self.program, self.plan = program, plan
        self.peers: dict[str, barriers.Remote] = {}

    def start(self) -> list[Stmt]:
        """Find the barriers of the other CTAs that fill stages of this one."""
        self.peers, statements = barriers.find_peers(self.plan.rings, self.program)
        return statements

    def loads_in_place(self, load: Load) -> bool:
        """No load: the producer does it."""
        return False

    def load(self, load: Load) -> list[Stmt]:
        """Nothing."""
        return []

    def by_hand(self, statement: ForLoader) -> list[Stmt]:
        """Nothing: the producer does that too."""
        return []

    def before_loop(self, loop: Loop) -> list[Stmt]:
        """Nothing: the producer runs ahead by itself."""
        return []

    def release(self, ring: Ring, stage: Any) -> list[Stmt]:
        """Release a stage: arrive once at the ``empty`` barrier of each CTA that writes to it."""
        warp, lane = self.program.var("warp_in_warpgroup"), self.program.var("lane")
        sync = [one_consumer(self.program)] if read_by_threads(ring, self.plan) else []
        if ring.shared_by > 1:
            peers = self.peers[ring.name]
            chosen = T.And(warp == 0, peers.chosen)
            return [*sync, ir.when(chosen, [barriers.arrive_remote(peers.view, stage)])]
        chosen = T.And(warp == 0, lane == 0)
        return [*sync, ir.when(chosen, [barriers.arrive(ring.empty, stage)])]
