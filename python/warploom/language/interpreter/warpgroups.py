"""Programs that passes have given to warpgroups, before roles part: all go statement by statement.

Tiles in registers are then those of one warpgroup, which has storage of its own for them; shared
memory is common. Each statement is executed by one warpgroup after the other before the next
statement begins, or once, if it says nothing of warpgroups. That is what barriers, fences and waits
make sure of, which do nothing here, but for those that wait for other CTAs. Of a warpgroup's
threads the first speaks for all; those of a kernel without warpgroups go one after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, PointerType
from tvm.tirx import PrimFunc, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import TileProgramError
from warploom.language.interpreter.instructions import (
    INSTRUCTIONS,
    SIGNALS,
    Cluster,
    bind_pointer,
    declare_at_pointer,
    poll,
    run_instruction,
    sets_register,
)
from warploom.language.interpreter.primitives import execute_primitive
from warploom.language.interpreter.running import Running
from warploom.language.interpreter.statements import Runner, name_of_cta, through_slot
from warploom.language.interpreter.waits import Signal, Waits, run_ctas
from warploom.language.printing import read_print
from warploom.language.rules.entries import scope_ids
from warploom.language.rules.nests import read_nest
from warploom.language.rules.places import at_place
from warploom.tile import ir
from warploom.tile.annotations import FIRST, GIVEN, PING_PONG, PIPELINED, SLICE_STEP, TAKEN
from warploom.tile.hints import DEVICE_ENTRY
from warploom.tile.ids import KINDS, parent_and_child
from warploom.tile.mbarriers import SCOPE as MBARRIER
from warploom.tile.mbarriers import read_operation
from warploom.tile.primitives import op_name
from warploom.tile.scopes import is_shared, is_tile
from warploom.tile.state import read_state

#: Intrinsics that order threads and engines; but for :data:`INSTRUCTIONS` they compute nothing.
_ORDERING = ("tirx.ptx.", "tirx.cuda.")
#: Scopes whose parts are fewer threads than a warpgroup.
_THREADS = ("warpgroup", "warp")


def has_warpgroups(func: PrimFunc) -> bool:
    """Whether passes have given the statements of a program to warpgroups.

    Raises
    ------
    TileProgramError
        If its roles have parted, so that no order of statements is left.
    """
    state = read_state(func)
    if state is None or state["by_hand"]:
        return False
    if state["roles"]:
        names = ", ".join(role.name for role in state["roles"])
        raise TileProgramError(
            f"the program has parted into roles ({names}), which wait for each other; run it on "
            "the emulator, or interpret the program before this pass."
        )
    return any(map(_is_warpgroup, scope_ids(func.body)))


def _is_warpgroup(definition: tirx.ScopeIdDef) -> bool:
    return parent_and_child(definition) == KINDS["warpgroup"]


def _is_thread(definition: tirx.ScopeIdDef) -> bool:
    return parent_and_child(definition) == ("cta", "thread")


def run_in_step(func: PrimFunc, evaluate: Running, poison: bool) -> None:
    """Execute such a program, of which ``evaluate`` has the parameters."""
    (warpgroups,) = (id_ for id_ in scope_ids(func.body) if _is_warpgroup(id_))
    together = bool(read_state(func)["threads"])
    program = _InStep((evaluate,), poison, warpgroups.def_ids[0], together)
    run_ctas([("the host", program.run(func.body))])


@dataclass
class _InStep:
    """Executes statements for warpgroups; ``parts`` have the variables and buffers of each.

    Attributes
    ----------
    parts : tuple of Running
        One for each warpgroup that executes the statements; outside of the kernel id_.
    poison : bool
        As of :func:`~warploom.language.interpreter.interpret`.
    number : Var
        The number of the warpgroup.
    together : bool
        Whether tiles in registers are spread over all warpgroups, so that the first speaks for all.
    step : int
        The iteration of the innermost pipelined loop, which says which warpgroup computes it.
    cluster : Cluster
        That of the CTA.
    """

    parts: tuple[Running, ...]
    poison: bool
    number: Var
    together: bool = False
    step: int = 0
    cluster: Cluster = field(default_factory=Cluster)

    def run(self, statement: Any) -> Waits:
        if not self.parts:
            return
        try:
            waits = _STATEMENTS.get(type(statement), _InStep.each)(self, statement)
            if waits is not None:
                yield from waits
        except TileProgramError as error:
            raise at_place(error, statement) from None

    def each(self, statement: Any) -> Waits:
        """Execute a statement without blocks."""
        for part in self._running(statement):
            yield from Runner(part, self.poison).run(statement)

    def _running(self, statement: Any) -> tuple[Running, ...]:
        """All warpgroups, or the first for a statement that says nothing of warpgroups."""
        return self.parts if self._differs(statement) else self.parts[:1]

    def _differs(self, statement: Any) -> bool:
        """Whether a statement names the warpgroup, or a buffer of which each has its own."""
        if isinstance(statement, (tirx.Bind, tirx.BufferStore, tirx.DeclBuffer)):
            return True
        variables: list[Var] = []
        tvm_ffi.structural_walk(statement, (Var, variables.append))
        return any(map(self.number.same_as, variables)) or any(
            ir.is_buffer(var) and is_tile(var) and not is_shared(var) for var in ir.uses(statement)
        )

    def _of(self, parts: Sequence[Running], statement: Any, step: int | None = None) -> Waits:
        step = self.step if step is None else step
        return replace(self, parts=tuple(parts), step=step).run(statement)

    # -- statements ----------------------------------------------------------------------------

    def sequence(self, statement: tirx.SeqStmt) -> Waits:
        for child in statement.seq:
            yield from self.run(child)

    def attribute(self, statement: tirx.AttrStmt) -> Waits | None:
        key, body = str(statement.attr_key), statement.body
        if key == DEVICE_ENTRY:
            has_warpgroups = any(map(_is_warpgroup, scope_ids(body)))
            return run_ctas(self._ctas(body) if has_warpgroups else self._threads(body))
        if key == FIRST:
            return self._of(self.parts[:1], body)
        if key == SLICE_STEP:
            return self._of([self.parts[self.step % int(statement.value)]], body)
        if key in (GIVEN, TAKEN):
            return through_slot(self.parts[0], statement, self.run(body))
        return self.run(body)

    def _ctas(self, body: Any) -> Iterator[tuple[str, Waits]]:
        """Every CTA, with what is in scope of its warpgroups.

        Those that others wait for have the lower numbers. They begin last, so that a wait that is
        missing shows.
        """
        (outside,), given, cluster = self.parts, set[int](), Cluster()
        definitions = scope_ids(body)
        (warpgroups,) = filter(_is_warpgroup, definitions)
        threads = [id_ for id_ in definitions if parent_and_child(id_)[0] in _THREADS]
        sizes = [
            outside.integer(id_.extents[0]) for id_ in definitions
            if parent_and_child(id_) == KINDS["cta_in_cluster"]
        ]  # fmt: skip
        ctas: list[tuple[str, Waits]] = []
        for number, ids in enumerate(Runner(outside, self.poison).grid(body)):
            variables = {**outside.variables, **ids}
            # The first thread speaks for all.
            variables |= {var: np.asarray(0, "int32") for id_ in threads for var in id_.def_ids}
            parts = tuple(
                replace(
                    outside, buffers=dict(outside.buffers), given=given, pointers={},
                    variables={**variables, self.number: np.asarray(warpgroup, "int32")},
                )
                for warpgroup in range(
                    1 if self.together else outside.integer(warpgroups.extents[0])
                )
            )  # fmt: skip
            if number % math.prod(sizes) == 0:
                cluster = Cluster(math.prod(sizes))
            cluster.buffers.append(parts[0].buffers)
            ctas.append((name_of_cta(ids), replace(self, parts=parts, cluster=cluster).run(body)))
        return reversed(ctas)

    def _threads(self, body: Any) -> Iterator[tuple[str, Waits]]:
        """Every thread of a kernel without warpgroups."""
        (outside,), (threads,) = self.parts, filter(_is_thread, scope_ids(body))
        extents = [range(outside.integer(extent)) for extent in threads.extents]
        for ids in Runner(outside, self.poison).grid(body):
            for place in itertools.product(*extents):
                values = (np.asarray(number, "int32") for number in place)
                here = {**ids, **dict(zip(threads.def_ids, values, strict=True))}
                variables = {**outside.variables, **here}
                part = replace(outside, variables=variables, buffers=dict(outside.buffers))
                yield name_of_cta(here), self._of([part], body)

    def allocate(self, statement: tirx.AllocBuffer) -> None:
        first, *rest = self.parts
        Runner(first, self.poison).allocate(statement)
        buffer = statement.buffer
        for part in rest:
            if is_shared(buffer) or buffer.scope() == MBARRIER:
                part.buffers[buffer] = first.buffers[buffer]
            else:
                Runner(part, self.poison).allocate(statement)

    def bind(self, statement: tirx.Bind) -> Waits | None:
        """Bind a value, or a pointer made of an address in another CTA."""
        if not isinstance(statement.var.ty, PointerType):
            return self.each(statement)
        for part in self.parts:
            bind_pointer(part, statement)
        return None

    def declare(self, statement: tirx.DeclBuffer) -> Waits | None:
        """Another shape of a buffer, or what lies where a pointer points to."""
        if statement.data not in self.parts[0].pointers:
            return self.each(statement)
        for part in self.parts:
            declare_at_pointer(part, statement)
        return None

    def loop(self, statement: tirx.For) -> Waits:
        if read_nest(statement) is not None:
            yield from self.each(statement)
            return
        dtype = str(statement.loop_var.ty.dtype)
        for number, value in enumerate(self.parts[0].iterations(statement)):
            for part in self.parts:
                part.variables[statement.loop_var] = np.asarray(value, dtype)
            whose = self.parts
            if PING_PONG in statement.annotations:
                whose = (self.parts[number % len(self.parts)],)
            step = number if PIPELINED in statement.annotations else self.step
            yield from self._of(whose, statement.body, step)

    def repeat(self, statement: tirx.While) -> Waits:
        """A loop of the author, which all warpgroups take alike, or one that waits for memory."""
        polled = (tirx.AllocBuffer, tirx.BufferStore, tirx.Evaluate)
        if all(isinstance(part, polled) for part in ir.flatten(statement.body)):
            for part in self.parts:
                yield from poll(part, statement)
            return
        while self.parts[0](statement.condition):
            yield from self._of(self.parts, statement.body)

    def branch(self, statement: tirx.IfThenElse) -> Waits:
        sides: dict[bool, list[Running]] = {True: [], False: []}
        for part in self.parts:
            sides[bool(part(statement.condition))].append(part)
        yield from self._of(sides[True], statement.then_case)
        if statement.else_case is not None:
            yield from self._of(sides[False], statement.else_case)

    def primitive(self, statement: TilePrimitiveCall) -> None:
        for part in self._running(statement):
            execute_primitive(part, statement, op_name(statement))

    def expression(self, statement: tirx.Evaluate) -> Waits:
        call = statement.value
        name = call.op.name if isinstance(call, Call) and isinstance(call.op, Op) else ""
        if name in INSTRUCTIONS:
            for part in self.parts if sets_register(call) else self._running(statement):
                yield from run_instruction(part, self.cluster, call) or ()
            if name in SIGNALS:
                yield Signal()
        elif read_operation(statement) is not None or read_print(statement) is not None:
            yield from Runner(self.parts[0], self.poison).run(statement)
        elif not name.startswith(_ORDERING):
            yield from self.each(statement)


_STATEMENTS: dict[type, Callable[[_InStep, Any], Waits | None]] = {
    tirx.AllocBuffer: _InStep.allocate,
    tirx.AttrStmt: _InStep.attribute,
    tirx.Bind: _InStep.bind,
    tirx.DeclBuffer: _InStep.declare,
    tirx.Evaluate: _InStep.expression,
    tirx.For: _InStep.loop,
    tirx.IfThenElse: _InStep.branch,
    tirx.SeqStmt: _InStep.sequence,
    tirx.While: _InStep.repeat,
    TilePrimitiveCall: _InStep.primitive,
}
