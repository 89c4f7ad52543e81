"""Rows that have an index each: threads copy them to a stage of a ring, 16 bytes at a time.

Neighbouring threads copy a row together, so that memory sees whole lines. A thread has the same
few rows in each iteration. It finds them once where they do not change, before the loop, and keeps
where they are in registers; where they change it reads the indices before it waits for the stage.

``cp.async`` writes through the generic proxy, as threads do, and is under way like TMA: each
thread arrives at ``full`` by ``cp.async.mbarrier.arrive.noinc``, when its copies are complete.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, ForKind, Stmt, Var

from warploom.lower.analysis.rings import Ring
from warploom.target import TMA
from warploom.tile import ir
from warploom.tile.scalar import ThreadScalar
from warploom.tile.scopes import is_global
from warploom.tile.statement import Gather

#: Threads that copy a row together, at most: they ask for a line of 128 bytes.
_OF_A_ROW = 8
#: What stands for a row outside of the tensor.
_NOWHERE = -1


@dataclass(frozen=True)
class Copiers:
    """Threads that copy rows together.

    Attributes
    ----------
    thread : Expr
        The number of a thread, below ``count``.
    count : int
    """

    thread: Any
    count: int


@dataclass(frozen=True)
class RowCopy:
    """Who copies which part of the rows of a gather.

    Attributes
    ----------
    gather : Gather
    copiers : Copiers
    """

    gather: Gather
    copiers: Copiers

    @property
    def rows(self) -> int:
        """Rows of the tile."""
        return int(ir.ranges(self.gather.to)[0][1])

    @property
    def unit(self) -> int:
        """Elements of 16 bytes."""
        bits = tvm.DataType(str(self.gather.tile.dtype)).bits
        return TMA.chunk_bytes * 8 // bits

    @property
    def chunks(self) -> int:
        """Pieces of 16 bytes of a row."""
        return int(ir.ranges(self.gather.to)[1][1]) // self.unit

    @property
    def together(self) -> int:
        """Threads that copy a row together."""
        return math.gcd(self.chunks, _OF_A_ROW)

    @property
    def stride(self) -> int:
        """Rows that all threads copy at a time."""
        return self.copiers.count // self.together

    @property
    def own(self) -> int:
        """Rows of a thread."""
        return -(-self.rows // self.stride)

    def row(self, number: int) -> Any:
        """One of a thread's rows of the tile."""
        return T.truncdiv(self.copiers.thread, self.together) + number * self.stride

    # -- where the rows are ----------------------------------------------------------------------

    def find(self, when: Any = True) -> tuple[list[ThreadScalar], list[Stmt]]:
        """Scalars that hold where a thread's rows are in the tensor, and their definitions.

        Parameters
        ----------
        when : Expr or bool
            Under which condition indices are read.
        """
        dtype = "int32" if self._fits_int32() else "int64"
        held, statements = [], []
        for number in range(self.own):
            scalar = ThreadScalar(f"{self.gather.tile.name}_row", dtype)
            held.append(scalar)
            bound, place = self._place(self.row(number), when, dtype)
            statements += [*bound, *scalar.define(place)]
        return held, statements

    def _fits_int32(self) -> bool:
        """Whether the number of a row of the tensor surely does."""
        sizes = self.gather.source.source.shape[:-1]
        if len(sizes) == 1:
            return True  # indices are int32 themselves, or rows below the extent
        known = all(isinstance(size, tirx.IntImm) for size in sizes)
        return known and math.prod(map(int, sizes)) < 2**31

    def _place(self, row: Any, when: Any, dtype: str) -> tuple[list[Stmt], Any]:
        """The number of a row of the tensor, its dimensions but the last taken as one.

        Statements before it bind its indices.
        """
        sizes = self.gather.source.source.shape[:-1]
        asked = [when] if when is not True else []
        asked += [row < self.rows] if self.rows % self.stride else []
        inside, bound, number = list(asked), [], tirx.const(0, dtype)
        for rows, size in zip(self.gather.rows, sizes, strict=True):
            index = guarded(rows.apply([row]), asked)
            place = Var(f"{self.gather.tile.name}_at", str(index.ty.dtype))
            bound.append(tirx.Bind(place, index))
            inside += [place >= 0, place < size]
            number = number * T.Cast(dtype, size) + T.Cast(dtype, place)
        nowhere = tirx.const(_NOWHERE, dtype)
        return bound, T.if_then_else(functools.reduce(T.And, inside), number, nowhere)

    # -- the copies ------------------------------------------------------------------------------

    def copy(self, ring: Ring, stage: Any, held: list[ThreadScalar]) -> list[Stmt]:
        """Copies of this thread's parts of rows to a stage; zeros for rows that are nowhere."""
        tensor = self.gather.source.source
        first, _ = ir.ranges(self.gather.source)[-1]
        matrix, statements = self._as_matrix(tensor)
        within = T.truncmod(self.copiers.thread, self.together) * self.unit
        across = self.chunks // self.together
        for number, scalar in enumerate(held):
            turn = Var("part", "int32")
            column = within + turn * (self.together * self.unit) if across > 1 else within
            row = self.row(number)
            to = ir.address(ring.tiles[self.gather.tile], stage, row, column)
            at = first + column
            there = tirx.all(scalar.value >= 0, at >= 0, at < tensor.shape[-1])
            copy = T.ptx["cp.async.cg.shared::cta.global"](
                to, ir.address(matrix, scalar.value, at), TMA.chunk_bytes,
                T.if_then_else(there, T.uint32(TMA.chunk_bytes), T.uint32(0)),
            )  # fmt: skip
            made: list[Stmt] = [ir.evaluate(copy)]
            if across > 1:
                made = [ir.loop(turn, across, made, kind=ForKind.UNROLLED)]
            if self.rows % self.stride and number == self.own - 1:
                made = [ir.when(row < self.rows, made)]
            statements += made
        span = self.gather.raw.span
        return [ir.written_at(statement, span) for statement in statements]

    def _as_matrix(self, tensor: Buffer) -> tuple[Buffer, list[Stmt]]:
        """The tensor with its dimensions but the last as one, and the declaration of that."""
        *sizes, columns = tensor.shape
        if len(sizes) == 1:
            return tensor, []
        rows: Any = functools.reduce(lambda a, b: a * b, sizes)
        view = tirx.decl_buffer(
            (rows, columns), str(tensor.dtype), f"{tensor.name}_rows", data=tensor.data
        )
        return view, [tirx.DeclBuffer(view, data=tensor.data)]


def guarded(index: Any, when: list[Any]) -> Any:
    """An index whose reads of global memory give 0 outside of their buffers, or if not wanted."""

    def guard(load: TensorLoad) -> Any:
        if not is_global(load.source):
            return load
        inside = tirx.all(*when, *(
            T.And(at >= 0, at < size)
            for at, size in zip(load.indices, load.source.shape, strict=True)
        ))  # fmt: skip
        return T.if_then_else(inside, load, tirx.const(0, str(load.ty.dtype)))

    return ir.map_nodes(ir.as_expr(index), {TensorLoad: guard}, {})
