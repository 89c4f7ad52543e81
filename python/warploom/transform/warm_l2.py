"""Brings a CTA's first tiles into the L2 cache while the kernel before still runs.

A kernel that is launched early waits for the one before it to end (:mod:`start_early`), then its
first loads wait for memory. Their prefetches need not wait: they change nothing, and the L2 cache
is where all writes of the GPU meet, so what the kernel before writes later is what loads find.
Memory has work where one kernel ends and the next begins, which counts for products of few rows:
they take as long as their weights take to arrive.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var

from warploom.tile import ir
from warploom.tile.kinds import is_for_loading_thread, is_load, is_scalar
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global, is_tile
from warploom.tile.statement import PIPELINED, is_nest
from warploom.transform.fill_stages import prefetches
from warploom.transform.plan_pipeline import PipelinePlan
from warploom.transform.stage_stores import is_orchestrated
from warploom.transform.start_early import wait_for_last


def wait_and_warm_l2(
    program: TileProgram, plan: PipelinePlan, loads: Any
) -> tuple[list[Stmt], TileProgram]:
    """Statements that wait for the kernel before this one, and the program with the decision.

    None if the hints say that this kernel is launched when that one has ended. With the hint
    ``warm_l2``, the thread for which ``loads`` holds first prefetches as many steps as there are
    stages: of the first tile, up to the end of the first pipelined loop, or to what depends on a
    tile, or on a value in global memory, which is known when the kernel before has ended.
    """
    if program.hints.early_launch is False:
        return [], program
    if not program.hints.warm_l2:
        return [wait_for_last()], program
    walk = _Walk(program, plan)
    warmed, _ = walk.block(list(program.body))
    if not walk.prefetched:
        return [wait_for_last()], program.not_followed(
            "warm_l2",
            "what is loaded first depends on global memory or a tile, or is behind what the "
            "author orchestrates; leave it out",
        )
    return [ir.when(loads, ir.renewed(warmed)), wait_for_last()], program.decided(
        "warm_l2: the loads of the first stages are prefetched before the kernel before has ended"
    )


class _Walk:
    def __init__(self, program: TileProgram, plan: PipelinePlan) -> None:
        self.program, self.plan = program, plan
        #: Scalars that come from global memory or from a tile.
        self.unknown: set[Var] = set()
        self.prefetched = False

    def block(self, statements: list[Stmt]) -> tuple[list[Stmt], bool]:
        """What is left of a block, and whether nothing that follows it may be prefetched."""
        kept: list[Stmt] = []
        for one in statements:
            if is_scalar(one):
                if self._known(one):
                    kept.append(one)
                else:
                    self.unknown.add(one.var if isinstance(one, tirx.Bind) else one.buffer)
            elif is_load(one):
                if not self._known(one.args[1].region):
                    return kept, True
                kept += prefetches(one, self.plan.ring_of(one), self.program)
                self.prefetched = True
            elif is_for_loading_thread(one):
                return kept, True
            elif not is_nest(one) and not is_orchestrated(one):
                inner, ended = self._inside(one)
                kept += inner
                if ended:
                    return kept, True
        return kept, False

    def _inside(self, one: Stmt) -> tuple[list[Stmt], bool]:
        parts = ir.children(one)
        if not parts:
            return [], False
        if not isinstance(one, (tirx.For, tirx.IfThenElse)):
            return [], True
        loop = isinstance(one, tirx.For)
        if not all(map(self._known, [one.min, one.extent] if loop else [one.condition])):
            return [], True
        bodies, ends = zip(*(self.block(ir.flatten(part)) for part in parts), strict=True)
        if not loop:
            return ([ir.when(one.condition, *bodies)] if any(bodies) else []), any(ends)
        if not bodies[0]:
            return [], ends[0]
        if PIPELINED in one.annotations and not ends[0]:
            steps = T.min(one.extent, self._stages(one))
            return [ir.loop(one.loop_var, steps, bodies[0], start=one.min)], True
        return [ir.when(one.extent > 0, [tirx.Bind(one.loop_var, one.min), *bodies[0]])], True

    def _known(self, node: Any) -> bool:
        """Whether a value needs neither what the kernel before may write nor what a tile holds."""
        used = ir.uses(node)
        held = any(is_global(v) or is_tile(v) for v in used if ir.is_buffer(v))
        return not held and not used & self.unknown

    def _stages(self, loop: tirx.For) -> int:
        """Steps of a pipelined loop that are loaded ahead; 1 if a branch of it loads."""
        stages = [
            use.ring.stages
            for use in self.plan.uses
            if use.loop is not None and use.loop.same_as(loop)
        ]
        return max(stages, default=1)
