"""Elementwise nests: loops around stores into tiles, executed one statement at a time.

Iterations of a nest are independent, so that its statements may be executed one after the other,
each for all iterations at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm.tirx.stmt import Bind, BufferStore, For, ForKind, SeqStmt

from warploom.errors import TileProgramError
from warploom.language.interpreter.expressions import Evaluator
from warploom.language.interpreter.storage import Storage


@dataclass(frozen=True)
class Nest:
    """Loops from the outermost to the innermost, and the statements in the innermost."""

    loops: tuple[For, ...]
    body: tuple[Bind | BufferStore, ...]

    def run(self, evaluate: Evaluator) -> None:
        """Execute the nest."""
        inner = self._with_loops(evaluate)
        if inner is None:
            return
        stored: dict = {}
        for statement in self.body:
            if isinstance(statement, BufferStore):
                pattern = self._store_pattern(inner, statement)
                if stored.setdefault(statement.buffer, pattern) != pattern:
                    raise TileProgramError(
                        f"{statement.buffer.name} is stored at different loop variables in one "
                        "nest; iterations must be independent."
                    )
        inner = replace(inner, stored=stored)
        for statement in self.body:
            if isinstance(statement, Bind):
                bound = {**inner.variables, statement.var: inner(statement.value)}
                inner = replace(inner, variables=bound)
            else:
                self._store(inner, statement)

    def _with_loops(self, evaluate: Evaluator) -> Evaluator | None:
        """The evaluator inside of the nest; None if there is no iteration."""
        ranges = []
        for loop in self.loops:
            start, extent = evaluate.integer(loop.min), evaluate.integer(loop.extent)
            step = 1 if loop.step is None else evaluate.integer(loop.step)
            ranges.append(np.arange(start, start + max(extent, 0), step))
        if not all(r.size for r in ranges):
            return None
        variables = dict(evaluate.variables)
        for axis, (loop, values) in enumerate(zip(self.loops, ranges, strict=True)):
            shape = [-1 if a == axis else 1 for a in range(len(ranges))]
            dtype = str(loop.loop_var.ty.dtype)
            variables[loop.loop_var] = values.astype(dtype).reshape(shape)
        loops = tuple(loop.loop_var for loop in self.loops)
        return replace(evaluate, variables=variables, loops=loops)

    def _store_pattern(self, evaluate: Evaluator, store: BufferStore) -> tuple:
        name, indices = store.buffer.name, list(store.indices)
        pattern = evaluate.pattern(indices, [evaluate(i) for i in indices])
        if pattern is None or not set(range(len(self.loops))) <= set(pattern):
            loops = ", ".join(v.name for v in evaluate.loops)
            at = ", ".join(str(i).splitlines()[-1] for i in indices)
            raise TileProgramError(
                f"the store to {name}[{at}] in a nest over {loops} must have each loop variable as "
                "one of its indices, and no function of them."
            )
        return pattern

    def _store(self, evaluate: Evaluator, store: BufferStore) -> None:
        target = storage_of(evaluate, store.buffer)
        if not target.is_tile:
            raise TileProgramError(
                f"an elementwise nest stores to {target.name} in {target.scope} memory; store to a "
                "shared, fragment or accumulator tile, and copy the tile."
            )
        indices = [evaluate(i).astype(np.int64) for i in store.indices]
        shape = [evaluate.variables[v].size for v in evaluate.loops]
        target.scatter(np.broadcast_arrays(*indices), np.broadcast_to(evaluate(store.value), shape))


def storage_of(evaluate: Evaluator, buffer: Any) -> Storage:
    """The storage of a buffer that is in scope."""
    if buffer not in evaluate.buffers:
        raise TileProgramError(f"buffer {buffer.name} is used before it is allocated.")
    return evaluate.buffers[buffer]


def read_nest(loop: For, is_tile: Any) -> Nest | None:
    """``loop`` as an elementwise nest; None if it is a loop of the CTA.

    A nest has loops, bindings and stores alone, and at least one store to a tile or to global
    memory; ``is_tile(buffer)`` is false for scalars.
    """
    loops: list[For] = []
    statement: Any = loop
    while isinstance(statement, For):
        if statement.kind == ForKind.THREAD_BINDING:
            raise TileProgramError(
                f"loop {statement.loop_var.name} is bound to threads; a tile program has none."
            )
        loops.append(statement)
        statement = statement.body
    body = tuple(statement.seq) if isinstance(statement, SeqStmt) else (statement,)
    stores = [s for s in body if isinstance(s, BufferStore)]
    elementwise = all(isinstance(s, Bind | BufferStore) for s in body)
    if not elementwise or not stores or not all(is_tile(s.buffer) for s in stores):
        return None
    return Nest(tuple(loops), body)
