"""Multistage pipeline with a single role: the computing warpgroups also load ahead.

One elected thread issues the TMA copies. Before a pipelined loop it fills all stages of the loop's
ring. In the loop, when all warpgroups have read a stage for the last time, a barrier among them
takes the place of the ``empty`` mbarriers, and the thread fills the stage again: for the iteration
that is ``stages`` later, or ``stages - 1`` after the MMA is known to be complete. Loads
elsewhere, and loads whose place an iteration learns from the one before, are issued where the
program has them.

No warp is set aside, so tiles may tell where to load. CTAs of a cluster load each for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import ForKind, Stmt, Var

from warploom.errors import Decline
from warploom.lower.analysis.budget import (
    describe,
    launch_bounds,
    launch_registers,
    require_accumulators,
    require_mmas,
)
from warploom.lower.analysis.consumers import consumer_tiles, consumers
from warploom.lower.analysis.own_barriers import initialisations
from warploom.lower.analysis.plan_pipeline import plan_pipeline
from warploom.lower.analysis.rings import (
    PipelinePlan,
    Ring,
    RingUse,
    in_same_memory,
    with_stages,
)
from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import Position, positions
from warploom.lower.emit.copy_by_threads import (
    arrivals,
    arrive_copied,
    copies_by_threads,
    is_by_threads,
)
from warploom.lower.emit.fill_stages import announce, copies
from warploom.lower.emit.named_barriers import all_consumers
from warploom.lower.emit.next_kernel import let_next_start
from warploom.lower.emit.own_barriers import for_loading_thread
from warploom.lower.emit.prefetch_l2 import wait_and_prefetch_l2
from warploom.lower.hopper.consume import Consumer
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.roles import ThreadRole
from warploom.tile.scalar import ThreadScalar
from warploom.tile.scopes import is_tile
from warploom.tile.statement import Block, ForLoader, Load, Loop, Scalar, Statement


def multistage(program: TileProgram) -> TileProgram:
    """Plan the rings of a program; carry them out with computing warpgroups alone.

    Raises
    ------
    Decline
        If a tile has no place in a ring, loads do not fill one, or CTAs of a cluster reduce
        sums.
    """
    if program.hints.reduce_through == "cluster":
        raise Decline(
            "reduce_through='cluster': without a warp that loads, CTAs of a cluster begin and end "
            "each for itself; leave out the hint, or specialise=False."
        )
    if program.hints.registers is not None:
        program = program.not_followed(
            "registers", "no warps set aside to load could give some away; leave it out"
        )
    apart = bool(program.hints.split_rings)
    plan = plan_pipeline(program, multicast=False, apart=apart)
    ahead = _loaded_ahead(plan)
    if any(_read_between(use) for use in plan.uses if use.ring.name not in ahead):
        plan = plan_pipeline(program, multicast=False, apart=apart, by_reads=True)
        ahead = _loaded_ahead(plan)
    plan = in_same_memory(
        [use if use.ring.name in ahead else with_stages(use, 1) for use in plan.uses]
    )
    for use in plan.uses:
        if use.ring.name not in ahead:
            _require_after_loads(use)
        pipelined = use.loop is not None and use.loop.pipelined
        if pipelined and use.ring.name not in ahead:
            program = program.not_followed(
                f"wl.pipelined of the loop over {use.loop.var.name}",
                f"{', '.join(tile.name for tile in use.ring.tiles)} cannot be loaded ahead, as "
                "what is loaded depends on what the loop changes or on a tile; compute the place "
                "of loads from the loop variable, or write T.serial",
                use.loop.raw.span,
            )
    at = positions(plan)
    supply = _ByOneself(program, plan, at, ahead)
    computing = Consumer(program, plan, at, supply).run()
    waiting, program = wait_and_prefetch_l2(program, plan, _is_loading(program))
    role = ThreadRole("compute", consumers(program), one_thread=False)
    threads = consumers(program) * SM90A.warpgroup
    inits = [barriers.initialise(ring.full, arrivals(ring, threads)) for ring in plan.rings]
    inits += initialisations(program)
    body = [
        *map(tirx.AllocBuffer, plan.buffers()),
        *(tirx.AllocBuffer(ring.full) for ring in plan.rings),
        *consumer_tiles(program, plan),
        let_next_start(),
        ir.when(T.cuda.thread_rank() == 0, inits),
        *barriers.publish(),
        ir.evaluate(T.cuda.cta_sync()),
        *waiting,
        *role.mark(computing, program.var("warpgroup")),
    ]
    if consumers(program) == 1:
        body = [
            ir.substitute(statement, {program.var("warpgroup"): tirx.const(0)})
            for statement in body
        ]
    attrs = (*program.attrs, launch_bounds(program))
    at_launch = launch_registers(program, threads)
    require_accumulators(program, at_launch)
    require_mmas(program, at_launch)
    in_place = [ring.name for ring in plan.rings if ring.name not in ahead]
    return program.replace(body=tuple(body), attrs=attrs, roles=(role,)).decided(
        f"roles: {consumers(program)} computing warpgroups, a thread of which loads",
        *describe(program, threads),
        *plan.describe(),
        *(f"ring of {name}: loaded where it is used" for name in in_place),
    )


@dataclass(frozen=True)
class _Ahead:
    """The loads that an iteration issues for a later iteration.

    Attributes
    ----------
    loop : Loop
        The loop.
    slice : tuple of Statement
        The loads, and before each the scalars that it depends on.
    next : Scalar
        How many iterations have been loaded for.
    """

    loop: Loop
    slice: Block
    next: ThreadScalar


def _loaded_ahead(plan: PipelinePlan) -> dict[str, _Ahead]:
    """The rings whose loads can run ahead, and how."""
    return {use.ring.name: prefetch for use in plan.uses if (prefetch := _ahead(use)) is not None}


def _ahead(use: RingUse) -> _Ahead | None:
    """How the loads of a ring can run ahead, or None if their place is known too late."""
    loop = use.loop
    if loop is None or not loop.pipelined:
        return None
    # From the last load back: the values that it needs, and their definitions.
    kept: list[Statement] = []
    needed: set[Var] = set()
    for statement in reversed(use.block):
        match statement:
            case Load(place=place) if use.has(statement):
                kept.append(statement)
                needed |= place
            case Scalar(variable=variable) if variable in needed:
                kept.append(statement)
                needed |= ir.uses(statement.raw)
    own = {scalar.variable for scalar in kept if isinstance(scalar, Scalar) and scalar.defines}
    changed = loop.effects.writes
    late = any(ir.is_buffer(v) and v in changed and v not in own for v in needed)
    nested = any(
        not isinstance(part, (Scalar, Load)) and part.effects.writes & own for part in use.block
    )
    tiles = any(ir.is_buffer(v) and is_tile(v) for v in needed)
    if late or nested or tiles:
        return None
    name = f"{use.ring.name}_next"
    return _Ahead(loop, tuple(reversed(kept)), ThreadScalar(name))


def _read_between(use: RingUse) -> bool:
    """Whether a statement between the loads of a ring uses a tile of it."""
    loads = (i for i, one in enumerate(use.block) if isinstance(one, Load) and use.has(one))
    return use.first < max(loads)


def _require_after_loads(use: RingUse) -> None:
    """Threads that load a stage where it is used wait for all of it at once."""
    touched = use.block[use.first].effects.touched & set(use.ring.tiles)
    if _read_between(use):
        raise Decline(
            f"{min(tile.name for tile in touched)} is read between the loads of "
            f"{', '.join(tile.name for tile in use.ring.tiles)}, for which the threads that load "
            "them wait together; move the statement behind the last of them."
        )


class _ByOneself:
    """Computing warpgroups fill stages themselves."""

    refills_after_loops = False

    def __init__(
        self, program: TileProgram, plan: PipelinePlan, at: dict[str, Position],
        ahead: dict[str, _Ahead],
    ) -> None:  # fmt: skip
        self.program, self.plan, self.at, self.ahead = program, plan, at, ahead

    def start(self) -> list[Stmt]:
        """Counters of the iterations that have been loaded for."""
        return [s for prefetch in self.ahead.values() for s in prefetch.next.define(0)]

    def loads_in_place(self, load: Load) -> bool:
        """The loads that do not run ahead."""
        return self.plan.ring_of(load).name not in self.ahead

    def load(self, load: Load) -> list[Stmt]:
        """A copy into the stage that all warpgroups have read."""
        ring = self.plan.ring_of(load)
        stage = self.at[ring.name].index
        statements: list[Stmt] = []
        if load.raw.same_as(ring.loads[0]):
            statements = [all_consumers(self.program), *self._announce(ring, stage)]
        statements += self._copy(load, ring, stage)
        if load.raw.same_as(ring.loads[-1]):
            statements += self._copied(ring, stage)
        return statements

    def by_hand(self, statement: ForLoader) -> list[Stmt]:
        """The elected thread does it."""
        return [self._one_thread(for_loading_thread(statement))]

    def before_loop(self, loop: Loop) -> list[Stmt]:
        """Fill the stages of the loop's rings."""
        rings = [
            ring for ring in self.plan.rings
            if ring.name in self.ahead and self.ahead[ring.name].loop.raw.same_as(loop.raw)
        ]  # fmt: skip
        if not rings:
            return []
        fills, counts = [], []
        for ring in rings:
            number, at = Var("ahead", "int32"), self.at[ring.name]
            stage = 0 if ring.stages == 1 else T.truncmod(at.index + number, ring.stages)
            fill = ir.when(number < loop.extent, self._fill(ring, stage, number))
            fills.append(ir.loop(number, ring.stages, [fill], kind=ForKind.SERIAL))
            counts.append(self.ahead[ring.name].next.set(ring.stages))
        return [all_consumers(self.program), *fills, *counts]

    def release(self, ring: Ring, stage: Any) -> list[Stmt]:
        """When all warpgroups have read a stage, fill it for a later iteration."""
        if ring.name not in self.ahead:
            return []
        ahead = self.ahead[ring.name]
        number = ahead.next.value
        fill = self._fill(ring, stage, number)
        more = ir.when(number < ahead.loop.extent, [all_consumers(self.program), *fill])
        return [more, ahead.next.set(number + 1)]

    def _fill(self, ring: Ring, stage: Any, number: Any) -> list[Stmt]:
        """Announce and issue the copies of iteration ``number`` of the loop."""
        ahead = self.ahead[ring.name]
        if any(map(is_by_threads, ring.loads)):
            statements = self._announce(ring, stage)
            for part in ahead.slice:
                is_load = isinstance(part, Load)
                statements += self._copy(part, ring, stage) if is_load else [part.raw]
            statements += self._copied(ring, stage)
        else:
            one = [announce(ring, stage)]
            for part in ahead.slice:
                is_load = isinstance(part, Load)
                one += copies(part.raw, ring, stage, self.program) if is_load else [part.raw]
            statements = [self._one_thread(one)]
        table = {ahead.loop.var: ahead.loop.start + number}
        return ir.renewed([ir.substitute(statement, table) for statement in statements])

    def _announce(self, ring: Ring, stage: Any) -> list[Stmt]:
        """One thread tells what TMA will bring, if it brings something."""
        if all(map(is_by_threads, ring.loads)):
            return []
        return [self._one_thread([announce(ring, stage)])]

    def _copy(self, load: Load, ring: Ring, stage: Any) -> list[Stmt]:
        """A copy by all threads, or by TMA for one of them."""
        if is_by_threads(load.raw):
            return copies_by_threads(load.raw, ring, stage, self.program)
        return [self._one_thread(copies(load.raw, ring, stage, self.program))]

    def _copied(self, ring: Ring, stage: Any) -> list[Stmt]:
        """All threads tell that they have copied, if they have."""
        return arrive_copied(ring, stage) if any(map(is_by_threads, ring.loads)) else []

    def _one_thread(self, statements: list[Stmt]) -> Stmt:
        return ir.when(_is_loading(self.program), statements)


def _is_loading(program: TileProgram) -> Any:
    """Whether a thread is the one that loads."""
    first = T.And(program.var("warpgroup") == 0, program.var("warp_in_warpgroup") == 0)
    return T.And(first, T.cuda.elect_sync() != T.uint32(0))
