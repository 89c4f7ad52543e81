"""Which threads of a CTA have which role on Blackwell, and the statements of each role.

The first warpgroup has the roles of single threads, a warp each; all others compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Stmt, Var

from warploom.lower.analysis.budget import launch_registers, register_split
from warploom.target import SM100A
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.roles import ThreadRole

#: Warps of a warpgroup.
WARPS = 4
#: Registers of a thread of the first warpgroup, where consumers take the others.
_FIRST_REGISTERS = 96
#: Warps of the first warpgroup and their roles.
_LOADS, _MULTIPLIES, _ALLOCATES, _ASKS = range(4)


@dataclass(frozen=True)
class RoleStreams:
    """The statements of each role."""

    loading: list[Stmt]
    multiplying: list[Stmt]
    asking: list[Stmt]
    computing: list[Stmt]


@dataclass(frozen=True)
class RoleThreads:
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
        """Return the condition for one thread of a warp, for threads of the first warpgroup."""
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


def choose_role(
    program: TileProgram, threads: RoleThreads, streams: RoleStreams, consumers: int, count: int
) -> tuple[Stmt, tuple[ThreadRole, ...]]:
    """Return the code of ``count`` threads, by role, and the roles."""
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


def _choose(*cases: tuple[Any, list[Stmt]]) -> list[Stmt]:
    """The statements of the first condition that holds; cases without statements do not count."""
    (condition, statements), *others = cases
    rest = _choose(*others) if others else []
    return [ir.when(condition, statements, rest or None)] if statements else rest


def _before_end() -> Stmt:
    return ir.evaluate(T.ptx.tcgen05.fence__before_thread_sync())


def _registers(
    program: TileProgram, consumers: int, at_launch: int
) -> tuple[list[Stmt], list[Stmt]]:
    """Moves registers to the consumers, where the first warpgroup has some to give away.

    ``at_launch`` is the count that every thread has before; it is enough for any role, unless
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
