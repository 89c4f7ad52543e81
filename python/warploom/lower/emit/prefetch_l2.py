"""Brings a CTA's first tiles into the L2 cache while the kernel before still runs.

With programmatic dependent launch (PDL) a kernel waits for its predecessor to end, then its
first loads wait for memory. Their prefetches need not wait: they change nothing, and the L2 cache
is where all writes of the GPU meet, so loads find later writes of the kernel before.
Memory has work where one kernel ends and the next begins, which counts for GEMMs of few rows:
they take as long as their weights take to arrive. Where loads are told to drop the weights first,
as what is read once, they alone are prefetched: all CTAs load the same few rows, and kernels that
prefetched those, too, took 1 to 4 % longer (three GEMMs of 10 to 23 us, H200, 2026-11-26).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var

from warploom.lower.analysis.rings import PipelinePlan
from warploom.lower.emit.copy_by_threads import is_by_threads
from warploom.lower.emit.fill_stages import prefetches
from warploom.lower.emit.next_kernel import wait_for_last
from warploom.ops.copy_strided import CACHE_HINT
from warploom.tile import ir
from warploom.tile.choices import DROPPED
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global, is_tile
from warploom.tile.statement import (
    Block,
    Branch,
    ForLoader,
    Load,
    Loop,
    Nest,
    Orchestrated,
    Scalar,
    Statement,
    walk,
)


def wait_and_prefetch_l2(
    program: TileProgram, plan: PipelinePlan, loads: Any
) -> tuple[list[Stmt], TileProgram]:
    """Statements that wait for the kernel before this one, and the program with the decision.

    None if the hints say that this kernel is launched when that one has ended. With the hint
    ``prefetch_l2``, the thread for which ``loads`` holds first prefetches as many steps as there
    are stages: of the first tile, up to the end of the first pipelined loop, or to what depends on
    a tile, or on a value in global memory, which is known when the kernel before has ended. If
    the cache drops what some loads bring first, it prefetches no others.
    """
    if program.hints.pdl is False:
        return [], program
    if not program.hints.prefetch_l2:
        return [wait_for_last()], program
    first = _Walk(program, plan)
    warmed, _ = first.block(program.block)
    if not first.prefetched:
        return [wait_for_last()], program.not_followed(
            "prefetch_l2",
            "what is loaded first depends on global memory or a tile, or is behind what the "
            "author orchestrates; leave it out",
        )
    return [ir.when(loads, ir.renewed(warmed)), wait_for_last()], program.decided(
        "prefetch_l2: the loads of the first stages begin before the kernel before has ended"
    )


class _Walk:
    def __init__(self, program: TileProgram, plan: PipelinePlan) -> None:
        self.program, self.plan = program, plan
        #: Whether loads have a policy that says which bytes are read once.
        self.once = any(_is_dropped(s) for s in walk(program.block) if isinstance(s, Load))
        #: Scalars that come from global memory or from a tile.
        self.unknown: set[Var] = set()
        self.prefetched = False

    def block(self, statements: Block) -> tuple[list[Stmt], bool]:
        """The prefetches of a block, and whether no load behind the block may be prefetched."""
        kept: list[Stmt] = []
        for statement in statements:
            match statement:
                case Scalar(variable=variable):
                    if self._known(statement.raw):
                        kept.append(statement.raw)
                    else:
                        self.unknown.add(variable)
                case Load(raw=raw) if is_by_threads(raw):
                    pass
                case Load(source=source):
                    if self.once and not _is_dropped(statement):
                        continue
                    if not self._known(source.region):
                        return kept, True
                    kept += prefetches(statement.raw, self.plan.ring_of(statement), self.program)
                    self.prefetched = True
                case ForLoader():
                    return kept, True
                case Nest() | Orchestrated():
                    pass
                case _:
                    inner, ended = self._inside(statement)
                    kept += inner
                    if ended:
                        return kept, True
        return kept, False

    def _inside(self, statement: Statement) -> tuple[list[Stmt], bool]:
        if not statement.blocks:
            return [], False
        match statement:
            case Loop():
                decides = [statement.start, statement.extent]
            case Branch():
                decides = [statement.condition]
            case _:
                return [], True
        if not all(map(self._known, decides)):
            return [], True
        bodies, ends = zip(*map(self.block, statement.blocks), strict=True)
        if isinstance(statement, Branch):
            return ([ir.when(statement.condition, *bodies)] if any(bodies) else []), any(ends)
        if not bodies[0]:
            return [], ends[0]
        if statement.pipelined and not ends[0]:
            steps = T.min(statement.extent, self._stages(statement))
            return [ir.loop(statement.var, steps, bodies[0], start=statement.start)], True
        return [
            ir.when(statement.extent > 0, [tirx.Bind(statement.var, statement.start), *bodies[0]])
        ], True

    def _known(self, node: Any) -> bool:
        """Whether a value needs neither memory that the kernel before may write nor a tile."""
        used = ir.uses(node)
        held = any(is_global(v) or is_tile(v) for v in used if ir.is_buffer(v))
        return not held and not used & self.unknown

    def _stages(self, loop: Loop) -> int:
        """Steps of a pipelined loop that are loaded ahead; 1 if a branch of it loads."""
        stages = [
            use.ring.stages
            for use in self.plan.uses
            if use.loop is not None and use.loop.raw.same_as(loop.raw)
        ]
        return max(stages, default=1)


def _is_dropped(load: Load) -> bool:
    """Whether the L2 cache drops first what a load brings."""
    return load.raw.config.get(CACHE_HINT) == DROPPED
