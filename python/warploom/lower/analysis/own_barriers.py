"""Mbarriers that the author of a tile program operates: which, and what is done with them."""

from __future__ import annotations

from collections.abc import Iterator

from tvm.tirx import Buffer, Stmt

from warploom.tile.mbarriers import SCOPE, Operation, read_operation
from warploom.tile.program import TileProgram, allocations
from warploom.tile.statement import Block, ForLoader, Mma, walk


def own_barriers(program: TileProgram) -> list[Buffer]:
    """The author's mbarriers."""
    return [buffer for buffer in allocations(program.body) if buffer.scope() == SCOPE]


def own_tiles(program: TileProgram) -> set[Buffer]:
    """Shared tiles that the author's own loads fill."""
    return {
        one.raw.args[0].source
        for one in walk(program.block) if isinstance(one, ForLoader) and one.copies
    }  # fmt: skip


def own_operands(program: TileProgram) -> set[Buffer]:
    """Those of them that products read."""
    products = (one for one in walk(program.block) if isinstance(one, Mma))
    return own_tiles(program) & {operand.source for one in products for operand in one.operands}


def operations(statements: Block, depth: int = 0) -> Iterator[tuple[int, Stmt, Operation]]:
    """All operations on the author's mbarriers, with the number of loops and branches around."""
    for one in statements:
        operation = read_operation(one.raw)
        if operation is not None:
            yield depth, one.raw, operation
        for inner in one.blocks:
            yield from operations(inner, depth + 1)


def initialisations(program: TileProgram) -> list[Stmt]:
    """The statements that initialise the author's mbarriers."""
    return [one for _, one, found in operations(program.block) if found.kind == "init"]
