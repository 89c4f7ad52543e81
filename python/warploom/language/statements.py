"""The statements of a tile program as its author wrote them, with the loops and branches around.

Facts for lints: the readers and writers of a buffer, their loops, and the changes in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, PrimFunc, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.language.exits import read_exit
from warploom.language.printing import read_print
from warploom.tile import ir
from warploom.tile.effects import accumulates
from warploom.tile.hints import DEVICE_ENTRY
from warploom.tile.ids import KINDS, parent_and_child
from warploom.tile.primitives import op_name


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
        call = self.statement
        return op_name(call) if isinstance(call, TilePrimitiveCall) else ""

    @property
    def loops(self) -> list[tirx.For]:
        """The loops around it, the outermost first."""
        return [loop for loop in self.path if isinstance(loop, tirx.For)]

    def is_in(self, outer: Stmt) -> bool:
        """Whether a loop or branch is around it."""
        return any(statement.same_as(outer) for statement in self.path)

    def is_guarded_in(self, loop: tirx.For) -> bool:
        """Whether there is a branch between a loop and the statement."""
        at = next(i for i, statement in enumerate(self.path) if statement.same_as(loop))
        return any(isinstance(statement, tirx.IfThenElse) for statement in self.path[at:])

    @property
    def accumulate(self) -> Any:
        """Whether a matmul adds to its destination: a bool or an expression."""
        call = self.statement
        return accumulates(call) if isinstance(call, TilePrimitiveCall) else False


@dataclass
class Statements:
    """The parts of a program.

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
        Variables that are bound once -> their values.
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
                changed |= leaf.writes | {
                    inner.loop_var
                    for inner in leaf.loops
                    if leaf.path.index(inner) > leaf.path.index(loop)
                }
        return changed


def statements_of(func: PrimFunc) -> Statements:
    """Take the device part of a function apart."""
    statements = Statements()

    def entry(attribute: tirx.AttrStmt) -> None:
        if attribute.attr_key == DEVICE_ENTRY:
            _collect(attribute.body, (), statements)

    tvm_ffi.structural_walk(func.body, (tirx.AttrStmt, entry))
    return statements


def _collect(statement: Stmt, path: tuple[Stmt, ...], statements: Statements) -> None:
    for node in ir.flatten(statement):
        if isinstance(node, tirx.ScopeIdDefStmt):
            _define(getattr(node, "def"), statements)
        elif isinstance(node, tirx.AllocBuffer):
            statements.tiles[node.buffer] = node
        elif isinstance(node, tirx.Bind):
            statements.values[node.var] = node.value
            statements.leaves.append(_leaf(node, path))
        elif isinstance(node, tirx.For):
            statements.loops.append(node)
            statements.leaves.append(_reading(node, path, node.min, node.extent))
            _collect(node.body, (*path, node), statements)
        elif isinstance(node, tirx.IfThenElse):
            statements.leaves.append(_reading(node, path, node.condition))
            for body in ir.children(node):
                _collect(body, (*path, node), statements)
        elif isinstance(node, (tirx.AttrStmt, tirx.While)):
            value = node.condition if isinstance(node, tirx.While) else node.value
            statements.leaves.append(_reading(node, path, value))
            _collect(node.body, path, statements)
        else:
            statements.leaves.append(_leaf(node, path))


def _define(definition: Any, statements: Statements) -> None:
    if parent_and_child(definition) != KINDS["cta"]:
        statements.by_hand = True
        return
    statements.grid |= dict(zip(definition.def_ids, definition.extents or (), strict=False))


def _leaf(statement: Stmt, path: tuple[Stmt, ...]) -> Leaf:
    if isinstance(statement, tirx.BufferStore):
        return Leaf(
            statement,
            path,
            _buffers(statement.value, *statement.indices),
            frozenset({statement.buffer}),
        )
    reads = read_print(statement) is not None or read_exit(statement) is not None
    if isinstance(statement, tirx.Bind) or reads:
        return _reading(statement, path, statement.value)
    if not isinstance(statement, TilePrimitiveCall):
        touched = _buffers(statement)
        return Leaf(statement, path, touched, touched)
    first, *rest = statement.args
    reads = _buffers(*rest, *statement.config.values())
    writes: frozenset[Buffer] = frozenset()
    if isinstance(first, TensorRegion):
        reads |= _buffers(*(part.min for part in first.region))
        writes = frozenset({first.source})
    return Leaf(statement, path, reads, writes)


def _reading(statement: Stmt, path: tuple[Stmt, ...], *expressions: Any) -> Leaf:
    return Leaf(statement, path, _buffers(*expressions), frozenset())


def _buffers(*nodes: Any) -> frozenset[Buffer]:
    buffers: set[Any] = set()
    for node in nodes:
        if isinstance(node, TensorRegion):
            buffers.add(node.source)
            buffers |= _buffers(*(part.min for part in node.region))
        elif isinstance(node, tvm_ffi.Object):
            buffers |= {use for use in ir.uses(node) if ir.is_buffer(use)}
    return frozenset(buffers)
