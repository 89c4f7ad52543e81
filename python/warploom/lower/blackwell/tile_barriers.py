"""Tiles that go to and fro between the tensor core and the threads of Blackwell.

An accumulator goes from the tensor core to the threads, and back for the next MMA; an operand
that threads compute goes the other way round. Each such tile has two mbarriers, one a direction,
and is in one of four states, which follow each other in a circle:

    on its way to the tensor core -> held by it -> on its way to the threads -> held by them -> ...

Both roles execute the same program, so at every place of it the state is known when it is
compiled. A role that needs a tile moves the circle on until it holds the tile; each step is a
statement in the program of one role: give the tile away, or wait for it. Tiles begin on the way to
the role that needs them first: their barriers are waited for a phase ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt

from warploom.lower.analysis.clusters import Pairs
from warploom.lower.analysis.rings import mbarriers
from warploom.lower.analysis.shared_tiles import stacked
from warploom.lower.blackwell.plan_tensor_memory import after_sync, before_sync
from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import Position
from warploom.target.tcgen05 import PAIR
from warploom.tile import ir
from warploom.tile.scopes import is_shared


class Role(IntEnum):
    """Roles that execute statements: the thread that issues MMAs, or the consumer warpgroups."""

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
class TileBarriers:
    """The barriers of one tile.

    Attributes
    ----------
    tile : Buffer
        The tile.
    first : Role
        The role that touches it first.
    sets : int
        Places that it has, used one after the other; places in shared memory are :attr:`stack`.
    warps : int
        Warps of the consumers of a CTA; each arrives once when they give the tile away.
    pairs : Pairs or None
        The pairs of CTAs that multiply together: a thread of the first one gives the tiles of both
        away, and waits for the threads of both.
    """

    tile: Buffer
    name: str
    first: Role
    sets: int
    warps: int
    pairs: Pairs | None = None
    to_threads: Buffer = field(init=False)
    to_tensor_core: Buffer = field(init=False)
    positions: tuple[Position, Position] = field(init=False)
    remote: tuple[Buffer, list[Stmt]] | None = field(init=False)
    stack: Buffer | None = field(init=False)

    def __post_init__(self) -> None:
        self.to_threads = mbarriers(f"{self.name}_done", self.sets)
        self.to_tensor_core = mbarriers(f"{self.name}_free", self.sets)
        self.positions = (
            Position.named(f"{self.name}_of_tensor_core", self.sets),
            Position.named(f"{self.name}_of_threads", self.sets),
        )
        twice = is_shared(self.tile) and self.sets > 1
        self.stack = stacked(self.tile, self.sets) if twice else None
        self.remote = (
            barriers.remote_view(self.to_tensor_core, self.pairs.leader) if self.pairs else None
        )

    def initialise(self) -> list[Stmt]:
        """Statements that initialise the barriers."""
        return [
            barriers.initialise(self.to_threads, 1),
            barriers.initialise(
                self.to_tensor_core, self.warps * (PAIR if self.pairs else 1)
            ),
        ]

    def describe(self) -> str:
        """A sentence for the record of decisions."""
        first, second = ("tensor core", "threads")[:: 1 if self.first is Role.TENSOR_CORE else -1]
        twice = ", in two places" if self.stack is not None else ""
        return f"tile barriers: {self.tile.name} from the {first} to the {second} and back{twice}"

    def define(self, role: Role) -> list[Stmt]:
        """Variables of a role: where it is. The first one starts a phase ahead."""
        declared = self.remote[1] if self.remote and role is Role.THREADS else []
        return [*declared, *self.positions[role].define(1 if role is self.first else 0)]

    def index(self, role: Role) -> Any:
        """The place that a role is at."""
        return self.positions[role].index

    def step(self, state: int, lane: Any) -> tuple[Role, list[Stmt]]:
        """The statements of each role from a state to the next."""
        role = Role(state // 2)
        at = self.positions[role]
        mine, other = (self.to_tensor_core, self.to_threads)[:: 1 if role == 0 else -1]
        if state == on_the_way_to(role):
            return role, [barriers.wait(mine, at.index, at.phase.value), after_sync()]
        if role is Role.TENSOR_CORE:
            mask = self.pairs.mask if self.pairs else None
            return role, [commit(other, at.index, mask, bool(self.pairs)), *at.advance()]
        remote = self.remote and barriers.Remote(self.remote[0], lane == 0)
        arrive = threads_arrive(other, at.index, lane, remote, written=is_shared(self.tile))
        return role, [*arrive, *at.advance()]


def commit(barrier: Buffer, stage: Any, mask: Any, paired: bool) -> Stmt:
    """Arrive once, when all MMAs so far of this thread are complete.

    It arrives in the CTAs of a mask, one bit each, or in this one. ``paired`` is for MMAs of a
    pair.
    """
    name = f"tcgen05.commit.cta_group::{PAIR if paired else 1}.mbarrier::arrive::one"
    if mask is None:
        return ir.evaluate(T.ptx[f"{name}.shared::cluster.b64"](ir.address(barrier, stage)))
    call = T.ptx[f"{name}.shared::cluster.multicast::cluster.b64"]
    return ir.evaluate(call(ir.address(barrier, stage), T.uint16(mask)))


def threads_arrive(
    barrier: Buffer, stage: Any, lane: Any, remote: barriers.Remote | None = None,
    written: bool = False,
) -> list[Stmt]:  # fmt: skip
    """Arrive once per warp, after all accesses of its threads to shared or tensor memory.

    With ``remote``, lanes arrive in the CTAs that it shows them.
    With ``written``, the tensor core sees their writes to shared memory.
    """
    if remote is None:
        arrival = ir.when(lane == 0, [barriers.arrive(barrier, stage)])
    else:
        arrival = ir.when(remote.chosen, [barriers.arrive_remote(remote.view, stage)])
    return [
        *([ir.evaluate(T.ptx.fence.proxy.async_.shared__cta())] if written else []),
        before_sync(),
        ir.evaluate(T.cuda.warp_sync()),
        arrival,
    ]
