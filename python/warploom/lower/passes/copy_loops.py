"""Loops of copies, each of some rows of a tile: pages of a KV cache, gathered and scattered rows.

Loads of whole swizzle atoms of rows are written one after the other, and go by TMA into one stage.
So are loads of single rows of a matrix for MMAs of Blackwell, where TMA gathers four at a time.
Copies of fewer rows, and those of tiles in registers, are one nest over all rows of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Stmt, Var

from warploom.layout.smem_matrix import ATOM_ROWS
from warploom.lower.analysis.tma_regions import why_not_tma
from warploom.ops.copy_gather import GATHERED
from warploom.target import Swizzle
from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.scopes import TILE_SCOPES, is_global, is_shared, is_tile
from warploom.tile.statement import Copy, Load, Loop, Scalar, Statement, block

#: Copies of a loop that are written one after the other, at most.
MOST_COPIES = 64
#: The same of rows that TMA gathers, four at a time.
MOST_ROWS = 256


def copy_loops(body: tuple[Stmt, ...], gathers: bool = False) -> tuple[Stmt, ...]:
    """The statements with such loops rewritten, at any depth.

    Parameters
    ----------
    gathers : bool
        Whether TMA gathers rows of a matrix, four at a time.
    """

    def rewritten(statement: Statement) -> Stmt:
        if isinstance(statement, Loop) and not statement.pipelined:
            copies = _copies_of(statement)
            if copies is not None:
                return _rewritten(statement, copies, gathers)
        return statement.with_each(rewritten)

    return tuple(rewritten(statement) for statement in block(body))


def _copies_of(loop: Loop) -> list[Copy | Load] | None:
    """The copies of a loop that has constant iterations, and only scalars beside."""
    plain = isinstance(loop.extent, tirx.IntImm) and ir.is_constant(loop.start, 0)
    if not plain or (loop.raw.step is not None and not ir.is_constant(loop.raw.step, 1)):
        return None
    copies = [one for one in loop.body if isinstance(one, (Copy, Load))]
    others = [one for one in loop.body if not isinstance(one, (Copy, Load, Scalar))]
    return copies if copies and not others and int(loop.extent) > 0 else None


def _rewritten(loop: Loop, copies: list[Copy | Load], gathers: bool) -> Stmt:
    table = _values(loop)
    nests = [] if table is None else [_as_nest(loop, copy, table) for copy in copies]
    loads = all(isinstance(copy, Load) for copy in copies)
    if loads and all(_whole_atoms(loop, copy) for copy in copies):
        if int(loop.extent) * len(copies) <= MOST_COPIES:
            return ir.seq(_one_after_the_other(loop))
    elif gathers and loads and all(_are_gathered(loop, copy) for copy in copies):
        return ir.seq(_one_after_the_other(loop))
    elif nests and all(nest is not None for nest in nests):
        return ir.seq(nests)
    return loop.raw


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
    if not held and not (isinstance(copy, Load) and is_shared(tile.source)):
        return None
    rows = _rows(loop, tile)
    if rows is None:
        return None
    counters = [Var(name, "int32") for name, _ in zip("ijkl", tile.source.shape, strict=False)]
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


def _places(tensor: TensorRegion, counters: list[Any]) -> list[Any] | None:
    """The indices of an element of the region, for places along the dimensions of the tile."""
    ranges = ir.ranges(tensor)
    free = [d for d, (_, extent) in enumerate(ranges) if not ir.is_constant(extent, 1)]
    along = [c for c in counters if not ir.is_constant(c, 0)]
    if len(free) != len(along):
        return None
    table = dict(zip(free, along, strict=True))
    return [start + table[d] if d in table else start for d, (start, _) in enumerate(ranges)]
