"""Typed views of the statements of a tile program.

:func:`view` tells the kind of a TIRx statement, in one place and once; the view has its parts as
fields, its effects, and the statements in it as blocks. Passes ask views with ``match`` and build
TIRx statements with :mod:`warploom.tile.ir`::

    match statement:
        case Load(tile=tile):
            ...
        case Loop(pipelined=True, body=body):
            ...

The notes of passes about a statement stand in the program, as an attribute or a loop's
annotation, and is a view here too: :class:`SliceStep`, :class:`First`, :class:`Orchestrated`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from tvm import tirx
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir
from warploom.tile.annotations import (
    DYNAMIC,
    FIRST,
    GIVEN,
    MBAR,
    ORCHESTRATED,
    PING_PONG,
    PIPELINED,
    SLICE_STEP,
    STAGES,
    TAKEN,
    TILES,
    Tiles,
)
from warploom.tile.effects import REDUCTIONS
from warploom.tile.leaves import (
    Allocation,
    BarrierOperation,
    Block,
    Copy,
    Gather,
    Load,
    Mma,
    Nest,
    Primitive,
    Reduction,
    Scalar,
    Scatter,
    Statement,
    Store,
)
from warploom.tile.mbarriers import INITIALISED, LOADING, read_operation
from warploom.tile.nest import Part, read_nest
from warploom.tile.primitives import op_name
from warploom.tile.scopes import is_global, is_shared, is_tile
from warploom.tile_primitives import GATHER, SCATTER


class ForLoader(Statement):
    """Statements for the thread that loads; the author handles their barriers.

    The contents of ``wl.loading()``, a load with ``mbar=``, or the announcement of bytes.
    """

    @property
    def copies(self) -> bool:
        """Whether it is a load itself."""
        return isinstance(self.raw, TilePrimitiveCall)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block(body) for body in ir.children(self.raw))


class _WithBody(Statement):
    raw: tirx.For | tirx.While | tirx.AttrStmt

    @cached_property
    def body(self) -> Block:
        """Its statements."""
        return block(self.raw.body)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.body,)


class Loop(_WithBody):
    """A loop that all threads take alike."""

    raw: tirx.For

    @property
    def var(self) -> Var:
        """The loop variable."""
        return self.raw.loop_var

    @property
    def start(self) -> Any:
        """The first value of the variable."""
        return self.raw.min

    @property
    def extent(self) -> Any:
        """How many iterations there are."""
        return self.raw.extent

    @property
    def has_iterations(self) -> bool:
        """Whether it is known that there is at least one."""
        return isinstance(self.extent, tirx.IntImm) and int(self.extent) > 0

    @property
    def pipelined(self) -> bool:
        """Whether its loads run ahead."""
        return PIPELINED in self.raw.annotations

    @property
    def stages(self) -> int | None:
        """Iterations that its loads run ahead, where the author says so."""
        annotation = self.raw.annotations.get(STAGES)
        return None if annotation is None else int(annotation)

    @property
    def over_tiles(self) -> bool:
        """Whether its iterations are the tiles of a CTA."""
        return TILES in self.raw.annotations

    @cached_property
    def tiles(self) -> Tiles | None:
        """How a CTA finds its tiles, if they are the iterations; None if they are not."""
        if not self.over_tiles:
            return None
        annotation = self.raw.annotations[TILES]
        scalars = {
            scalar.variable.name: scalar.variable
            for scalar in reversed(self.body) if isinstance(scalar, Scalar) and scalar.allocates
        }  # fmt: skip
        cluster = tuple(
            (scalars[str(name)], int(ctas)) for name, ctas in annotation["cluster"].items()
        )
        stores = str(annotation["stores"])
        return Tiles(cluster, scalars[stores][0] if stores else None)

    @property
    def dynamic(self) -> bool:
        """Whether a scheduler hands out its iterations as the kernel runs."""
        return DYNAMIC in self.raw.annotations

    @property
    def ping_pong(self) -> bool:
        """Whether two warpgroups execute the iterations in ping-pong, each every other one."""
        return PING_PONG in self.raw.annotations


class Branch(Statement):
    """A branch that all threads take alike."""

    raw: tirx.IfThenElse

    @property
    def condition(self) -> Any:
        """The condition that decides."""
        return self.raw.condition

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Statements for when the condition holds, and for when it does not, if there are any."""
        return tuple(block(body) for body in ir.children(self.raw))


