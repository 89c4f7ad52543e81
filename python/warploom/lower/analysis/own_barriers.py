"""Mbarriers that the author of a tile program operates, and the operations on them."""

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
        copy.raw.args[0].source
        for copy in walk(program.block) if isinstance(copy, ForLoader) and copy.copies
    }  # fmt: skip


def own_operands(program: TileProgram) -> set[Buffer]:
    """Return the tiles with barriers of their author that MMAs read."""
    mmas = (mma for mma in walk(program.block) if isinstance(mma, Mma))
    return own_tiles(program) & {operand.source for mma in mmas for operand in mma.operands}


def operations(statements: Block, depth: int = 0) -> Iterator[tuple[int, Stmt, Operation]]:
    """All operations on the author's mbarriers, with the number of loops and branches around."""
    for statement in statements:
        operation = read_operation(statement.raw)
        if operation is not None:
            yield depth, statement.raw, operation
        for inner in statement.blocks:
            yield from operations(inner, depth + 1)


def initialisations(program: TileProgram) -> list[Stmt]:
    """The statements that initialise the author's mbarriers."""
    return [
        statement
        for _, statement, operation in operations(program.block)
        if operation.kind == "init"
    ]
