"""The program of the thread that loads: control flow, scalars and copies, nothing else."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.tile import ir
from warploom.tile.effects import effects
from warploom.tile.kinds import is_for_loading_thread, is_load, is_scalar
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_tile
from warploom.tile.statement import is_nest
from warploom.transform import barriers
from warploom.transform.barriers import Position
from warploom.transform.fill_stages import announce, copies
from warploom.transform.own_barriers import for_loading_thread
from warploom.transform.plan_pipeline import PipelinePlan
from warploom.transform.stage_stores import is_orchestrated


class Producer:
    """Walks a program and keeps what a thread needs that fills the stages of all rings."""

    def __init__(self, program: TileProgram, plan: PipelinePlan) -> None:
        self.program, self.plan = program, plan
        self.positions = {
            use.ring.name: Position.named(use.ring.name, use.ring.stages) for use in plan.uses
        }
        #: The barriers of the first CTA of a pair, which count the loads of a ring.
        self.full: dict[str, Buffer] = {}

    def run(self) -> list[Stmt]:
        """Its statements.

        Raises
        ------
        Decline
            If a scalar comes from a tile, or TMA cannot describe what a load reads.
        """
        start = [s for position in self.positions.values() for s in position.define(1)]
        for ring in self.plan.rings:
            if ring.pairs:
                leader = ring.pairs.leader
                self.full[ring.name], declaration = barriers.remote_view(ring.full, leader)
                start += declaration
        return [*start, *self._block(list(self.program.body))]

    def drain(self) -> list[Stmt]:
        """Wait until the tensor cores of other CTAs have released all that they ever will.

        Their releases arrive here, also when no thread of theirs runs any more.
        """
        statements: list[Stmt] = []
        for ring in self.plan.rings:
            if ring.pairs or ring.shared_by > 1:
                at = self.positions[ring.name]
                free = barriers.wait(ring.empty, at.index, at.phase.value)
                stage = Var("stage", "int32")
                statements.append(ir.loop(stage, ring.stages, [free, *at.advance()]))
        return statements

    def _block(self, statements: list[Stmt]) -> list[Stmt]:
        result: list[Stmt] = []
        for one in statements:
            if is_load(one):
                result += self._load(one)
            elif is_for_loading_thread(one):
                _require_uniform(effects(one).reads, "What wl.loading() does")
                result += for_loading_thread(one)
            elif is_scalar(one):
                _require_uniform(one, "A scalar")
                result.append(one)
            elif not is_nest(one) and not is_orchestrated(one):
                result += self._inside(one)
        return result

    def _inside(self, statement: Stmt) -> list[Stmt]:
        bodies = [self._block(ir.flatten(body)) for body in ir.children(statement)]
        if not any(bodies):
            return []
        if isinstance(statement, tirx.IfThenElse):
            _require_uniform(statement.condition, "A condition")
            return [ir.when(statement.condition, *bodies)]
        if isinstance(statement, tirx.For):
            _require_uniform(statement.extent, "The extent of a loop")
        return [ir.with_body(statement, bodies[0])]

    def _load(self, one: Stmt) -> list[Stmt]:
        """A copy, where the program has it: scalars that it depends on may change between two.

        The first of a stage waits until the stage is free, the last goes on to the next.
        """
        ring = self.plan.ring_of(one)
        at = self.positions[ring.name]
        for start, _ in ir.ranges(one.args[1]):
            _require_uniform(start, f"The place that {one.args[0].source.name} is loaded from")
        statements = copies(one, ring, at.index, self.program, self.full.get(ring.name))
        if one.same_as(ring.loads[0]):
            free = barriers.wait(ring.empty, at.index, at.phase.value)
            # The first CTA of a pair counts the loads of both.
            counts = ring.pairs.leads if ring.pairs else True
            statements = [free, ir.when(counts, [announce(ring, at.index)]), *statements]
        if one.same_as(ring.loads[-1]):
            statements += at.advance()
        return statements


def _require_uniform(node: Any, what: str) -> None:
    used = node if isinstance(node, frozenset) else ir.uses(node)
    tiles = [b for b in used if ir.is_buffer(b) and is_tile(b)]
    if tiles:
        raise Decline(
            f"{what} is computed from the tile {tiles[0].name}, which the thread that loads does "
            "not have; read it from global memory."
        )
