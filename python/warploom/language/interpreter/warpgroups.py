"""Programs that passes have given to warpgroups, before roles part: all go statement by statement.

Tiles in registers are then those of one warpgroup, which has storage of its own for them; shared
memory is common. Each statement is executed by one warpgroup after the other before the next
statement begins, or once, if it says nothing of warpgroups. That is what barriers, fences and waits
make sure of, which do nothing here. Of a warpgroup's threads the first speaks for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.tirx import Buffer, PrimFunc, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import TileProgramError
from warploom.language.interpreter.primitives import execute_primitive
from warploom.language.interpreter.running import Running
from warploom.language.interpreter.statements import Runner
from warploom.language.printing import read_print
from warploom.language.rules.entries import scope_ids
from warploom.language.rules.nests import read_nest
from warploom.language.rules.places import at_place
from warploom.tile import ir
from warploom.tile.annotations import FIRST, PING_PONG, PIPELINED, TURN
from warploom.tile.hints import DEVICE_ENTRY
from warploom.tile.ids import KINDS, parent_and_child
from warploom.tile.mbarriers import SCOPE as MBARRIER
from warploom.tile.mbarriers import read_operation
from warploom.tile.primitives import op_name
from warploom.tile.scopes import is_shared, is_tile
from warploom.tile.state import read_state

#: Intrinsics that order threads and engines, and compute nothing.
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


def run_in_step(func: PrimFunc, evaluate: Running, poison: bool) -> None:
    """Execute such a program, of which ``evaluate`` has the parameters."""
    body = _with_scopes(func.body)
    (warpgroups,) = (one for one in scope_ids(body) if _is_warpgroup(one))
    _InStep((evaluate,), poison, warpgroups.def_ids[0]).run(body)


def _with_scopes(body: tirx.Stmt) -> tirx.Stmt:
    """Statements whose tiles in registers have the scopes that the language knows again."""
    accumulators: set[Buffer] = set()
    tiles: list[Buffer] = []

    def note_mma(call: TilePrimitiveCall) -> None:
        if op_name(call) == "gemm_async":
            accumulators.add(call.args[0].source)

    def note_tile(allocation: tirx.AllocBuffer) -> None:
        if allocation.buffer.scope() == "local" and is_tile(allocation.buffer):
            tiles.append(allocation.buffer)

    callbacks = [(TilePrimitiveCall, note_mma), (tirx.AllocBuffer, note_tile)]
    tvm_ffi.structural_walk(body, callbacks)
    table = {
        tile: tirx.decl_buffer(
            tile.shape, str(tile.dtype), tile.name,
            scope="accumulator" if tile in accumulators else "fragment",
        )
        for tile in tiles
    }  # fmt: skip
    return ir.substitute(body, table)


@dataclass
class _InStep:
    """Executes statements for warpgroups; ``parts`` have the variables and buffers of each.

    Attributes
    ----------
    parts : tuple of Running
        One for each warpgroup that executes the statements; outside of the kernel one.
    poison : bool
        As of :func:`~warploom.language.interpreter.interpret`.
    number : Var
        The number of the warpgroup.
    step : int
        The iteration of the innermost pipelined loop, which says whose turn it is.
    """

    parts: tuple[Running, ...]
    poison: bool
    number: Var
    step: int = 0

    def run(self, statement: Any) -> None:
        if not self.parts:
            return
        try:
            execute = _STATEMENTS.get(type(statement))
            if execute is not None:
                execute(self, statement)
            else:
                self._each(statement)
        except TileProgramError as error:
            raise at_place(error, statement) from None

    def _each(self, statement: Any) -> None:
        """Execute a statement without blocks."""
        for part in self._running(statement):
            Runner(part, self.poison).run(statement)

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

    def _of(self, parts: Sequence[Running], statement: Any, step: int | None = None) -> None:
        replace(self, parts=tuple(parts), step=self.step if step is None else step).run(statement)

    # -- statements ----------------------------------------------------------------------------

    def sequence(self, statement: tirx.SeqStmt) -> None:
        for child in statement.seq:
            self.run(child)

    def attribute(self, statement: tirx.AttrStmt) -> None:
        key, body = str(statement.attr_key), statement.body
        if key == DEVICE_ENTRY:
            for parts in self._ctas(body):
                self._of(parts, body)
        elif key == FIRST:
            self._of(self.parts[:1], body)
        elif key == TURN:
            self._of([self.parts[self.step % int(statement.value)]], body)
        else:
            self.run(body)

    def _ctas(self, body: Any) -> Iterator[list[Running]]:
        """For every CTA the variables and buffers in scope of its warpgroups."""
        (outside,) = self.parts
        definitions = scope_ids(body)
        (warpgroups,) = filter(_is_warpgroup, definitions)
        threads = [id_ for id_ in definitions if parent_and_child(id_)[0] in _THREADS]
        for ids in Runner(outside, self.poison).grid(body):
            variables = {**outside.variables, **ids}
            # The first thread speaks for all.
            variables |= {var: np.asarray(0, "int32") for id_ in threads for var in id_.def_ids}
            yield [
                replace(
                    outside, buffers=dict(outside.buffers),
                    variables={**variables, self.number: np.asarray(number, "int32")},
                )
                for number in range(outside.integer(warpgroups.extents[0]))
            ]  # fmt: skip

    def allocate(self, statement: tirx.AllocBuffer) -> None:
        first, *rest = self.parts
        Runner(first, self.poison).run(statement)
        buffer = statement.buffer
        for part in rest:
            if is_shared(buffer) or buffer.scope() == MBARRIER:
                part.buffers[buffer] = first.buffers[buffer]
            else:
                Runner(part, self.poison).run(statement)

    def loop(self, statement: tirx.For) -> None:
        if read_nest(statement) is not None:
            self._each(statement)
            return
        dtype = str(statement.loop_var.ty.dtype)
        for number, value in enumerate(self.parts[0].iterations(statement)):
            for part in self.parts:
                part.variables[statement.loop_var] = np.asarray(value, dtype)
            whose = self.parts
            if PING_PONG in statement.annotations:
                whose = (self.parts[number % len(self.parts)],)
            step = number if PIPELINED in statement.annotations else self.step
            self._of(whose, statement.body, step)

    def branch(self, statement: tirx.IfThenElse) -> None:
        sides: dict[bool, list[Running]] = {True: [], False: []}
        for part in self.parts:
            sides[bool(part(statement.condition))].append(part)
        self._of(sides[True], statement.then_case)
        if statement.else_case is not None:
            self._of(sides[False], statement.else_case)

    def primitive(self, statement: TilePrimitiveCall) -> None:
        for part in self._running(statement):
            execute_primitive(part, statement, op_name(statement))

    def expression(self, statement: tirx.Evaluate) -> None:
        call = statement.value
        name = call.op.name if isinstance(call, Call) and isinstance(call.op, Op) else ""
        if read_operation(statement) is not None or read_print(statement) is not None:
            Runner(self.parts[0], self.poison).run(statement)
        elif not name.startswith(_ORDERING):
            self._each(statement)


_STATEMENTS: dict[type, Callable[[_InStep, Any], None]] = {
    tirx.AllocBuffer: _InStep.allocate,
    tirx.AttrStmt: _InStep.attribute,
    tirx.Evaluate: _InStep.expression,
    tirx.For: _InStep.loop,
    tirx.IfThenElse: _InStep.branch,
    tirx.SeqStmt: _InStep.sequence,
    TilePrimitiveCall: _InStep.primitive,
}
