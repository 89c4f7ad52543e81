"""Which variables a role has to know: those that decide what its statements do, and whether."""

from __future__ import annotations

from typing import Any

from warploom.tile import ir
from warploom.tile.statement import Block, Branch, Loop, Scalar, Statement, While, walk


def variables_for(statements: Block, kinds: type | tuple[type, ...]) -> set[Any]:
    """Variables and buffers that statements of some kinds, and what is around them, depend on.

    Scalars that are computed of others depend on those.
    """
    known: set[Any] = set()
    every = list(walk(statements))
    for statement in every:
        if not contains(statement, kinds):
            continue
        match statement:
            case Loop(start=start, extent=extent):
                known |= ir.uses(start) | ir.uses(extent)
            case Branch(condition=condition) | While(condition=condition):
                known |= ir.uses(condition)
            case Statement(blocks=()):
                known |= ir.uses(statement.raw)
    size = -1
    while size != len(known):
        size = len(known)
        for statement in every:
            if isinstance(statement, Scalar) and statement.variable in known:
                known |= ir.uses(statement.raw)
    return known


def contains(statement: Statement, kinds: type | tuple[type, ...]) -> bool:
    """Whether a statement is of some kinds, or has such a statement in it."""
    return any(isinstance(inner, kinds) for inner in walk((statement,)))


def assigned(statement: Statement) -> set[Any]:
    """The scalars that a statement assigns."""
    return {inner.variable for inner in walk((statement,)) if isinstance(inner, Scalar)}
