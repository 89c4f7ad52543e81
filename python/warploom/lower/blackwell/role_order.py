"""The role of each statement of a program for Blackwell: tensor core's thread, or threads."""

from __future__ import annotations

from collections.abc import Iterator

from tvm.tirx import Buffer

from warploom.lower.blackwell.tile_barriers import Role
from warploom.tile.statement import Allocation, Block, ForLoader, Load, Mma, Statement


def role_of(statement: Statement) -> Role | None:
    """Return the role that executes a statement; None for loads, allocations and control flow."""
    match statement:
        case Load() | ForLoader() | Allocation():
            return None
        case Mma():
            return Role.TENSOR_CORE
        case Statement(blocks=()):
            return Role.THREADS
    return None


def leaves(statements: Block) -> Iterator[tuple[Role, Statement]]:
    """All statements with a role, in the order of the program; control flow is looked into."""
    for statement in statements:
        role = role_of(statement)
        if role is not None:
            yield role, statement
        elif not isinstance(statement, ForLoader):
            for inner in statement.blocks:
                yield from leaves(inner)


def roles_of(statements: Block, tile: Buffer) -> list[Role]:
    """Return the roles of the statements that touch a tile, in the order of the program."""
    return [role for role, leaf in leaves(statements) if tile in leaf.effects.touched]
