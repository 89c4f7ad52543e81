"""The program of the thread that loads: control flow, scalars and copies, nothing else."""

from __future__ import annotations

from typing import Any

from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.lower.analysis.known_scalars import assigned, contains, variables_for
from warploom.lower.analysis.rings import PipelinePlan
from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import Position
from warploom.lower.emit.fill_stages import announce, copies
from warploom.lower.emit.own_barriers import for_loading_thread
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_tile
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
    While,
)

_LOADS = (Load, ForLoader)


class Producer:
    """Walks a program and keeps the statements that the thread needs which fills all rings."""

    def __init__(self, program: TileProgram, plan: PipelinePlan) -> None:
        self.program, self.plan = program, plan
        self.positions = {
            use.ring.name: Position.named(use.ring.name, use.ring.stages) for use in plan.uses
        }
        #: What loads depend on.
        self.known = variables_for(program.block, _LOADS)
        #: The barriers of the first CTA of a pair, which count the loads of a ring.
        self.full: dict[str, Buffer] = {}

    def run(self) -> list[Stmt]:
        """Its statements.

        Raises
        ------
        Decline
            If a scalar comes from a tile, or TMA cannot describe the source of a load.
        """
        start = [s for position in self.positions.values() for s in position.define(1)]
        for ring in self.plan.rings:
            if ring.pairs:
                leader = ring.pairs.leader
                self.full[ring.name], declaration = barriers.remote_view(ring.full, leader)
                start += declaration
        return [*start, *self._block(self.program.block)]

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

    def _block(self, statements: Block) -> list[Stmt]:
        return [made for statement in statements for made in self._statement(statement)]

    def _statement(self, statement: Statement) -> list[Stmt]:
        match statement:
            case Load():
                return self._load(statement)
            case ForLoader():
                _require_uniform(statement.effects.reads, "What wl.loading() does")
                return for_loading_thread(statement)
            case Scalar():
                _require_uniform(statement.raw, "A scalar")
                return [statement.raw]
            case Nest() | Orchestrated():
                return []
        return self._inside(statement)

    def _inside(self, statement: Statement) -> list[Stmt]:
        """A loop or a branch, if there is something to do in it."""
        if not contains(statement, _LOADS) and not assigned(statement) & self.known:
            return []
        bodies = [self._block(inner) for inner in statement.blocks]
        if not any(bodies):
            return []
        match statement:
            case Branch(condition=condition):
                _require_uniform(condition, "A condition")
                return [ir.when(condition, *bodies)]
            case Loop(extent=extent):
                _require_uniform(extent, "The extent of a loop")
            case While(condition=condition):
                _require_uniform(condition, "The condition of a while loop")
        return [ir.with_body(statement.raw, bodies[0])]

    def _load(self, load: Load) -> list[Stmt]:
        """A copy, where the program has it: scalars that it depends on may change between two.

        The first of a stage waits until the stage is free, the last goes on to the next.
        """
        use = self.plan.use_of(load)
        ring = use.ring
        at = self.positions[ring.name]
        for start, _ in ir.ranges(load.source):
            _require_uniform(start, f"The place that {load.tile.name} is loaded from")
        statements = copies(load.raw, ring, at.index, self.program, self.full.get(ring.name))
        if load.raw.same_as(use.loads[0]):
            free = barriers.wait(ring.empty, at.index, at.phase.value)
            # The first CTA of a pair counts the loads of both.
            counts = ring.pairs.leads if ring.pairs else True
            statements = [free, ir.when(counts, [announce(ring, at.index)]), *statements]
        if load.raw.same_as(use.loads[-1]):
            statements += at.advance()
        return statements


def _require_uniform(node: Any, noun: str) -> None:
    used = node if isinstance(node, frozenset) else ir.uses(node)
    tiles = [b for b in used if ir.is_buffer(b) and is_tile(b)]
    if tiles:
        raise Decline(
            f"{noun} is computed from the tile {tiles[0].name}, which the thread that loads does "
            "not have; read it from global memory."
        )
