"""Which tiles that go to and fro between roles may come back in another place.

With two places, one role fills the tile anew while the other still has the old contents: the
tensor core multiplies into one set of columns while threads read the other, threads dequantise an
operand while the tensor core reads the one before. That is right where whoever gets the tile back
overwrites all of it.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir
from warploom.tile.effects import accumulates, effects
from warploom.tile.kinds import is_gemm
from warploom.tile.statement import is_nest, nest_parts
from warploom.transform.handovers import Role
from warploom.transform.role_order import roles_of


def starts_afresh(body: list[Stmt], tile: Buffer) -> bool:
    """Whether the tensor core overwrites a tile whenever it gets it back from the threads."""
    roles = roles_of(body, tile)
    if not roles or roles[0] is not Role.TENSOR_CORE:
        return False
    products = _products(body, tile, None)
    return all(_overwrites(call, loop) for call, loop in products)


def _products(statements: list[Stmt], tile: Buffer, loop: Any) -> list[tuple[Any, Any]]:
    """Products into a tile, with the outermost loop around each that only the tensor core is in."""
    found = []
    for one in statements:
        if is_gemm(one):
            if tile in effects(one).writes:
                found.append((one, loop))
            continue
        for part in _inside(one):
            inner = ir.flatten(part)
            around = loop
            read = Role.THREADS in roles_of(inner, tile)
            if isinstance(one, tirx.For) and loop is None and not read:
                around = one
            found += _products(inner, tile, around)
    return found


def _inside(one: Stmt) -> list[Stmt]:
    return [] if is_nest(one) else ir.children(one)


def _overwrites(call: Any, loop: Any) -> bool:
    """Whether a product, at least the first of a loop, does not add to what was there."""
    value = accumulates(call)
    if value is False:
        return True
    if value is True or loop is None:
        return False
    first = Analyzer().simplify(ir.substitute(value, {loop.loop_var: loop.min}))
    return isinstance(first, tirx.IntImm) and not int(first)


def is_rewritten(body: list[Stmt], tile: Buffer, warpgroup: Var, warpgroups: int) -> bool:
    """Whether threads write all of an operand, always, before the products that read it.

    They do if one block has all their statements on the tile, nests that overwrite it or stores of
    pieces that together do, and the products come in that block after them.
    """
    if len(tile.shape) != 2:
        return False
    statements = body
    while True:
        touching = [one for one in statements if roles_of([one], tile)]
        direct = [one for one in touching if is_nest(one) or not ir.children(one)]
        if direct or len(touching) != 1:
            break
        bodies = [ir.flatten(part) for part in ir.children(touching[0])]
        inside = [part for part in bodies if roles_of(part, tile)]
        if len(inside) != 1:
            return False
        (statements,) = inside
    columns: set[int] = set()
    whole = set(range(int(tile.shape[1])))
    for one in touching:
        if Role.THREADS in roles_of([one], tile):
            written = _columns(one, tile, warpgroup, warpgroups)
            if written is None or columns == whole != written:
                return False
            columns |= written
        elif columns != whole:
            return False
    return columns == whole


def _columns(
    statement: Stmt, tile: Buffer, warpgroup: Var, warpgroups: int
) -> set[int] | None:
    """Columns of a tile that a statement of the threads overwrites; None if it does more."""
    if isinstance(statement, TilePrimitiveCall):
        to = statement.args[0]
        if ir.op_name(statement) != "copy_async" or to.source != tile:
            return None
        (row, rows), (start, extent) = ir.ranges(to)
        parts = (row, rows, start, extent)
        if not all(isinstance(part, tirx.IntImm) for part in parts) or int(rows) != tile.shape[0]:
            return None
        return set(range(int(start), int(start) + int(extent)))
    if _writes_all(statement, tile, warpgroup, warpgroups):
        return set(range(int(tile.shape[1])))
    return None


def _writes_all(statement: Stmt, tile: Buffer, warpgroup: Var, warpgroups: int) -> bool:
    """Whether a nest stores to every element of a tile, of which each warpgroup may have a part."""
    if not is_nest(statement) or tile in effects(statement).reads:
        return False
    loops, stores = nest_parts(statement)
    extents = {one.loop_var: int(one.extent) for one in loops}
    stores = [one for one in stores if isinstance(one, tirx.BufferStore) and one.buffer == tile]
    if len(stores) != 1:
        return False
    counted: list[Var] = []
    for index in stores[0].indices:
        used = [var for var in extents if var in ir.uses(index)]
        if len(used) != 1 or ir.uses(Analyzer().simplify(index - used[0])) & set(extents):
            return False
        counted += used
    shared_out = any(warpgroup in ir.uses(index) for index in stores[0].indices)
    parts = warpgroups if shared_out else 1
    written = parts * math.prod(extents[var] for var in counted)
    return len(set(counted)) == len(counted) and written == math.prod(map(int, tile.shape))
