"""The statements of a tile program as its author wrote them, with the loops and branches around.

What lints ask: who reads a buffer, who writes it, in which loop, and what changes in that loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, PrimFunc, Stmt, Var
from tvm.tirx.exec_scope import _SCOPE_BINDING_TO_PARENT_CUR as _BINDINGS
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.language.printing import read_print
from warploom.tile import ir
from warploom.tile.hints import DEVICE_ENTRY

#: Primitives whose last argument says whether they add to what they write.
ACCUMULATING = ("gemm_async", "sum", "max", "min")


@dataclass(frozen=True)
class Leaf:
    """A statement without others in it.

    Attributes
    ----------
    statement : Stmt
    path : tuple of Stmt
        Loops and branches around it, the outermost first.
    reads, writes : frozenset of Buffer
        A statement that is no store and no tile primitive does both with all that it names.
    """

    statement: Stmt
    path: tuple[Stmt, ...]
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    @property
    def name(self) -> str:
        """Of a tile primitive; empty for another statement."""
        one = self.statement
        return ir.op_name(one) if isinstance(one, TilePrimitiveCall) else ""

    @property
    def loops(self) -> list[tirx.For]:
        """The loops around it, the outermost first."""
        return [one for one in self.path if isinstance(one, tirx.For)]

    def is_in(self, outer: Stmt) -> bool:
        """Whether a loop or branch is around it."""
        return any(one.same_as(outer) for one in self.path)

    def is_guarded_in(self, loop: tirx.For) -> bool:
        """Whether there is a branch between a loop and the statement."""
        at = next(i for i, one in enumerate(self.path) if one.same_as(loop))
        return any(isinstance(one, tirx.IfThenElse) for one in self.path[at:])

    @property
    def accumulate(self) -> Any:
        """Whether a product adds to what it writes: a bool or an expression."""
        value = self.statement.args[-1] if self.name in ACCUMULATING else False
        return bool(value.value) if isinstance(value, tirx.IntImm) else value


@dataclass
class Statements:
    """What a program consists of.

    Attributes
    ----------
    leaves : list of Leaf
        In the order of the program.
    loops : list of For
        Those that are no part of an element-wise nest, too.
    tiles : dict
        Each buffer that the program allocates -> its statement.
    grid : dict
        Each id of a CTA -> how many there are.
    values : dict
        Variables that are bound once -> what they stand for.
    by_hand : bool
        Whether the program tells threads apart, so that it is no plain tile program.
    """

    leaves: list[Leaf] = field(default_factory=list)
    loops: list[tirx.For] = field(default_factory=list)
    tiles: dict[Buffer, tirx.AllocBuffer] = field(default_factory=dict)
    grid: dict[Var, Any] = field(default_factory=dict)
    values: dict[Var, Any] = field(default_factory=dict)
    by_hand: bool = False

    def readers(self, buffer: Buffer) -> Iterator[Leaf]:
        """The statements that read a buffer."""
        return (leaf for leaf in self.leaves if buffer in leaf.reads)

    def writers(self, buffer: Buffer) -> Iterator[Leaf]:
        """The statements that write a buffer."""
        return (leaf for leaf in self.leaves if buffer in leaf.writes)

    def expanded(self, expression: Any) -> Any:
        """An expression without bound variables."""
        while (used := ir.uses(expression)) & self.values.keys():
            expression = ir.substitute(expression, {v: self.values[v] for v in used
                                                    if v in self.values})  # fmt: skip
        return expression

    def changes(self, loop: tirx.For) -> set[Var]:
        """Variables and buffers that differ between iterations of a loop."""
        changed = {loop.loop_var}
        for leaf in self.leaves:
            if leaf.is_in(loop):
                changed |= leaf.writes | {one.loop_var for one in leaf.loops
                                          if leaf.path.index(one) > leaf.path.index(loop)}
        return changed


def statements_of(func: PrimFunc) -> Statements:
    """Take the device part of a function apart."""
    found = Statements()

    def entry(one: tirx.AttrStmt) -> None:
        if one.attr_key == DEVICE_ENTRY:
            _collect(one.body, (), found)

    tvm_ffi.structural_walk(func.body, (tirx.AttrStmt, entry))
    return found


def _collect(statement: Stmt, path: tuple[Stmt, ...], found: Statements) -> None:
    for one in ir.flatten(statement):
        if isinstance(one, tirx.ScopeIdDefStmt):
            _define(getattr(one, "def"), found)
        elif isinstance(one, tirx.AllocBuffer):
            found.tiles[one.buffer] = one
        elif isinstance(one, tirx.Bind):
            found.values[one.var] = one.value
            found.leaves.append(_leaf(one, path))
        elif isinstance(one, tirx.For):
            found.loops.append(one)
            found.leaves.append(_reading(one, path, one.min, one.extent))
            _collect(one.body, (*path, one), found)
        elif isinstance(one, tirx.IfThenElse):
            found.leaves.append(_reading(one, path, one.condition))
            for body in ir.children(one):
                _collect(body, (*path, one), found)
        elif isinstance(one, (tirx.AttrStmt, tirx.While)):
            found.leaves.append(_reading(one, path, getattr(one, "value", None)))
            _collect(one.body, path, found)
        else:
            found.leaves.append(_leaf(one, path))


def _define(definition: Any, found: Statements) -> None:
    if _BINDINGS[int(definition.scope)] != ("kernel", "cta"):
        found.by_hand = True
        return
    found.grid |= dict(zip(definition.def_ids, definition.extents or (), strict=False))


def _leaf(one: Stmt, path: tuple[Stmt, ...]) -> Leaf:
    if isinstance(one, tirx.BufferStore):
        return Leaf(one, path, _buffers(one.value, *one.indices), frozenset({one.buffer}))
    if isinstance(one, tirx.Bind) or read_print(one) is not None:
        return _reading(one, path, one.value)
    if not isinstance(one, TilePrimitiveCall):
        touched = _buffers(one)
        return Leaf(one, path, touched, touched)
    first, *rest = one.args
    reads = _buffers(*rest, *one.config.values())
    writes: frozenset[Buffer] = frozenset()
    if isinstance(first, TensorRegion):
        reads |= _buffers(*(part.min for part in first.region))
        writes = frozenset({first.source})
    return Leaf(one, path, reads, writes)


def _reading(one: Stmt, path: tuple[Stmt, ...], *expressions: Any) -> Leaf:
    return Leaf(one, path, _buffers(*expressions), frozenset())


def _buffers(*nodes: Any) -> frozenset[Buffer]:
    found: set[Any] = set()
    for node in nodes:
        if isinstance(node, TensorRegion):
            found.add(node.source)
            found |= _buffers(*(part.min for part in node.region))
        elif isinstance(node, tvm_ffi.Object):
            found |= {one for one in ir.uses(node) if ir.is_buffer(one)}
    return frozenset(found)
