"""Smaller choices, for a program whose passes have chosen what a CTA has no room for.

Passes choose by what they know when they choose. Later passes may need more than that leaves; then
the lowering begins again: with fewer stages, smaller buffers for chunks of stores, or fewer
computing warpgroups, each of which has more registers. What the author has chosen stays.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline, NoRegisters, NoSharedMemory
from warploom.tile.choices import BY_NAME
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global
from warploom.tile.statement import Loop, walk

#: Hints that make the buffers of staged stores smaller, the first before the others.
_SMALLER_STORES = ("store_buffers", "store_columns")


def smaller_choice(
    author: TileProgram, tried: TileProgram, reached: TileProgram, reason: Decline, first: Decline
) -> dict[str, Any] | None:
    """Hints to set before the passes begin again; None if there is nothing left to choose.

    Parameters
    ----------
    author : TileProgram
        The program as its author has written it.
    tried, reached : TileProgram
        The program of the last try, before all passes, and as the pass that declined found it.
    reason, first : Decline
        Why that pass declined, and why a pass of the first try did.
    """
    if isinstance(reason, NoSharedMemory):
        stages = _most_stages(author, reached)
        if author.hints.stages is None and stages > 1:
            return {"stages": stages - 1}
        for name in _SMALLER_STORES:
            smaller = _next_draw(name, _value(name, tried))
            if getattr(author.hints, name) is None and smaller is not None:
                return {name: smaller}
    alone = author.hints.slice_k or author.hints.ping_pong  # each warpgroup has all rows
    if isinstance(first, NoRegisters) and author.hints.consumers is None and not alone:
        consumers = tried.hints.consumers or reached.hints.consumers or 1
        if consumers > 1:
            return {"consumers": consumers - 1}
    return None


def with_choice(program: TileProgram, choice: dict[str, Any]) -> TileProgram:
    """A program with hints of these values."""
    return program.replace(hints=dataclasses.replace(program.hints, **choice))


def _value(name: str, program: TileProgram) -> int | None:
    """What a hint says; without it, stores in loops may have buffers for all of their chunks."""
    value = getattr(program.hints, name)
    if value is None and name == "store_buffers" and _stores_in_loops(program):
        return max(BY_NAME[name].draws)
    return value


def _stores_in_loops(program: TileProgram) -> bool:
    """Whether a primitive in a loop copies a tile to global memory, or updates it."""
    return any(
        isinstance(inner.raw, TilePrimitiveCall) and is_global(inner.raw.args[0].source)
        for loop in walk(program.block) if isinstance(loop, Loop)
        for inner in walk(loop.body)
    )  # fmt: skip


def _next_draw(name: str, value: int | None) -> int | None:
    """The largest value below another one, or below the default, that searches try."""
    row = BY_NAME[name]
    below = [each for each in row.draws if each < (row.default if value is None else value)]
    return max(below, default=None)


def _most_stages(author: TileProgram, reached: TileProgram) -> int:
    """Most stages of the loops whose author has said nothing of them."""
    said = {loop.var.name for loop in _pipelined(author) if loop.stages is not None}
    return max(
        (loop.stages or 1 for loop in _pipelined(reached) if loop.var.name not in said), default=1
    )


def _pipelined(program: TileProgram) -> list[Loop]:
    return [loop for loop in walk(program.block) if isinstance(loop, Loop) and loop.pipelined]
