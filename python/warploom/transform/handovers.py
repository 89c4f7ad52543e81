"""Tiles that go to and fro between the tensor core and the threads of Blackwell.

An accumulator goes from the tensor core to the threads, and back for the next product; an operand
that threads compute goes the other way round. Each such tile has two mbarriers, one a direction,
and is in one of four states, which follow each other in a circle:

    on its way to the tensor core -> held by it -> on its way to the threads -> held by them -> ...

Both roles execute the same program, so at every place of it the state is known when it is
compiled. Whoever needs a tile moves the circle on until it holds it; each step is a statement in
the program of one role: give the tile away, or wait for it. Tiles begin on the way to the role
that needs them first: their barriers are waited for a phase ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt

from warploom.transform import barriers, ir
from warploom.transform.barriers import Position
from warploom.transform.plan_tensor_memory import after_sync, before_sync
from warploom.transform.program import is_shared


class Role(IntEnum):
    """Who executes statements: the thread that multiplies, or the consumer warpgroups."""

    TENSOR_CORE = 0
    THREADS = 1


#: States of a tile; the role of a state is half of it.
TO_TENSOR_CORE, AT_TENSOR_CORE, TO_THREADS, AT_THREADS = range(4)
STATES = 4


def on_the_way_to(role: Role) -> int:
    """The state of a tile that a role has been given and has not yet waited for."""
    return 2 * role


def held_by(role: Role) -> int:
    """The state of a tile that a role holds."""
    return 2 * role + 1


@dataclass
class Handover:
    """The barriers of one tile.

    Attributes
    ----------
    tile : Buffer
        The tile.
    first : Role
        Who touches it first.
    sets : int
        Places that it has, used in turn.
    warps : int
        Warps of the consumers; each arrives once when they give the tile away.
    """

    tile: Buffer
    name: str
    first: Role
    sets: int
    warps: int
    to_threads: Buffer = field(init=False)
    to_tensor_core: Buffer = field(init=False)
    positions: tuple[Position, Position] = field(init=False)

    def __post_init__(self) -> None:
        self.to_threads = barriers.mbarriers(f"{self.name}_done", self.sets)
        self.to_tensor_core = barriers.mbarriers(f"{self.name}_free", self.sets)
        self.positions = (
            Position.named(f"{self.name}_of_tensor_core", self.sets),
            Position.named(f"{self.name}_of_threads", self.sets),
        )

    def initialise(self) -> list[Stmt]:
        """Statements that initialise the barriers."""
        return [
            barriers.initialise(self.to_threads, 1),
            barriers.initialise(self.to_tensor_core, self.warps),
        ]

    def describe(self) -> str:
        """A sentence for the record of decisions."""
        first, second = ("tensor core", "threads")[:: 1 if self.first is Role.TENSOR_CORE else -1]
        return f"handed over: {self.tile.name} from the {first} to the {second} and back"

    def define(self, role: Role) -> list[Stmt]:
        """Variables of a role: where it is. The first one starts a phase ahead."""
        return self.positions[role].define(1 if role is self.first else 0)

    def index(self, role: Role) -> Any:
        """The place that a role is at."""
        return self.positions[role].index

    def step(self, state: int, lane: Any) -> tuple[Role, list[Stmt]]:
        """From a state to the next: who does what."""
        role = Role(state // 2)
        at = self.positions[role]
        mine, other = (self.to_tensor_core, self.to_threads)[:: 1 if role == 0 else -1]
        if state == on_the_way_to(role):
            return role, [barriers.wait(mine, at.index, at.phase.value), after_sync()]
        if role is Role.TENSOR_CORE:
            return role, [commit(other, at.index), *at.advance()]
        arrive = threads_arrive(other, at.index, lane, written=is_shared(self.tile))
        return role, [*arrive, *at.advance()]


def commit(barrier: Buffer, stage: Any) -> Stmt:
    """One arrival when all products so far of this thread are complete."""
    call = T.ptx["tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"]
    return ir.evaluate(call(ir.address(barrier, stage)))


def threads_arrive(barrier: Buffer, stage: Any, lane: Any, written: bool = False) -> list[Stmt]:
    """One arrival of each warp, after all that its threads have done to shared or tensor memory.

    With ``written``, the tensor core sees what they wrote to shared memory.
    """
    return [
        *([ir.evaluate(T.ptx.fence.proxy.async_.shared__cta())] if written else []),
        before_sync(),
        ir.evaluate(T.cuda.warp_sync()),
        ir.when(lane == 0, [barriers.arrive(barrier, stage)]),
    ]
