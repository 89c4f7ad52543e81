"""Common parts of passes that give each warpgroup work of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from warploom.errors import Decline
from warploom.target import SM100A
from warploom.tile.ids import Id
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_shared, is_tile
from warploom.tile.statement import Statement


def with_warpgroups(program: TileProgram, count: int) -> tuple[Id, ...]:
    """The ids of a program, with so many warpgroups that compute."""
    return tuple(
        Id("warpgroup", scope_id.vars, (count,)) if scope_id.kind == "warpgroup" else scope_id
        for scope_id in program.ids
    )


def require_private(
    statements: Iterable[Statement], skip: Callable[[Statement], bool], where: str, fix: str
) -> None:
    """Make sure that each warpgroup computes in tiles of its own.

    Parameters
    ----------
    skip : callable
        Whether a statement is not the warpgroup's, or brings its own synchronisation.
    where, fix : str
        Parts of the reason.

    Raises
    ------
    Decline
        If a statement writes a tile that warpgroups share.
    """
    for statement in statements:
        if skip(statement):
            continue
        for inner in statement.blocks:
            require_private(inner, skip, where, fix)
        if statement.blocks:
            continue
        written = [b for b in statement.effects.writes if is_tile(b) and is_shared(b)]
        if written:
            raise Decline(
                f"A statement {where} writes {min(b.name for b in written)} to memory that "
                f"warpgroups share; each would write it at any time, so {fix}."
            )


def ignore_role_hints(program: TileProgram) -> TileProgram:
    """Note the hints that take a thread that loads for several warpgroups of Hopper.

    Lowerings without such a thread do not follow them.
    """
    blackwell = ("split_rings",) if program.arch == SM100A.name else ()
    for hint in ("order_mmas", "slice_k", "ping_pong", *blackwell):
        value = getattr(program.hints, hint)
        if value and (value != 1 or value is True):
            program = program.not_followed(
                hint, "only warps of Hopper with roles of their own do; leave it out"
            )
    if program.hints.scheduler == "counter" and not program.tensor_memory:
        program = program.not_followed(
            "scheduler", "no warp is set aside to draw tiles; leave it out, or specialise=False"
        )
        hints = dataclasses.replace(program.hints, scheduler=None)
        program = program.replace(hints=hints)
    return program
