"""Typed views of the parts of an element-wise nest: loops, and the statements in the innermost.

The statements compute one element: :class:`ElementStore`, :class:`Binding` and
:class:`Guard`. Their values, indices and conditions are expressions of TIRx.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import Buffer, Stmt, Var

from warploom.tile import ir
from warploom.tile.scopes import TILE_SCOPES, is_global, is_tile
from warploom.tile.updates import read_update


@dataclass(frozen=True, eq=False)
class Part:
    """A statement in a nest.

    Attributes
    ----------
    raw : Stmt
        As TVM has it.
    """

    raw: Stmt


class ElementStore(Part):
    """``buffer[indices] = value``."""

    raw: tirx.BufferStore

    @property
    def buffer(self) -> Buffer:
        """The buffer that the statement stores to."""
        return self.raw.buffer

    @property
    def indices(self) -> Any:
        """Where the element is."""
        return self.raw.indices

    @property
    def value(self) -> Any:
        """The new value of the element."""
        return self.raw.value


class AtomicUpdate(ElementStore):
    """``wl.atomic_add(buffer[indices], value)``, and its like."""

    @property
    def name(self) -> str:
        """The update: ``"atomic_add"``, ``"atomic_max"`` or ``"atomic_min"``."""
        return read_update(self.raw)[0]

    @property
    def value(self) -> Any:
        """What the element is combined with."""
        return read_update(self.raw)[1]


class Binding(Part):
    """A variable of one iteration."""

    raw: tirx.Bind

    @property
    def variable(self) -> Var:
        """The variable that the binding defines."""
        return self.raw.var

    @property
    def value(self) -> Any:
        """The expression that the variable stands for."""
        return self.raw.value


@dataclass(frozen=True, eq=False)
class Guard(Part):
    """Statements of the iterations in which a condition holds.

    Attributes
    ----------
    parts : tuple of Part
        Those statements.
    otherwise : tuple of Part
        Statements of the other iterations; none in a nest of plain form
        (:mod:`warploom.lower.nests.forms`).
    """

    parts: tuple[Part, ...]
    otherwise: tuple[Part, ...]

    @property
    def condition(self) -> Any:
        """The condition that decides."""
        return self.raw.condition


def loops_of(raw: Stmt) -> tuple[tuple[tirx.For, ...], Stmt]:
    """Loops that contain nothing but each other, the outermost first, and the innermost body."""
    loops = []
    while isinstance(raw, tirx.For):
        loops.append(raw)
        raw = raw.body
    return tuple(loops), raw


def parts_of(statement: Stmt | None) -> tuple[Part, ...] | None:
    """A sequence of statements as those of a nest; None if one of them is something else."""
    parts: list[Part] = []
    for raw in () if statement is None else ir.flatten(statement):
        if isinstance(raw, tirx.BufferStore):
            parts.append((ElementStore if read_update(raw) is None else AtomicUpdate)(raw))
        elif isinstance(raw, tirx.Bind):
            parts.append(Binding(raw))
        elif isinstance(raw, tirx.IfThenElse):
            cases = parts_of(raw.then_case), parts_of(raw.else_case)
            if None in cases:
                return None
            parts.append(Guard(raw, *cases))
        else:
            return None
    return tuple(parts)


def stores_of(parts: Iterable[Part]) -> Iterator[ElementStore]:
    """All stores, those under conditions too."""
    for part in parts:
        if isinstance(part, Guard):
            yield from stores_of((*part.parts, *part.otherwise))
        elif isinstance(part, ElementStore):
            yield part


def is_plain(parts: Iterable[Part]) -> bool:
    """Whether no condition has another case."""
    guards = [guard for guard in parts if isinstance(guard, Guard)]
    return all(not guard.otherwise and is_plain(guard.parts) for guard in guards)


def repeats_nest(loops: Sequence[tirx.For], parts: Iterable[Part]) -> bool:
    """Whether the outermost of several loops is no part of a nest, but repeats the nest in it.

    Its variable then has no place in the indices of some store: each iteration stores the same
    elements again, so that they run one after the other. A variable that is an index of a tile in
    registers is none of them: threads have their elements by number, and such sums over columns are
    reductions.
    """
    if len(loops) < 2 or _is_one(loops[0].extent):
        return False
    parts = tuple(parts)
    depends = _depending_on(loops[0].loop_var, parts)
    return _stores_again(parts, depends) and not _takes_registers(parts, depends)


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


def _depending_on(variable: Var, parts: Iterable[Part]) -> set[Var]:
    """A variable, and those that are bound to values with it."""
    depends = {variable}

    def visit(some: Iterable[Part]) -> None:
        for part in some:
            if isinstance(part, Guard):
                visit((*part.parts, *part.otherwise))
            elif isinstance(part, Binding) and ir.uses(part.value) & depends:
                depends.add(part.variable)

    visit(parts)
    return depends


def _stores_again(parts: Iterable[Part], depends: set[Var]) -> bool:
    for part in parts:
        if isinstance(part, Guard):
            inner = (*part.parts, *part.otherwise)
            if not ir.uses(part.condition) & depends and _stores_again(inner, depends):
                return True
        elif isinstance(part, AtomicUpdate):  # iterations may update one element
            continue
        elif isinstance(part, ElementStore) and not any(
            ir.uses(index) & depends for index in part.indices
        ):
            return True
    return False


def _takes_registers(parts: Iterable[Part], depends: set[Var]) -> bool:
    """Whether an element of a tile in registers is chosen by one of the variables."""
    found = False

    def visit(load: TensorLoad) -> None:
        nonlocal found
        if ir.is_buffer(load.source) and load.source.scope() in (*TILE_SCOPES, "tmem"):
            found |= any(ir.uses(index) & depends for index in load.indices)

    for part in parts:
        tvm_ffi.structural_walk(part.raw, (TensorLoad, visit))
    return found or any(
        store.buffer.scope() in (*TILE_SCOPES, "tmem")
        and any(ir.uses(index) & depends for index in store.indices)
        for store in stores_of(parts)
    )


def read_nest(raw: Stmt) -> tuple[tuple[tirx.For, ...], tuple[Part, ...]] | None:
    """Loops, or none, and the stores of single elements in them; None if it is no nest."""
    loops, body = loops_of(raw)
    parts = parts_of(body)
    if parts is None or not is_plain(parts) or repeats_nest(loops, parts):
        return None
    makes = any(
        is_tile(store.buffer) or (loops and is_global(store.buffer)) for store in stores_of(parts)
    )
    return (loops, parts) if makes else None
