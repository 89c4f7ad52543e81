"""Statements of a tile program, and the grid of CTAs that executes them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm.tirx import Var
from tvm.tirx.stmt import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    ScopeIdDefStmt,
    SeqStmt,
    While,
)
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import TileProgramError
from warploom.language.interpreter.barriers import run_operation
from warploom.language.interpreter.nests import run_nest
from warploom.language.interpreter.primitives import run_primitive
from warploom.language.interpreter.prints import run_print
from warploom.language.interpreter.running import Running
from warploom.language.interpreter.storage import Barrier, Storage
from warploom.language.interpreter.waits import Signal, Waits, run_ctas, wait_until
from warploom.language.interpreter.writers import Writers
from warploom.language.printing import is_on, read_print
from warploom.language.rules.entries import scope_ids, viewed
from warploom.language.rules.nests import read_nest, text
from warploom.language.rules.places import at_place
from warploom.language.rules.scopes import require_allocation
from warploom.language.values.dtypes import numpy_dtype, poisoned
from warploom.tile.annotations import GIVEN, TAKEN
from warploom.tile.assumption import read_assumption
from warploom.tile.hints import DEVICE_ENTRY
from warploom.tile.ids import KINDS, parent_and_child
from warploom.tile.mbarriers import SCOPE as MBARRIER
from warploom.tile.mbarriers import read_operation


@dataclass
class Runner:
    """Executes the statements of a CTA; ``evaluate`` has the variables and buffers in scope.

    ``ctas`` is how many CTAs of a grid are executed, at most; None for all. ``is_whole`` is whether
    that were all. ``watched`` is whether two CTAs that store one element are refused: those of a
    program that passes have changed may share workspaces.
    """

    evaluate: Running
    poison: bool
    ctas: int | None = None
    is_whole: bool = True
    watched: bool = False

    def run(self, statement: Any) -> Waits:
        try:
            waits = _STATEMENTS[type(statement)](self, statement)
            if waits is not None:
                yield from waits
        except TileProgramError as error:
            raise at_place(error, statement) from None

    def sequence(self, statement: SeqStmt) -> Waits:
        for child in statement.seq:
            yield from self.run(child)

    def attribute(self, statement: AttrStmt) -> Waits | None:
        key, body = str(statement.attr_key), statement.body
        if key == DEVICE_ENTRY:
            return run_ctas(self._ctas(body))
        if key in (GIVEN, TAKEN):
            return through_slot(self.evaluate, statement, self.run(body))
        return self.run(body)

    def _ctas(self, body: Any) -> Iterator[tuple[str, Waits]]:
        outside, given = self.evaluate, set[int]()
        names: list[str] = []
        writers = {
            buffer: Writers(storage.name, names) for buffer, storage in outside.buffers.items()
            if self.watched and storage.scope == "global"
        }  # fmt: skip
        for number, ids in enumerate(self._some(self.grid(body))):
            variables = {**outside.variables, **ids}
            buffers = dict(outside.buffers)
            for buffer, shared in writers.items():
                own = replace(shared, number=number)
                buffers[buffer] = replace(buffers[buffer], writers=own)
            cta = replace(outside, variables=variables, buffers=buffers, given=given)
            names.append(name_of_cta(ids))
            yield name_of_cta(ids), Runner(cta, self.poison).run(body)

    def _some(self, grid: Iterator[Any]) -> Iterable[Any]:
        """The CTAs to execute, always the same: the first, the last, and others at random."""
        if self.ctas is None:
            return grid
        every = list(grid)
        if len(every) <= self.ctas:
            return every
        self.is_whole = False
        inside = random.Random(0).sample(range(1, len(every) - 1), max(0, self.ctas - 2))
        return [every[at] for at in sorted({0, len(every) - 1, *inside})]

    def grid(self, body: Any) -> Iterator[dict[Var, np.ndarray]]:
        """The ids of every CTA of a device function."""
        definitions = scope_ids(body)
        clusters = [id_ for id_ in definitions if parent_and_child(id_) == KINDS["cta_in_cluster"]]
        (definition,) = (id_ for id_ in definitions if parent_and_child(id_) == KINDS["cta"])
        extents = [self.evaluate.integer(extent) for extent in definition.extents]
        for place in itertools.product(*map(range, extents)):
            ids = dict(zip(definition.def_ids, place, strict=True))
            # Passes that make clusters number the CTAs of the grid in one dimension.
            for scope_id in clusters:
                ids[scope_id.def_ids[0]] = place[0] % self.evaluate.integer(scope_id.extents[0])
            yield {v: np.asarray(p, str(v.ty.dtype)) for v, p in ids.items()}

    def allocate(self, statement: AllocBuffer) -> None:
        buffer = statement.buffer
        name, scope = buffer.name, str(buffer.scope())
        dtype = numpy_dtype(str(buffer.ty.dtype))
        shape = tuple(self.evaluate.integer(extent) for extent in buffer.ty.shape)
        require_allocation(name, scope, dtype.name, shape)
        if scope == MBARRIER:
            barriers = np.empty(shape, object)
            barriers.flat = [Barrier() for _ in range(barriers.size)]
            self.evaluate.buffers[buffer] = Storage(name, scope, barriers)
            return
        array = poisoned(shape, dtype) if self.poison else np.zeros(shape, dtype)
        self.evaluate.buffers[buffer] = Storage(name, scope, array)

    def declare(self, statement: DeclBuffer) -> None:
        source, buffer = self.evaluate.storage(viewed(statement)), statement.buffer
        shape = tuple(self.evaluate.integer(extent) for extent in buffer.ty.shape)
        if math.prod(shape) > source.array.size or not source.array.flags.c_contiguous:
            raise TileProgramError(
                f"{buffer.name} has shape {shape}, and {source.name}, which it is declared over, "
                f"has shape {source.array.shape}; it must have as many elements, one after another."
            )
        array = source.array.reshape(-1)[: math.prod(shape)].reshape(shape)
        self.evaluate.buffers[buffer] = Storage(buffer.name, "global", array)

    def assertion(self, statement: AssertStmt) -> None:
        if not self.evaluate(statement.condition):
            parts = "".join(str(part.value) for part in statement.message_parts)
            raise TileProgramError(f"{text(statement.condition)} does not hold: {parts}")

    def bind(self, statement: Bind) -> None:
        self.evaluate.variables[statement.var] = self.evaluate(statement.value)

    def store(self, statement: BufferStore) -> None:
        self.evaluate.storage(statement.buffer).array[...] = self.evaluate(statement.value)

    def loop(self, statement: For) -> Waits | None:
        nest = read_nest(statement)
        return self._iterations(statement) if nest is None else run_nest(self.evaluate, nest)

    def _iterations(self, statement: For) -> Waits:
        dtype = str(statement.loop_var.ty.dtype)
        for value in self.evaluate.iterations(statement):
            self.evaluate.variables[statement.loop_var] = np.asarray(value, dtype)
            yield from self.run(statement.body)

    def repeat(self, statement: While) -> Waits:
        while self.evaluate(statement.condition):
            yield from self.run(statement.body)

    def branch(self, statement: IfThenElse) -> Waits | None:
        if self.evaluate(statement.condition):
            return self.run(statement.then_case)
        return None if statement.else_case is None else self.run(statement.else_case)

    def primitive(self, statement: TilePrimitiveCall) -> None:
        run_primitive(self.evaluate, statement)

    def expression(self, statement: Evaluate) -> None:
        operation, printed = read_operation(statement), read_print(statement)
        if printed is not None:
            if is_on() or printed.ends_kernel:
                run_print(self.evaluate, printed)
        elif operation is not None:
            run_operation(self.evaluate, operation)
        elif (assumed := read_assumption(statement)) is None:
            self.evaluate(statement.value)
        elif not self.evaluate(assumed):
            raise TileProgramError(
                f"the program assumes {text(assumed)}, which does not hold; correct the condition, "
                "or leave it out."
            )

    def scope_id(self, statement: ScopeIdDefStmt) -> None:
        """The ids of this CTA have been bound by :meth:`attribute`."""


def name_of_cta(ids: dict[Var, np.ndarray]) -> str:
    """A CTA in messages."""
    return "CTA " + ", ".join(f"{variable.name} = {int(value)}" for variable, value in ids.items())


def through_slot(evaluate: Running, statement: AttrStmt, body: Waits) -> Waits:
    """Give sums to another CTA when the last in that slot have been taken, or take what is there.

    So passes say which sums go where, before others make flags or mbarriers of that.
    """
    slot, gives = evaluate.integer(statement.value), str(statement.attr_key) == GIVEN
    event = f"the sums in slot {slot} to be {'taken' if gives else 'given'}"
    yield from wait_until(lambda: (slot in evaluate.given) != gives, event)
    yield from body
    (evaluate.given.add if gives else evaluate.given.remove)(slot)
    yield Signal()


#: What executes a statement; it gives the waits of statements that have others in them.
_STATEMENTS: dict[type, Callable[[Runner, Any], Waits | None]] = {
    AllocBuffer: Runner.allocate,
    AssertStmt: Runner.assertion,
    AttrStmt: Runner.attribute,
    Bind: Runner.bind,
    BufferStore: Runner.store,
    DeclBuffer: Runner.declare,
    Evaluate: Runner.expression,
    For: Runner.loop,
    IfThenElse: Runner.branch,
    ScopeIdDefStmt: Runner.scope_id,
    SeqStmt: Runner.sequence,
    TilePrimitiveCall: Runner.primitive,
    While: Runner.repeat,
}
