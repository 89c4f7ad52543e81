"""States of the tiles that pass between the two roles: which role holds each tile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tvm.tirx import Buffer, Stmt

from warploom.lower.blackwell.tile_barriers import (
    STATES,
    Role,
    TileBarriers,
    held_by,
    on_the_way_to,
)
from warploom.tile.program import TileProgram
from warploom.tile.statement import Statement

#: Statements of the tensor core's thread, and of the consumer warpgroups.
Streams: TypeAlias = tuple[list[Stmt], list[Stmt]]


class TileStates:
    """The tiles of a program that both roles touch, each in a state.

    Parameters
    ----------
    program : TileProgram
    tile_barriers : dict
        Tile -> its barriers.

    Attributes
    ----------
    state : dict
        Tile -> the role that holds it, or to which it is on the way.
    last : dict
        Role and tile -> the last statement of the role that touches the tile.
    used : set of Buffer
        Tiles that their holder has touched since it waited for them.
    passed_on : set of Buffer
        Tiles that a role passed on without a use: their contents must still be there when they
        come back.
    """

    def __init__(self, program: TileProgram, tile_barriers: dict[Buffer, TileBarriers]) -> None:
        self.program, self.tile_barriers = program, tile_barriers
        self.state = {tile: on_the_way_to(pair.first) for tile, pair in tile_barriers.items()}
        self.last: dict[tuple[Role, Buffer], Stmt] = {}
        self.used: set[Buffer] = set()
        self.passed_on: set[Buffer] = set()

    def tiles_of(self, statement: Statement) -> list[Buffer]:
        """The tiles that a statement touches."""
        return [tile for tile in self.tile_barriers if tile in statement.effects.touched]

    def touched(self, tiles: list[Buffer], role: Role, statement: Stmt) -> None:
        """Note that a role has touched tiles, the last time in a statement."""
        self.used.update(tiles)
        for tile in tiles:
            self.last[role, tile] = statement

    def remember(self, roles: Mapping[Buffer, Iterable[Role]], out: Streams) -> None:
        """Note that roles have touched tiles in their last statements."""
        for tile, users in roles.items():
            for role in users:
                self.last[role, tile] = out[role][-1]

    def move(self, tile: Buffer, wanted: int, out: Streams) -> None:
        """Move a tile on until it is in a state."""
        lane = self.program.var("lane")
        while self.state[tile] != wanted:
            state = self.state[tile]
            role, statements = self.tile_barriers[tile].step(state, lane)
            place = len(out[role])
            if state == held_by(role):
                last = self.last.get((role, tile))
                place = next((i + 1 for i, s in enumerate(out[role]) if s is last), place)
                if tile not in self.used:
                    self.passed_on.add(tile)
            else:
                self.last[role, tile] = statements[-1]
                self.used.discard(tile)
            out[role][place:place] = statements
            self.state[tile] = (state + 1) % STATES