class While(_WithBody):
    """A loop that ends when a condition does not hold."""

    raw: tirx.While

    @property
    def condition(self) -> Any:
        """The condition under which it goes on."""
        return self.raw.condition


class Marked(_WithBody):
    """Statements with an attribute."""

    raw: tirx.AttrStmt


class SliceStep(Marked):
    """A step of slice-K, which one of ``count`` warpgroups executes."""

    @property
    def count(self) -> Any:
        """How many warpgroups share the steps."""
        return self.raw.value


class First(Marked):
    """Statements that the first warpgroup executes."""


class Orchestrated(Marked):
    """Statements that bring their own synchronisation."""


class Initialised(Marked):
    """Statements that initialise the mbarriers of ``wl.alloc_barrier``."""


class _OfSlot(Marked):
    @property
    def slot(self) -> Any:
        """The number of the slot."""
        return self.raw.value


class Given(_OfSlot):
    """Copies of sums to a slot, for another CTA."""


class Taken(_OfSlot):
    """Nests that add the sums of a slot, which another CTA has computed."""


class Instruction(Statement):
    """Any other statement: a call for its effect."""


_MARKED = {
    SLICE_STEP: SliceStep, FIRST: First, ORCHESTRATED: Orchestrated, INITIALISED: Initialised,
    GIVEN: Given, TAKEN: Taken,
}  # fmt: skip
_COPIES = ("copy", "copy_async")


def view(raw: Stmt) -> Statement:
    """The view of a statement, which tells its kind."""
    if isinstance(raw, TilePrimitiveCall):
        return _view_of_primitive(raw)
    if isinstance(raw, tirx.AttrStmt):
        if raw.attr_key == LOADING:
            return ForLoader(raw)
        return _MARKED.get(str(raw.attr_key), Marked)(raw)
    if isinstance(raw, tirx.DeclBuffer):
        return Allocation(raw)
    if isinstance(raw, tirx.AllocBuffer):
        return (Scalar if _is_scalar(raw.buffer) else Allocation)(raw)
    if isinstance(raw, tirx.Bind):
        return Scalar(raw)
    nest = read_nest(raw)
    if nest is not None:
        return Nest(raw, *nest)
    if isinstance(raw, tirx.BufferStore):
        return (Scalar if _is_scalar(raw.buffer) else Instruction)(raw)
    if isinstance(raw, tirx.For):
        return Loop(raw)
    if isinstance(raw, tirx.IfThenElse):
        return Branch(raw)
    if isinstance(raw, tirx.While):
        return While(raw)
    operation = read_operation(raw)
    if operation is None:
        return Instruction(raw)
    return ForLoader(raw) if operation.kind == "expect" else BarrierOperation(raw, operation)


def _is_scalar(buffer: Buffer) -> bool:
    return buffer.scope() == "local" and not is_tile(buffer)


def _view_of_primitive(raw: TilePrimitiveCall) -> Statement:
    name = op_name(raw)
    if name == "gemm_async":
        return Mma(raw)
    if name in REDUCTIONS:
        return Reduction(raw)
    if name in (GATHER, SCATTER):
        return (Gather if name == GATHER else Scatter)(raw)
    if name not in _COPIES:
        return Primitive(raw)
    to, source = raw.args[0].source, raw.args[1].source
    if is_shared(to) and is_global(source):
        return (ForLoader if MBAR in raw.config else Load)(raw)
    held = is_shared(source) or source.scope() in ("local", "accumulator")
    return (Store if is_global(to) and held else Copy)(raw)


def block(statements: Stmt | Iterable[Stmt]) -> Block:
    """The statements of a sequence."""
    given = [statements] if isinstance(statements, Stmt) else statements
    return tuple(view(statement) for part in given for statement in ir.flatten(part))


def walk(statements: Block) -> Iterator[Statement]:
    """All statements, at any depth, each before those in it."""
    for statement in statements:
        yield statement
        for inner in statement.blocks:
            yield from walk(inner)


def raws(statements: Iterable[Statement | Part]) -> list[Stmt]:
    """Statements as TVM has them."""
    return [statement.raw for statement in statements]
