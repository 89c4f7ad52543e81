"""Leaves out the loads of tiles that nothing uses.

Warnings name such a tile at the author's line; a load without a statement to wait for it has no
place in a ring.
"""

from __future__ import annotations

from tvm.tirx import Buffer, Stmt

from warploom.tile import ir
from warploom.tile.annotations import MBAR
from warploom.tile.program import TileProgram
from warploom.tile.statement import Allocation, Load, Statement, walk


def without_unused_loads(program: TileProgram) -> TileProgram:
    """The program without its loads of tiles that no other statement touches."""
    loads = [one for one in walk(program.block) if isinstance(one, Load)]
    loaded = {one.tile for one in loads if MBAR not in one.raw.config}
    if not loaded:
        return program
    others = ir.uses(ir.seq(_without(statement, loaded) for statement in program.block))
    unused = loaded - others - {used for one in loads for used in ir.uses(one.source)}
    if not unused:
        return program
    body = [leaf for one in program.block for leaf in ir.flatten(_without(one, unused))]
    names = sorted(tile.name for tile in unused)
    return program.replace(body=tuple(body)).decided(
        *(f"load of {name}: left out, as nothing uses it" for name in names)
    )


def _without(statement: Statement, tiles: set[Buffer]) -> Stmt:
    """A statement without the loads and the allocations of tiles."""
    if isinstance(statement, Load) and statement.tile in tiles:
        return ir.seq([])
    if isinstance(statement, Allocation) and statement.raw.buffer in tiles:
        return ir.seq([])
    return statement.with_each(lambda inner: _without(inner, tiles))
