"""The program of the thread that loads: control flow, scalars and copies, nothing else.

Where rows are gathered all threads of the warpgroup load: each its part of these rows, and one of
them what TMA brings.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.lower.analysis.known_scalars import assigned, contains, variables_for
from warploom.lower.analysis.rings import PipelinePlan, Ring, RingUse
from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import Position
from warploom.lower.emit.copy_by_threads import arrive_gathered, is_by_threads
from warploom.lower.emit.fill_stages import announce, copies
from warploom.lower.emit.gather_rows import Copiers, RowCopy
from warploom.lower.emit.own_barriers import for_loading_thread
from warploom.lower.emit.threads import thread_in_warpgroup
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scalar import ThreadScalar
from warploom.tile.scopes import is_tile
from warploom.tile.statement import (
    Block,
    Branch,
    ForLoader,
    Gather,
    Load,
    Loop,
    Nest,
    Orchestrated,
    Scalar,
    Statement,
    While,
    walk,
)

_LOADS = (Load, ForLoader)


class Producer:
    """Walks a program and keeps the statements that the thread needs which fills all rings."""

    def __init__(self, program: TileProgram, plan: PipelinePlan, warps: int = 0) -> None:
        self.program, self.plan = program, plan
        gathers = any(isinstance(statement, Gather) for statement in walk(program.block))
        #: The first warps of a warpgroup, where rows are gathered; None where one thread loads.
        self.copiers = (
            Copiers(thread_in_warpgroup(program), warps * SM90A.warp) if gathers else None
        )
        #: Where the rows of gathers are that loops around do not change.
        self.held: dict[Stmt, list[ThreadScalar]] = {}
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
        end = [] if self.copiers is None else [ir.evaluate(T.ptx.cp.async_.wait_all())]
        return [*start, *self._block(self.program.block), *end]

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
                return self._alone(for_loading_thread(statement))
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
        before = self._hold(statement) if isinstance(statement, Loop) else []
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
        return [*before, ir.with_body(statement.raw, bodies[0])]

    def _load(self, load: Load) -> list[Stmt]:
        """A copy, where the program has it: scalars that it depends on may change between two.

        The first of a stage waits until the stage is free, the last goes on to the next.
        """
        use = self.plan.use_of(load)
        ring = use.ring
        at = self.positions[ring.name]
        _require_uniform(
            frozenset(load.place), f"The place that {load.tile.name} is loaded from"
        )
        first = load.raw.same_as(use.loads[0])
        before = self._find_rows(use) if first and self.copiers is not None else []
        if isinstance(load, Gather):
            found, statements = self._gather(load, ring, at.index)
            statements = [*found, *statements]
        else:
            full = self.full.get(ring.name)
            statements = self._alone(copies(load.raw, ring, at.index, self.program, full))
        if first:
            free = barriers.wait(ring.empty, at.index, at.phase.value)
            # The first CTA of a pair counts the loads of both.
            counts = ring.pairs.leads if ring.pairs else True
            announced = self._alone([ir.when(counts, [announce(ring, at.index)])])
            by_tma = not all(map(is_by_threads, use.loads))
            statements = [free, *(announced if by_tma else []), *statements]
        if load.raw.same_as(use.loads[-1]):
            copied = any(map(is_by_threads, use.loads))
            statements += [arrive_gathered(ring, at.index)] if copied else []
            statements += at.advance()
        return [*before, *statements]

    def _alone(self, statements: list[Stmt]) -> list[Stmt]:
        """Statements of one thread, where others load, too."""
        if self.copiers is None or not statements:
            return statements
        return [ir.when(self.copiers.thread == 0, statements)]

    def _find_rows(self, use: RingUse) -> list[Stmt]:
        """Find the rows that a stage gathers, before the wait for it, which takes as long."""
        behind = use.block[next(i for i, one in enumerate(use.block) if use.has(one)) :]
        later = {one.variable for one in behind if isinstance(one, Scalar)}
        statements: list[Stmt] = []
        for one in behind:
            gathers = isinstance(one, Gather) and use.has(one) and one.raw not in self.held
            if gathers and not one.place_of_rows & later:
                held, found = RowCopy(one, self.copiers).find()
                self.held[one.raw] = held
                statements += found
        return statements

    def _gather(self, gather: Gather, ring: Ring, stage: Any) -> tuple[list[Stmt], list[Stmt]]:
        """Statements that find the rows of a gather, if none has, and its copies."""
        rows, found = RowCopy(gather, self.copiers), []
        held = self.held.get(gather.raw)
        if held is None:
            held, found = rows.find()
        return found, rows.copy(ring, stage, held)

    def _hold(self, loop: Loop) -> list[Stmt]:
        """Find the rows of gathers that no iteration of a loop changes, before the loop."""
        if self.copiers is None:
            return []
        changing = {one.var for one in walk((loop,)) if isinstance(one, Loop)}
        changing |= assigned(loop) | loop.effects.writes
        statements: list[Stmt] = []

        def visit(block: Block) -> None:
            for statement in block:
                match statement:
                    case Gather() if statement.raw not in self.held:
                        if not statement.place_of_rows & changing:
                            rows = RowCopy(statement, self.copiers)
                            held, found = rows.find(loop.has_iterations or loop.extent > 0)
                            self.held[statement.raw] = held
                            statements.extend(found)
                    case Loop(over_tiles=False):
                        visit(statement.body)

        visit(loop.body)
        return statements


def _require_uniform(node: Any, noun: str) -> None:
    used = node if isinstance(node, frozenset) else ir.uses(node)
    tiles = [b for b in used if ir.is_buffer(b) and is_tile(b)]
    if tiles:
        raise Decline(
            f"{noun} is computed from the tile {tiles[0].name}, which the thread that loads does "
            "not have; read it from global memory."
        )
