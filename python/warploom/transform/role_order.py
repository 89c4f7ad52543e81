"""Who does which statement of a program for Blackwell: the tensor core's thread, or the threads."""

from __future__ import annotations

from collections.abc import Iterator

from tvm.tirx import Buffer

from warploom.tile.statement import Allocation, Block, ForLoader, Load, Mma, Statement
from warploom.transform.handovers import Role


def leaves(statements: Block) -> Iterator[tuple[Role, Statement]]:
    """All statements with a role, in the order of the program; control flow is looked into."""
    for one in statements:
        match one:
            case Load() | ForLoader() | Allocation():
                pass
            case Mma():
                yield Role.TENSOR_CORE, one
            case Statement(blocks=()):
                yield Role.THREADS, one
            case _:
                for inner in one.blocks:
                    yield from leaves(inner)


def roles_of(statements: Block, tile: Buffer) -> list[Role]:
    """Who touches a tile, in the order of the program."""
    return [role for role, one in leaves(statements) if tile in one.effects.touched]
