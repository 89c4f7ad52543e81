"""Which role holds a tile where a loop begins anew, on Blackwell.

A tile that one role alone touches in a loop is held by it throughout. A tile that both touch is on
the way to the first of them, unless the body ends with the role that it begins with: then it stays
there. A loop touches only tiles that it moves to these states first, so they do not depend on where
it stands. They are computed once for each loop, from the inside out.
"""

from __future__ import annotations

from collections.abc import Iterable

from tvm.tirx import Buffer

from warploom.lower.blackwell.role_order import role_of
from warploom.lower.blackwell.tile_barriers import Role, held_by, on_the_way_to
from warploom.tile.statement import Block, Branch, ForLoader, Loop, Scalar, Statement, While

#: Tile -> its state; states are those of :mod:`warploom.lower.blackwell.tile_barriers`.
States = dict[Buffer, int]


class LoopHeads:
    """The states of tiles at the heads of the loops of a program.

    Parameters
    ----------
    tiles : iterable of Buffer
        Tiles that pass between the roles, in an order in which they are moved.
    """

    def __init__(self, tiles: Iterable[Buffer]) -> None:
        self._tiles = tuple(tiles)
        self._heads: dict[Loop | While, States] = {}
        self._roles: dict[Statement, dict[Buffer, list[Role]]] = {}

    def of(self, loop: Loop | While) -> States:
        """The states at the head of a loop, for the tiles that it touches."""
        if loop not in self._heads:
            self._heads[loop] = self._find(loop)
        return self._heads[loop]

    def around(self, branch: Branch) -> States:
        """The states before and after a branch, for tiles that one role alone touches in it."""
        roles = self.roles(branch)
        return {tile: held_by(order[0]) for tile, order in roles.items() if len(order) == 1}

    def roles(self, statement: Statement) -> dict[Buffer, list[Role]]:
        """The roles that touch each tile of a statement, in the order of their first access."""
        if statement not in self._roles:
            self._roles[statement] = self._find_roles(statement)
        return self._roles[statement]

    def _find_roles(self, statement: Statement) -> dict[Buffer, list[Role]]:
        if (role := role_of(statement)) is not None:
            return {tile: [role] for tile in self._tiles if tile in statement.effects.touched}
        if isinstance(statement, ForLoader):
            return {}
        parts = [self.roles(part) for block in statement.blocks for part in block]
        order = {
            tile: [role for part in parts for role in part.get(tile, [])] for tile in self._tiles
        }
        return {tile: list(dict.fromkeys(roles)) for tile, roles in order.items() if roles}

    def _find(self, loop: Loop | While) -> States:
        roles = self.roles(loop)
        heads = {
            tile: held_by(order[0]) if len(order) == 1 else on_the_way_to(order[0])
            for tile, order in roles.items()
        }
        if all(len(order) == 1 for order in roles.values()):
            return heads
        ends = self._after(loop.blocks[0], heads)
        # A tile that ends with the role that begins stays with it.
        return heads | {t: ends[t] for t, order in roles.items() if ends[t] == held_by(order[0])}

    def _after(self, statements: Block, states: States) -> States:
        """The states after a block that begins with some."""
        for statement in statements:
            match statement:
                case Loop() | While():
                    states = states | self.of(statement)
                case Branch():
                    states = states | self.around(statement)
                case Scalar():  # both roles have it
                    pass
                case Statement(blocks=()):
                    states = states | {t: held_by(r[0]) for t, r in self.roles(statement).items()}
                case _:
                    states = self._after(statement.blocks[0], states)
        return states
