"""Loops of copies, each of some rows of a tile: pages of a KV cache, gathered and scattered rows.

Loads of whole swizzle atoms of rows are written one after the other, and go by TMA into one stage.
So are loads of single rows of a matrix for MMAs of Blackwell, where TMA gathers four at a time. On
Hopper loads of fewer rows are a ``gather``, which warps that load carry out
(:mod:`warploom.lower.passes.row_copies`). Other copies of fewer rows, and those of tiles in
registers, are one nest over all rows of the tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Stmt, Var

from warploom.layout.smem_matrix import ATOM_ROWS
from warploom.lower.analysis.tma_regions import why_not_tma
from warploom.lower.passes.row_copies import (
    as_loop,
    as_one,
    of_rows,
    why_by_elements,
    why_not_ahead,
    with_values,
)
from warploom.ops.copy_gather import GATHERED
from warploom.target import TMA, Swizzle
from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.scopes import TILE_SCOPES, is_global, is_shared, is_tile
from warploom.tile.statement import Block, Copy, Load, Loop, Scalar, Statement, block

#: Copies of a loop that are written one after the other, at most.
MOST_COPIES = 64
#: The same of rows that TMA gathers, four at a time.
MOST_ROWS = 256


@dataclass(frozen=True)
class RowCopies:
    """What an architecture does about rows that have an index each.

    Attributes
    ----------
    in_fours : bool
        Whether TMA gathers rows of a matrix, four at a time.
    ahead : bool
        Whether warps that load do so, by ``gather``.
    """

    in_fours: bool = False
    ahead: bool = False


def copy_loops(
    body: tuple[Stmt, ...], way: RowCopies | None = None
) -> tuple[tuple[Stmt, ...], list[str]]:
    """The statements with such loops rewritten, at any depth, and what was decided.

    Parameters
    ----------
    way : RowCopies, optional
        Without it threads that compute copy single rows.
    """
    work = _Work(way or RowCopies(), block(body), [])
    return tuple(work.statement(one, work.program) for one in work.program), work.decided


@dataclass(frozen=True)
class _Work:
    way: RowCopies
    program: Block
    decided: list[str]

    def statement(self, statement: Statement, siblings: Block) -> Stmt:
        """A statement of a block, rewritten."""
        if of_rows(statement.raw):
            (loop,) = block([as_loop(statement.raw)])
            return self.loop(loop, statement.raw, siblings) or loop.raw
        if isinstance(statement, Loop) and not statement.pipelined:
            made = self.loop(statement, statement.raw, siblings)
            if made is not None:
                return made
        return statement.with_each(
            lambda inner: self.statement(
                inner, next(own for own in statement.blocks if any(one is inner for one in own))
            )
        )

    def loop(self, loop: Loop, author: Stmt, siblings: Block) -> Stmt | None:
        """What copies of a loop become; None if it has others. ``author`` is its statement."""
        if _copies_of(loop) is None:
            return None
        loop = with_values(loop)
        copies = _copies_of(loop)
        if not all(isinstance(copy, Load) for copy in copies):
            scatters = self._scatters(loop, copies)
            return _as_nests(loop, copies) if scatters is None else ir.seq(scatters)
        if all(_whole_atoms(loop, copy) for copy in copies):
            few = int(loop.extent) * len(copies) <= MOST_COPIES
            return ir.seq(_one_after_the_other(loop)) if few else loop.raw
        if self.way.in_fours and all(_are_gathered(loop, copy) for copy in copies):
            return ir.seq(_one_after_the_other(loop))
        gathers = self._gathers(loop, copies, author, siblings) if self.way.ahead else None
        return _as_nests(loop, copies) if gathers is None else ir.seq(gathers)

    def _scatters(self, loop: Loop, copies: list[Copy | Load]) -> list[Stmt] | None:
        """A scatter for each copy; None if elements of one are stored where threads hold them."""
        table, made = _values(loop), []
        for copy in copies:
            rows = _rows(loop, copy.source) if is_global(copy.to.source) else None
            call = None
            if table is not None and rows is not None:
                call = as_one(loop, copy, table, rows)
            if call is None:
                return None
            (scatter,) = block([call])
            reason = why_by_elements(scatter, self.program, self.way.in_fours)
            if reason is not None:
                self.decided.append(
                    f"rows of {scatter.source.source.name} into {scatter.to.source.name}: stored "
                    f"by element, as {reason}"
                )
                return None
            made.append(call)
        return made

    def _gathers(
        self, loop: Loop, loads: list[Load], author: Stmt, siblings: Block
    ) -> list[Stmt] | None:
        """A gather for each load; None if warps that load cannot do one, with the reason noted."""
        table, made = _values(loop), []
        for load in loads:
            rows = _rows(loop, load.to)
            call = None
            if table is not None and rows is not None:
                call = as_one(loop, load, table, rows)
            if call is None:
                return None
            (gather,) = block([call])
            reason = why_not_ahead(gather, author, siblings, self.program)
            if reason is not None:
                self.decided.append(
                    f"rows of {load.source.source.name} into {load.tile.name}: copied by threads "
                    f"that compute, as {reason}"
                )
                return None
            made.append(gather)
        for gather in made:
            self.decided.append(
                f"rows of {gather.source.source.name} into {gather.tile.name}: gathered ahead, "
                "16 bytes a thread (cp.async)"
            )
        return [gather.raw for gather in made]


def _copies_of(loop: Loop) -> list[Copy | Load] | None:
    """The copies of a loop that has constant iterations, and only scalars beside."""
    plain = isinstance(loop.extent, tirx.IntImm) and ir.is_constant(loop.start, 0)
    if not plain or (loop.raw.step is not None and not ir.is_constant(loop.raw.step, 1)):
        return None
    copies = [one for one in loop.body if isinstance(one, (Copy, Load))]
    others = [one for one in loop.body if not isinstance(one, (Copy, Load, Scalar))]
    return copies if copies and not others and int(loop.extent) > 0 else None


def _as_nests(loop: Loop, copies: list[Copy | Load]) -> Stmt:
    """A nest for each copy of a loop; the loop if one is none."""
    table = _values(loop)
    nests = [] if table is None else [_as_nest(loop, copy, table) for copy in copies]
    return ir.seq(nests) if nests and all(nest is not None for nest in nests) else loop.raw


def _one_after_the_other(loop: Loop) -> Iterator[Stmt]:
    for number in range(int(loop.extent)):
        table = {loop.var: tirx.const(number, loop.var.ty.dtype)}
        body = [ir.substitute(statement.raw, table) for statement in loop.body]
        for made in ir.renewed(body):
            (view,) = block([made])
            yield _at_constants(view) if isinstance(view, Load) else made


def _at_constants(load: Load) -> Stmt:
    """A load whose place in its tile is written as numbers."""
    analyzer = Analyzer()
    ranges = [(analyzer.simplify(start), extent) for start, extent in ir.ranges(load.to)]
    return tile_call(load.raw, ir.region(load.tile, *ranges), *load.raw.args[1:])


def _rows(loop: Loop, tile: TensorRegion) -> int | None:
    """Rows of a tile that each iteration copies, if all together are all rows of it, in order."""
    (start, rows), *others = ir.ranges(tile)
    sizes = [int(size) for size in tile.source.shape]
    whole = all(
        ir.is_constant(first, 0) and ir.is_constant(extent, size)
        for (first, extent), size in zip(others, sizes[1:], strict=True)
    )
    if not whole or not isinstance(rows, int | tirx.IntImm):
        return None
    in_order = Analyzer().can_prove(start == loop.var * int(rows))
    return int(rows) if in_order and int(rows) * int(loop.extent) == sizes[0] else None


def _whole_atoms(loop: Loop, load: Load) -> bool:
    rows = _rows(loop, load.to)
    return rows is not None and rows % ATOM_ROWS == 0


def _are_gathered(loop: Loop, load: Load) -> bool:
    """Whether TMA gathers the rows of a tile that a loop loads, each from a row of a matrix."""
    source, ranges = load.source.source, ir.ranges(load.source)
    bits = tvm.DataType(str(source.dtype)).bits
    uniform = not any(ir.is_buffer(used) and is_tile(used) for used in ir.uses(load.source))
    return (
        _rows(loop, load.to) == 1
        and int(loop.extent) % GATHERED == 0
        and int(loop.extent) <= MOST_ROWS
        and len(source.shape) == 2
        and ir.is_constant(ranges[0][1], 1)
        and isinstance(ranges[1][1], tirx.IntImm)
        and isinstance(source.shape[1], tirx.IntImm)
        # Four rows are a multiple of the alignment that TMA wants.
        and int(ranges[1][1]) * bits % (8 * Swizzle.B32.row_bytes) == 0
        and not load.raw.config
        and uniform
        and why_not_tma(load.source, "") is None
    )


def _values(loop: Loop) -> dict[Var, Any] | None:
    """What the scalars of an iteration stand for; None if it assigns to one."""
    table: dict[Var, Any] = {}
    for one in loop.body:
        if isinstance(one, Scalar):
            if not isinstance(one.raw, tirx.Bind):
                return None
            table[one.variable] = ir.substitute(one.raw.value, table)
    return table


def _as_nest(loop: Loop, copy: Copy | Load, table: dict[Var, Any]) -> Stmt | None:
    """One nest for a copy in all iterations; None if TMA does it, or rows are copied elsewhere."""
    to, source = copy.to, copy.source
    if is_global(to.source) == is_global(source.source):
        return None
    tile, tensor = (source, to) if is_global(to.source) else (to, source)
    held = tile.source.scope() in TILE_SCOPES
    rows = _rows(loop, tile)
    if rows is None or not (held or is_shared(tile.source)):
        return None
    if not (held or isinstance(copy, Load)) and _begins_for_tma(tile, rows):
        return None
    counters = ir.counters(len(tile.source.shape))
    number = counters[0] if rows == 1 else T.truncdiv(counters[0], rows)
    within = [T.truncmod(counters[0], rows)] if rows > 1 else [tirx.const(0, "int32")]
    places = _places(tensor, [*within, *counters[1:]])
    if places is None:
        return None
    analyzer = Analyzer()
    at = [
        analyzer.simplify(ir.substitute(ir.substitute(place, table), {loop.var: number}))
        for place in places
    ]
    element = tile.source[tuple(counters)]
    if is_global(to.source):
        value = element if to.source.dtype == tile.source.dtype else None
        store = None if value is None else tirx.BufferStore(to.source, value, at, copy.raw.span)
    else:
        there = tirx.all(*(
            T.And(index >= 0, index < size)
            for index, size in zip(at, source.source.shape, strict=True)
        ))  # fmt: skip
        zero = tirx.const(0, str(source.source.dtype))
        value = T.if_then_else(there, source.source[tuple(at)], zero)
        store = tirx.BufferStore(tile.source, value, counters, copy.raw.span)
    return None if store is None else ir.nest(counters, map(int, tile.source.shape), [store])


def _begins_for_tma(tile: TensorRegion, rows: int) -> bool:
    """Whether every so many rows of a shared tile begin where TMA reads from."""
    size = math.prod(map(int, tile.source.shape[1:])) * tvm.DataType(str(tile.source.dtype)).bits
    return rows * size % (8 * TMA.shared_align) == 0


def _places(tensor: TensorRegion, counters: list[Any]) -> list[Any] | None:
    """The indices of an element of the region, for places along the dimensions of the tile."""
    ranges = ir.ranges(tensor)
    free = [d for d, (_, extent) in enumerate(ranges) if not ir.is_constant(extent, 1)]
    along = [c for c in counters if not ir.is_constant(c, 0)]
    if len(free) != len(along):
        return None
    table = dict(zip(free, along, strict=True))
    return [start + table[d] if d in table else start for d, (start, _) in enumerate(ranges)]
