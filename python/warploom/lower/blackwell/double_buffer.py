"""Which tiles that go to and fro between roles may come back in another place.

With two places, one role fills the tile anew while the other still has the old contents: the
tensor core multiplies into one set of columns while threads read the other, threads dequantise an
operand while the tensor core reads the previous one. That is right where the role that gets the
tile back overwrites all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tvm import tirx
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.lower.blackwell.role_order import roles_of
from warploom.lower.blackwell.tile_barriers import Role
from warploom.tile import ir
from warploom.tile.nest import ElementStore
from warploom.tile.primitives import op_name
from warploom.tile.statement import Block, Loop, Mma, Nest, Statement


def starts_afresh(body: Block, tile: Buffer) -> bool:
    """Whether the tensor core overwrites a tile whenever it gets it back from the threads."""
    roles = roles_of(body, tile)
    if not roles or roles[0] is not Role.TENSOR_CORE:
        return False
    return all(_overwrites(mma, loop) for mma, loop in _mmas(body, tile, None))


def _mmas(
    statements: Block, tile: Buffer, loop: Loop | None
) -> Iterator[tuple[Mma, Loop | None]]:
    """MMAs into a tile, with the outermost loop around each that only the tensor core is in."""
    for statement in statements:
        if isinstance(statement, Mma) and tile in statement.effects.writes:
            yield statement, loop
        for inner in statement.blocks:
            read = Role.THREADS in roles_of(inner, tile)
            outermost = isinstance(statement, Loop) and loop is None and not read
            yield from _mmas(inner, tile, statement if outermost else loop)


def _overwrites(mma: Mma, loop: Loop | None) -> bool:
    """Whether an MMA, at least the first of a loop, overwrites its accumulator."""
    value = mma.accumulates
    if value is False:
        return True
    if value is True or loop is None:
        return False
    first = Analyzer().simplify(ir.substitute(value, {loop.var: loop.start}))
    return isinstance(first, tirx.IntImm) and not int(first)


def is_rewritten(body: Block, tile: Buffer, warpgroup: Var, warpgroups: int) -> bool:
    """Whether threads write all of an operand, always, before the MMAs that read it.

    They do if one block has all their statements on the tile, nests that overwrite it or stores of
    chunks that together do, and the MMAs come in that block after them.
    """
    if len(tile.shape) != 2:
        return False
    statements = body
    while True:
        touching = [statement for statement in statements if roles_of((statement,), tile)]
        if len(touching) != 1 or not touching[0].blocks:
            break
        inside = [part for part in touching[0].blocks if roles_of(part, tile)]
        if len(inside) != 1:
            return False
        (statements,) = inside
    columns: set[int] = set()
    whole = set(range(int(tile.shape[1])))
    for statement in touching:
        if Role.THREADS in roles_of((statement,), tile):
            written = _columns(statement, tile, warpgroup, warpgroups)
            if written is None or columns == whole != written:
                return False
            columns |= written
        elif columns != whole:
            return False
    return columns == whole


def _columns(
    statement: Statement, tile: Buffer, warpgroup: Var, warpgroups: int
) -> set[int] | None:
    """Columns of a tile that a statement of the threads overwrites; None if it does more."""
    if isinstance(statement.raw, TilePrimitiveCall):
        to = statement.raw.args[0]
        if op_name(statement.raw) != "copy_async" or to.source != tile:
            return None
        (row, rows), (start, extent) = ir.ranges(to)
        parts = (row, rows, start, extent)
        if not all(isinstance(part, tirx.IntImm) for part in parts) or int(rows) != tile.shape[0]:
            return None
        return set(range(int(start), int(start) + int(extent)))
    if _writes_all(statement, tile, warpgroup, warpgroups):
        return set(range(int(tile.shape[1])))
    return None


def _writes_all(statement: Statement, tile: Buffer, warpgroup: Var, warpgroups: int) -> bool:
    """Whether a nest stores to every element of a tile, of which each warpgroup may have a part."""
    if not isinstance(statement, Nest) or tile in statement.effects.reads:
        return False
    extents = {loop.loop_var: int(loop.extent) for loop in statement.loops}
    stores = [store for store in statement.parts if isinstance(store, ElementStore)]
    stores = [store for store in stores if store.buffer == tile]
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
