"""Writes nests in the one form that later passes know.

* Loops count from 0 in steps of 1. A nest without iterations is no statement.
* Loops count all dimensions of a tile in registers that is stored.
* An ``if`` has no ``else``: its statements become an ``if`` of their own.
* An index that is read from memory may lie outside of a shared tile, where the language says that
  reads give 0 and stores are dropped: both are guarded. (Accesses to global memory are guarded
  where they are lowered, and all other indices are known to lie inside.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var

from warploom.errors import Decline
from warploom.language.rules import Known
from warploom.language.rules.nests import read_nest
from warploom.lower.nests.every_place import every_place_counted
from warploom.tile import ir
from warploom.tile.nest import AtomicUpdate, Binding, Guard, Part
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Statement, block
from warploom.tile.updates import updated


def plain_nests(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements with every nest in plain form.

    Raises
    ------
    Decline
        If the number of iterations of a nest is not known.
    """
    known = Known()
    known.read_scalars(ir.seq(body))
    return tuple(_statement(statement, known) for statement in block(body))


def _statement(statement: Statement, known: Known) -> Stmt:
    nest = read_nest(statement.raw) if isinstance(statement.raw, tirx.For) else None
    if nest is None:
        return statement.with_each(lambda inner: _statement(inner, known))
    counted = [_from_zero(loop) for loop in nest.loops]
    if any(int(new.extent) <= 0 for new, _ in counted):
        return ir.seq([])
    places = {
        loop.loop_var: place
        for loop, (new, place) in zip(nest.loops, counted, strict=True)
        if not new.same_as(loop)
    }
    inner = _elements(nest.parts, known)
    if not places and _same(inner, nest.parts):
        return every_place_counted(statement.raw)
    inner = [ir.substitute(new, places) if places else new for new in inner]
    for loop, _ in reversed(counted):
        inner = [ir.with_body(loop, inner)]
    return every_place_counted(inner[0])


def _same(new: Sequence[Stmt], old: Sequence[Part]) -> bool:
    return len(new) == len(old) and all(a.same_as(b.raw) for a, b in zip(new, old, strict=True))


def _from_zero(loop: tirx.For) -> tuple[tirx.For, Any]:
    """A loop that counts from 0 in steps of 1, and the value of the old variable in it."""
    if not isinstance(loop.extent, tirx.IntImm):
        raise Decline(
            f"The nest over {loop.loop_var.name} has {loop.extent} iterations, which only the "
            "launch knows; let it count a constant number, and guard elements with "
            "T.if_then_else or `if`."
        )
    step = 1 if loop.step is None else loop.step
    if ir.is_constant(loop.min, 0) and (loop.step is None or ir.is_constant(loop.step, 1)):
        return loop, loop.loop_var
    counter = Var(loop.loop_var.name, loop.loop_var.ty.dtype)
    extent = -(-int(loop.extent) // int(step))
    new = tirx.For(
        counter, 0, extent, loop.kind, loop.body, loop.thread_binding, loop.annotations,
        None, loop.span,
    )  # fmt: skip
    return new, loop.min + counter * step if int(step) != 1 else loop.min + counter


def _elements(parts: Sequence[Part], known: Known) -> list[Stmt]:
    """The rewritten statements of a nest."""
    return [new for part in parts for new in _element(part, known)]


def _element(part: Part, known: Known) -> list[Stmt]:
    raw, span = part.raw, part.raw.span
    if isinstance(part, Guard):
        condition = _guarded(part.condition, known)
        cases = [_elements(case, known) for case in (part.parts, part.otherwise)]
        same = condition.same_as(part.condition) and not part.otherwise
        if same and _same(cases[0], part.parts):
            return [raw]
        conditions = (condition, tirx.Not(condition))
        return [
            tirx.IfThenElse(holds, ir.seq(case), None, span)
            for holds, case in zip(conditions, cases, strict=True) if case
        ]  # fmt: skip
    value = _guarded(part.value, known)
    if isinstance(part, Binding):
        return [raw if value.same_as(part.value) else tirx.Bind(part.variable, value, span)]
    inside = _inside(part.buffer, part.indices, known)
    if inside is None and value.same_as(part.value):
        return [raw]
    if isinstance(part, AtomicUpdate):
        return [ir.when(True if inside is None else inside, [updated(raw, value)])]
    store = tirx.BufferStore(part.buffer, value, part.indices, span)
    return [store if inside is None else tirx.IfThenElse(inside, store, None, span)]


def _guarded(expression: Any, known: Known) -> Any:
    """An expression whose reads of shared tiles give 0 outside."""

    def load(node: TensorLoad) -> Any:
        inside = _inside(node.source, node.indices, known) if ir.is_buffer(node.source) else None
        if inside is None:
            return node
        return T.if_then_else(inside, node, tirx.const(0, str(node.ty.dtype)))

    if not isinstance(expression, tvm_ffi.Object):
        return expression
    return tvm_ffi.structural_map(expression, (TensorLoad, load), order="post")


def _inside(buffer: Any, indices: Any, known: Known) -> Any:
    """Whether indices of a shared tile that are read from memory lie inside; None if none is."""
    if not is_shared(buffer):
        return None
    inside = None
    for index, extent in zip(indices, buffer.shape, strict=True):
        if known.depends_on_memory(index):
            here = T.And(index >= 0, index < extent)
            inside = here if inside is None else T.And(inside, here)
    return inside
