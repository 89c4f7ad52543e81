"""The rules of tile programs, checked before anything runs.

:func:`check_program` walks a program once, statement by statement. :func:`interpret` and every
lowering call it first, so that both refuse the same programs with the same sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm.ir import TensorRegion
from tvm.tirx import PrimFunc, is_buffer_var
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
from warploom.language.exits import read_exit, without_exits
from warploom.language.printing import read_print
from warploom.language.rules.calls import check_call
from warploom.language.rules.entries import scope_ids, viewed
from warploom.language.rules.expressions import require_expression
from warploom.language.rules.known import Known
from warploom.language.rules.lifetimes import Lifetimes
from warploom.language.rules.nests import Nest, loads, read_nest, text
from warploom.language.rules.places import at_place
from warploom.language.rules.prints import check_print
from warploom.language.rules.rectangles import check_nest
from warploom.language.rules.scopes import REGISTERS, require_allocation
from warploom.language.values.dtypes import numpy_dtype
from warploom.messages.blame import with_place
from warploom.tile import ir
from warploom.tile.assumption import read_assumption
from warploom.tile.entries import device_entries
from warploom.tile.hints import DEVICE_ENTRY, PREFIX
from warploom.tile.ids import KINDS, parent_and_child
from warploom.tile.mbarriers import read_operation
from warploom.tile.state import STATE


def check_program(func: PrimFunc) -> Known:
    """Check a tile program against the rules of the language.

    Returns
    -------
    Known
        The known values of its integers.

    Raises
    ------
    TileProgramError
        If a statement is no part of the language or breaks one of its rules, as far as that can be
        told before the program runs. Behind its sentence, the message has the author's line.
    """
    checker = _Checker(lowering=STATE in (func.attrs or {}))
    try:
        without_exits(func)
        checker.program(func)
    except TileProgramError as error:
        raise TileProgramError(with_place(str(error), func)) from None
    return checker.known


@dataclass
class _Checker:
    """Walks statements.

    ``certain`` is false where only the run tells whether they happen; ``lowering`` is true once
    passes have begun, which tell CTAs of a cluster apart; ``in_kernel`` is false for statements of
    the host.
    """

    known: Known = field(default_factory=Known)
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    certain: bool = True
    lowering: bool = False
    in_kernel: bool = False

    def program(self, func: PrimFunc) -> None:
        for parameter in func.params:
            if is_buffer_var(parameter):
                numpy_dtype(str(parameter.ty.dtype))
        if not device_entries(func):
            name = (func.attrs or {}).get("global_symbol", "the function")
            raise TileProgramError(
                f"{name} has no device entry; write T.device_entry() as the first statement of its "
                "kernel."
            )
        self.known.read_scalars(func.body)
        self.visit(func.body)
        unread = self.lifetimes.unread_result()
        if unread is not None:
            raise at_place(unread[1], unread[0])

    def visit(self, statement: Any) -> None:
        handler = _STATEMENTS.get(type(statement))
        try:
            if handler is None:
                raise TileProgramError(
                    f"{type(statement).__name__} is no statement of tile programs: "
                    f"{text(statement)}."
                )
            handler(self, statement)
        except TileProgramError as error:
            raise at_place(error, statement) from None

    def sequence(self, statement: SeqStmt) -> None:
        parts = ir.flatten(statement)
        for number, part in enumerate(parts):
            if isinstance(part, AllocBuffer):
                self.known.define(part, parts[number + 1 : number + 2])
            self.visit(part)

    def attribute(self, statement: AttrStmt) -> None:
        key = str(statement.attr_key)
        if key == DEVICE_ENTRY:
            self._ids(statement.body)
            self.in_kernel = True
            self.visit(statement.body)
            self.in_kernel = False
            return
        if not key.startswith((PREFIX, "tirx.")):
            raise TileProgramError(f"attribute {key!r} is no hint; those begin with {PREFIX!r}.")
        self.visit(statement.body)

    def _ids(self, body: Any) -> None:
        definitions = scope_ids(body)
        for definition in definitions:
            if self.lowering and parent_and_child(definition) == KINDS["cta_in_cluster"]:
                (rank,) = definition.def_ids
                self.known.ranges[rank] = (0, definition.extents[0], None)
                definitions = [other for other in definitions if other is not definition]
            elif definition.extents is None or parent_and_child(definition) != KINDS["cta"]:
                raise TileProgramError(
                    f"{', '.join(v.name for v in definition.def_ids)} is no T.cta_id with extents; "
                    "a tile program has no other ids, for it says nothing of threads."
                )
        if len(definitions) != 1:
            raise TileProgramError(
                f"the device function has {len(definitions)} statements T.cta_id; it must have 1."
            )
        (ids,) = definitions
        for var, extent in zip(ids.def_ids, ids.extents, strict=True):
            self.known.ranges[var] = (0, extent, None)

    def allocate(self, statement: AllocBuffer) -> None:
        buffer = statement.buffer
        scope, dtype = str(buffer.scope()), str(buffer.ty.dtype)
        numpy_dtype(dtype)
        shape = [self.known.constant(extent) for extent in buffer.ty.shape]
        require_allocation(buffer.name, scope, dtype, shape)
        # Elements of a tile that is allocated in a loop are undefined in each iteration.
        self.lifetimes.written.discard(buffer)

    def declare(self, statement: DeclBuffer) -> None:
        source, buffer = viewed(statement), statement.buffer
        kinds = [(str(tile.scope()), str(tile.ty.dtype)) for tile in (source, buffer)]
        if kinds[0] != kinds[1] or kinds[0][0] != "global":
            raise TileProgramError(
                f"{buffer.name}, of dtype {kinds[1][1]} in {kinds[1][0]} memory, is declared over "
                f"{source.name}, of dtype {kinds[0][1]} in {kinds[0][0]} memory; only buffers in "
                "global memory have another shape, and that of the same dtype."
            )

    def assertion(self, statement: AssertStmt) -> None:
        if self.in_kernel:
            raise TileProgramError(
                f"the kernel asserts {text(statement.condition)}, as only the host can, before "
                "T.device_entry(); in kernels, write wl.device_assert(condition, text, values)."
            )
        self._uniform([statement.condition])

    def bind(self, statement: Bind) -> None:
        self._uniform([statement.value])
        self.known.scalars[statement.var] = statement.value

    def store(self, statement: BufferStore) -> None:
        buffer = statement.buffer
        if str(buffer.scope()) != "local":
            raise TileProgramError(
                f"a single element of {buffer.name} in {buffer.scope()} memory is stored; write an "
                "elementwise nest, or a tile primitive."
            )
        self._uniform([statement.value])

    def loop(self, statement: For) -> None:
        nest = read_nest(statement)
        if nest is not None:
            self._nest(nest)
            return
        self._uniform([statement.min, statement.extent])
        self.known.ranges[statement.loop_var] = (
            statement.min, statement.extent, statement.step,
        )  # fmt: skip
        empty = not any(True for _ in self.known.worlds([statement.loop_var], first=True))
        self._within(not empty, statement.body)

    def _nest(self, nest: Nest) -> None:
        bounds = [e for loop in nest.loops for e in (loop.min, loop.extent, loop.step)]
        self._uniform([e for e in bounds if e is not None])
        for expression in check_nest(self.known, nest, self._touch):
            for load in loads(expression):
                self.lifetimes.reads(load.source, False)
        for store in nest.stores():
            self.lifetimes.writes(store.buffer)

    def _touch(self, buffer: Any, writes: bool, statement: Any) -> None:
        try:
            if writes:
                self.lifetimes.writes(buffer)
            else:
                self.lifetimes.reads(buffer, self.certain)
        except TileProgramError as error:
            raise at_place(error, statement) from None

    def branch(self, statement: IfThenElse) -> None:
        self._uniform([statement.condition])
        holds = self.known.truth(statement.condition)
        self._within(holds is True, statement.then_case)
        if statement.else_case is not None:
            self._within(holds is False, statement.else_case)

    def _within(self, certain: bool, body: Any) -> None:
        before, self.certain = self.certain, self.certain and certain
        self.visit(body)
        self.certain = before

    def primitive(self, statement: TilePrimitiveCall) -> None:
        for argument in statement.args:
            if isinstance(argument, TensorRegion):
                self._uniform([e for r in argument.region for e in (r.min, r.extent)])
        check_call(self.known, self.lifetimes, self.certain, statement)

    def expression(self, statement: Evaluate) -> None:
        printed = read_print(statement)
        if printed is not None:
            for load in check_print(self.known, printed):
                scope = str(load.source.scope())
                self.lifetimes.reads(load.source, self.certain and scope != "local")
        elif (ends := read_exit(statement)) is not None:
            self._uniform([ends])
        elif read_operation(statement) is None:
            assumed = read_assumption(statement)
            self._uniform([statement.value if assumed is None else assumed])

    def _uniform(self, expressions: Sequence[Any]) -> None:
        """Expressions whose value the whole CTA has: they read no tile in registers."""
        for expression in expressions:
            require_expression(expression)
            for load in loads(expression):
                scope = str(load.source.scope())
                if scope in REGISTERS:
                    raise TileProgramError(
                        f"{text(load)} reads {load.source.name}, in scope {scope}, outside of an "
                        "elementwise nest; only shared and global buffers have elements for the "
                        "whole CTA, so choose per element with T.if_then_else in a nest."
                    )
                self.lifetimes.reads(load.source, self.certain and scope != "local")

    def repeat(self, statement: While) -> None:
        self._uniform([statement.condition])
        if not ir.uses(statement.condition) & _written(statement.body):
            raise TileProgramError(
                f"nothing in the while loop changes its condition, {text(statement.condition)}, so "
                "it would never end; assign a scalar in it, or write `if`."
            )
        self._within(False, statement.body)

    def scope_id(self, statement: ScopeIdDefStmt) -> None:
        """The ids have been read by :meth:`attribute`."""


def _written(body: Any) -> set[Any]:
    """Buffers and scalars that a statement assigns."""
    written: set[Any] = set()

    def call(primitive: TilePrimitiveCall) -> None:
        written.add(primitive.args[0].source)

    stores = (BufferStore, lambda store: written.add(store.buffer))
    tvm_ffi.structural_walk(body, [stores, (TilePrimitiveCall, call)])
    return written


_STATEMENTS: dict[type, Callable[[_Checker, Any], None]] = {
    AllocBuffer: _Checker.allocate,
    AssertStmt: _Checker.assertion,
    AttrStmt: _Checker.attribute,
    Bind: _Checker.bind,
    BufferStore: _Checker.store,
    DeclBuffer: _Checker.declare,
    Evaluate: _Checker.expression,
    For: _Checker.loop,
    IfThenElse: _Checker.branch,
    ScopeIdDefStmt: _Checker.scope_id,
    SeqStmt: _Checker.sequence,
    TilePrimitiveCall: _Checker.primitive,
    While: _Checker.repeat,
}
