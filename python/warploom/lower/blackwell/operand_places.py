"""Gives operands the places of their tiles: stages of rings, and columns of tensor memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.ir import TensorRegion
from tvm.tirx import Buffer
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.lower.analysis.rings import PipelinePlan
from warploom.lower.blackwell.plan_tensor_memory import TensorMemory
from warploom.lower.blackwell.tile_barriers import Role, TileBarriers
from warploom.lower.emit.barriers import Position
from warploom.lower.emit.place_tiles import place_tiles
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram
from warploom.tile.statement import Statement


@dataclass(frozen=True)
class OperandPlaces:
    """The places of the tiles of a program.

    Attributes
    ----------
    program : TileProgram
    plan : PipelinePlan
        Its rings of loads.
    positions : dict
        Role and name of a ring -> where in the ring the role is.
    tile_barriers : dict
        Tile -> its barriers.
    memory : TensorMemory
        Where accumulators are.
    warpgroups : int
        Consumer warpgroups.
    """

    program: TileProgram
    plan: PipelinePlan
    positions: dict[tuple[Role, str], Position]
    tile_barriers: dict[Buffer, TileBarriers]
    memory: TensorMemory
    warpgroups: int

    def placed(self, statement: Statement, role: Role, number: Any = None) -> Any:
        """A statement with the place of each tile; ``number`` is that of the warpgroup."""
        current = {
            tile: (buffer, self.positions[role, ring.name].index)
            for ring in self.plan.rings
            for tile, buffer in ring.tiles.items()
        }
        current |= {
            tile: (pair.stack, pair.index(role))
            for tile, pair in self.tile_barriers.items() if pair.stack is not None
        }  # fmt: skip
        placed = place_tiles(statement.raw, current)
        if not isinstance(placed, TilePrimitiveCall):
            return placed
        chosen = self.program.var("warpgroup") if number is None else number
        if self.warpgroups == 1:
            chosen = 0
        args = [self._in_tensor_memory(arg, role, chosen) for arg in placed.args]
        return tile_call(placed, *args)

    def _in_tensor_memory(self, arg: Any, role: Role, warpgroup: Any) -> Any:
        if not isinstance(arg, TensorRegion) or arg.source not in self.memory.tiles:
            return arg
        pair = self.tile_barriers.get(arg.source)
        chosen = pair.index(role) if pair is not None else 0
        return self.memory.tiles[arg.source].place(arg, chosen, warpgroup)
