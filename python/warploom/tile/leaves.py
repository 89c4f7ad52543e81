"""Views of single statements: loads, MMAs, stores, nests, allocations, scalars, mbarriers.

:class:`Statement` is the base of all views; those of loops, branches and marked blocks are in
:mod:`warploom.tile.statement`, which also tells the kind of a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import LambdaExpr, TilePrimitiveCall

from warploom.tile import ir
from warploom.tile.effects import Effects, accumulates, effects, sparse_metadata
from warploom.tile.mbarriers import Operation
from warploom.tile.nest import ElementStore, Part, stores_of
from warploom.tile.primitives import is_scaled
from warploom.tile.scopes import is_shared

#: Option of MMAs that two CTAs of Blackwell execute together, as TVM calls it.
CTA_GROUP = "cta_group"


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement of a tile program.

    Attributes
    ----------
    raw : Stmt
        As TVM has it.
    """

    raw: Stmt

    @cached_property
    def effects(self) -> Effects:
        """Return the reads and writes of the statement, with all statements in it.

        Raises
        ------
        Decline
            If it contains a primitive that no pass knows.
        """
        return effects(self.raw)

    @property
    def allocates(self) -> bool:
        """Whether it brings a buffer of its own into being, a scalar's too."""
        return isinstance(self.raw, tirx.AllocBuffer)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of statements that it may execute."""
        return ()

    def with_blocks(self, *bodies: Iterable[Stmt]) -> Stmt:
        """The statement with other statements in its blocks."""
        if not self.blocks:
            return self.raw
        parts = iter(bodies)
        return ir.map_children(self.raw, lambda _: ir.seq(next(parts)))

    def with_each(self, change: Callable[[Statement], Stmt]) -> Stmt:
        """The statement with each statement of its blocks changed; itself where none is."""
        bodies = [[change(statement) for statement in inside] for inside in self.blocks]
        new = (statement for body in bodies for statement in body)
        old = (statement.raw for inside in self.blocks for statement in inside)
        same = all(a.same_as(b) for a, b in zip(new, old, strict=True))
        return self.raw if same else self.with_blocks(*bodies)


#: Statements that follow each other.
Block: TypeAlias = tuple[Statement, ...]


class _Primitive(Statement):
    raw: TilePrimitiveCall


class _Copying(_Primitive):
    @property
    def to(self) -> TensorRegion:
        """The shared tile that the load fills."""
        return self.raw.args[0]

    @property
    def source(self) -> TensorRegion:
        """The region of global memory that the load reads."""
        return self.raw.args[1]


class Load(_Copying):
    """``copy_async`` or ``copy`` from global to shared memory; passes see to its barriers."""

    @property
    def tile(self) -> Buffer:
        """The tile that it fills, or fills a part of."""
        return self.to.source

    @property
    def place(self) -> set[Var]:
        """Variables and buffers that say where it loads from, the tensor included."""
        return ir.uses(self.source)


class _OfRows(_Copying):
    @property
    def rows(self) -> tuple[LambdaExpr, ...]:
        """An index for each dimension of the tensor before the last, from the row of the tile."""
        return tuple(self.raw.args[2:])


class Gather(_OfRows, Load):
    """``gather``: a load of rows that have an index each; threads copy them."""

    @property
    def place(self) -> set[Var]:
        """Variables and buffers that say where it loads from, the tensor included."""
        return ir.uses(self.source) | self.place_of_rows

    @property
    def place_of_rows(self) -> set[Var]:
        """Those that say which rows it loads."""
        return set().union(*(ir.uses(row.pred) - set(row.vars) for row in self.rows))


class Mma(_Primitive):
    """``gemm_async``: D = A B, or D += A B; A may be sparse, or A and B have scales."""

    @property
    def d(self) -> Buffer:
        """The accumulator."""
        return self.raw.args[0].source

    @property
    def operands(self) -> tuple[TensorRegion, TensorRegion]:
        """A and B."""
        return tuple(self.raw.args[1:3])

    @property
    def metadata(self) -> TensorRegion | None:
        """Which elements of K a sparse A holds; None if A is dense."""
        return sparse_metadata(self.raw)

    @property
    def scales(self) -> tuple[TensorRegion, ...]:
        """Scales of blocks of A and of B; none where operands are multiplied as they are."""
        return tuple(self.raw.args[3:5]) if is_scaled(self.raw) else ()

    @property
    def transposed(self) -> tuple[bool, bool]:
        """Whether A and B are stored with K as their first dimension."""
        return bool(self.raw.args[-3]), bool(self.raw.args[-2])

    @property
    def accumulates(self) -> Any:
        """Whether it adds to D: a bool or an expression."""
        return accumulates(self.raw)

    @property
    def ctas(self) -> int:
        """CTAs that execute it together."""
        return int(self.raw.config.get(CTA_GROUP, 1))


class Copy(_Copying):
    """A copy that is no load: between tiles, or to global memory."""


class Store(Copy):
    """A copy from registers or shared memory to global memory."""

    @property
    def of_registers(self) -> bool:
        """Whether registers hold the tile; otherwise shared memory does."""
        return not is_shared(self.source.source)


class Scatter(_OfRows, Store):
    """``scatter``: a store of rows that have an index each; those outside are not stored."""


class Reduction(_Primitive):
    """``sum``, ``max`` or ``min`` of the rows of a tile."""


class Primitive(_Primitive):
    """Any other tile primitive; no pass knows its effects."""


@dataclass(frozen=True, eq=False)
class BarrierOperation(Statement):
    """An operation on an mbarrier of the author.

    Attributes
    ----------
    operation : Operation
    """

    operation: Operation


@dataclass(frozen=True, eq=False)
class Nest(Statement):
    """Loops around stores of single elements, into tiles or from tiles to global memory.

    Attributes
    ----------
    loops : tuple of For
        The outermost first.
    parts : tuple of Part
        The statements in the innermost: stores, bindings, and stores under a condition.
    """

    loops: tuple[tirx.For, ...]
    parts: tuple[Part, ...]

    @cached_property
    def stores(self) -> list[ElementStore]:
        """All its stores."""
        return list(stores_of(self.parts))


class Allocation(Statement):
    """The definition of a tile, or of an mbarrier, or a view of one."""

    raw: tirx.AllocBuffer | tirx.DeclBuffer

    @property
    def buffer(self) -> Buffer:
        """The variable that the statement defines."""
        return self.raw.buffer


class Scalar(Statement):
    """The definition or assignment of a variable that all threads have alike."""

    raw: tirx.Bind | tirx.AllocBuffer | tirx.BufferStore

    @property
    def variable(self) -> Var:
        """The variable that the statement defines or sets."""
        return self.raw.var if isinstance(self.raw, tirx.Bind) else self.raw.buffer

    @property
    def defines(self) -> bool:
        """Whether the variable does not exist before."""
        return not isinstance(self.raw, tirx.BufferStore)
