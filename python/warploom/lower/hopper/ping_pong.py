"""Ping-pong: the epilogue of one warpgroup overlaps the MMAs of another, which has another tile.

Warpgroups that share the rows of a tile end it together: while they convert and store its results,
the tensor cores have nothing to do. Here each computes every other tile of its CTA, all rows of it.
The thread that loads fills stages tile after tile as ever; each stage is used, and released, by
the warpgroup whose tile it belongs to, which passes over those of the other.

A warpgroup begins the MMAs of its tile when the other has waited for the last stage of the tile
before. That keeps the tensor cores at one tile at a time, and makes waiting for the parity of
a phase right: no stage is more than one phase ahead of the one that a warpgroup waits for.

CUTLASS: ``KernelTmaWarpSpecializedPingpong``.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var

from warploom.errors import Decline
from warploom.lower.analysis.rings import RingUse
from warploom.lower.emit.named_barriers import pass_mma_order, wait_for_mma_order
from warploom.lower.emit.threads import orchestrated
from warploom.lower.hopper.warpgroups import require_private, with_warpgroups
from warploom.tile import ir
from warploom.tile.annotations import PING_PONG, TILES
from warploom.tile.choices import PING_PONG_WARPGROUPS
from warploom.tile.program import TileProgram
from warploom.tile.statement import Block, Load, Loop, Marked, Orchestrated, Statement, raws, walk


def ping_pong(program: TileProgram) -> TileProgram:
    """Follow the hint ``ping_pong``.

    Raises
    ------
    Decline
        If warpgroups share rows already, or the program is not one loop over tiles that loads
        operands and keeps all else in registers.
    """
    if not program.hints.ping_pong:
        return program
    (warpgroup,) = program.id("warpgroup").vars
    if (rows := int(program.id("warpgroup").extents[0])) > 1:
        raise Decline(
            f"{rows} warpgroups share the rows of tiles, so ping-pong cannot give each "
            "warpgroup tiles of its own; drop the hint ping_pong, or ask for consumers=1."
        )
    loops = [loop for loop in program.block if isinstance(loop, Loop) and loop.over_tiles]
    if len(loops) != 1 or any(
        _loads(statement) for statement in program.block if statement not in loops
    ):
        raise Decline(
            "ping_pong takes a persistent grid, whose CTAs load all operands tile by tile; let the "
            "hint persistent be True, or drop ping_pong."
        )
    if loops[0].dynamic:
        raise Decline(
            "ping_pong: a warpgroup passes over the stages of the tile of the other, and does not "
            "know which tiles are drawn; leave out ping_pong, or scheduler='counter'."
        )
    tiles = _ordered(loops[0], warpgroup)
    body = tuple(tiles if statement is loops[0] else statement.raw for statement in program.block)
    return program.replace(body=body, ids=with_warpgroups(program, PING_PONG_WARPGROUPS)).decided(
        f"ping-pong: each of {PING_PONG_WARPGROUPS} warpgroups computes every other tile"
    )


def of_ping_pong_warpgroup(
    loop: Loop, warpgroup: Var, body: list[Stmt], passes: list[Stmt]
) -> list[Stmt]:
    """The tiles of one warpgroup: ``body`` for every other iteration of ``loop``.

    ``passes`` goes over the stages of a tile of the other.
    """
    number = Var(loop.var.name, "int32")
    table = {loop.var: number * PING_PONG_WARPGROUPS + warpgroup}
    count = T.truncdiv(loop.extent + (PING_PONG_WARPGROUPS - 1) - warpgroup, PING_PONG_WARPGROUPS)
    own = [*(ir.substitute(statement, table) for statement in body), *passes]
    notes = {TILES: loop.raw.annotations[TILES]}
    return [ir.when(warpgroup > 0, passes), ir.loop(number, count, own, notes)]


def stages_of(use: RingUse, loop: Loop) -> Any:
    """Stages of a ring that a tile takes.

    Raises
    ------
    Decline
        If that depends on the tile.
    """
    defined: set[Var] = set()
    tvm_ffi.structural_walk(loop.raw, [
        (tirx.For, lambda loop: defined.add(loop.loop_var)),
        (tirx.Bind, lambda binding: defined.add(binding.var)),
        (tirx.AllocBuffer, lambda allocation: defined.add(allocation.buffer)),
    ])  # fmt: skip
    count = _times(use, loop.body)
    if count is None or ir.uses(count) & defined:
        tiles = ", ".join(tile.name for tile in use.ring.tiles)
        raise Decline(
            f"How often a tile loads {tiles} depends on the tile, so the warpgroup of the next one "
            "does not know its stages; drop the hint ping_pong."
        )
    return count


def _times(use: RingUse, statements: Block) -> Any:
    """How often the block of a ring is executed within statements; None if that depends."""
    if use.is_in(statements):
        return ir.as_expr(1)
    for statement in statements:
        for block in statement.blocks:
            inner = _times(use, block)
            if inner is not None:
                if isinstance(statement, Loop):
                    return statement.extent * inner
                return inner if isinstance(statement, Marked) else None
    return None


def _ordered(loop: Loop, warpgroup: Var) -> tirx.For:
    """The loop, in which a tile's loads wait for those of the tile before."""
    used = [number for number, statement in enumerate(loop.body) if _loads(statement)]
    if not used:
        raise Decline("The tiles load nothing, so ping_pong hides nothing; drop the hint.")
    require_private(
        loop.body, _is_apart, "of a tile", "keep it in registers, or drop the hint ping_pong"
    )
    first, last = used[0], used[-1] + 1
    number, body = loop.var, raws(loop.body)
    passed = pass_mma_order(warpgroup, PING_PONG_WARPGROUPS)
    inner = [
        *body[:first],
        orchestrated([ir.when(number > 0, [wait_for_mma_order(warpgroup)])]),
        *body[first:last],
        orchestrated([ir.when(number + 1 < loop.extent, [passed])]),
        *body[last:],
    ]
    return ir.loop(number, loop.extent, inner, {**loop.raw.annotations, PING_PONG: 1})


def _loads(statement: Statement) -> bool:
    """Whether something of a statement loads a stage."""
    return any(isinstance(node, Load) for node in walk((statement,)))


def _is_apart(statement: Statement) -> bool:
    """Whether a statement is the loading thread's, or guards the memory that it writes."""
    return isinstance(statement, (Load, Orchestrated)) or statement.allocates
