"""Slice-K: warpgroups that share the steps of a loop, where a tile has no rows to share.

A tile of 64 rows occupies one warpgroup, one warp on each scheduler of an SM: whenever it waits,
for a stage, for shared memory, for its MMA, nothing else computes. With slice-K, each of n
warpgroups computes every nth step of the loop, all rows of the tile, into accumulators of its own.
After the loop the sums meet in shared memory, and the first warpgroup finishes the tile while the
others are at the next one.

Which warpgroup computes a step, its stage tells: each is used, and released, by one warpgroup
alone, which has seen every phase of the stage's barrier, as waiting for the parity of a phase
takes. Stages are a multiple of n, so that all warpgroups have as many.
"""

from __future__ import annotations

import dataclasses
from itertools import groupby
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.lower.analysis.rings import RingUse
from warploom.lower.analysis.separable_loop import SeparableLoop, separated
from warploom.lower.emit.named_barriers import consumers_sync
from warploom.lower.emit.threads import orchestrated
from warploom.lower.hopper.warpgroups import require_private, with_warpgroups
from warploom.tile import ir
from warploom.tile.annotations import FIRST, SLICE_STEP, STAGES
from warploom.tile.mbarriers import read_operation
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram
from warploom.tile.statement import (
    Allocation,
    Block,
    First,
    Load,
    Loop,
    Mma,
    Orchestrated,
    Scalar,
    SliceStep,
    Statement,
    raws,
    walk,
)


def slice_k(program: TileProgram) -> TileProgram:
    """Follow the hint ``slice_k``.

    Raises
    ------
    Decline
        If warpgroups share rows already, or the steps of the loop depend on each other.
    """
    count = program.hints.slice_k
    if count is None or count == 1:
        return program
    (warpgroup,) = program.id("warpgroup").vars
    rows = int(program.id("warpgroup").extents[0])
    if rows > 1:
        raise Decline(
            f"{rows} warpgroups share the rows of tiles, so they cannot share its steps; drop the "
            "hint slice_k, or ask for consumers=1."
        )
    body = _look(program.block, warpgroup, count)
    if body is None:
        raise Decline("No pipelined loop has an MMA whose steps warpgroups could share.")
    ids = with_warpgroups(program, count)
    hints = dataclasses.replace(program.hints, consumers=count)
    return program.replace(body=tuple(body), ids=ids, hints=hints).decided(
        f"slice_k: each of {count} warpgroups computes one step of {count}, the first adds the sums"
    )


def of_slice_step(use: RingUse) -> bool:
    """Whether each stage of a ring is used by one warpgroup of slice-K, and by no other."""
    return isinstance(use.block[use.first], SliceStep)


def readers(use: RingUse, program: TileProgram) -> int:
    """Warpgroups that release each stage of a ring."""
    alone = any(
        statement.raw.same_as(use.loads[0])
        for first in walk(program.block) if isinstance(first, First)
        for statement in walk(first.body)
    )  # fmt: skip
    if alone or of_slice_step(use) or program.hints.ping_pong:
        return 1
    return int(program.id("warpgroup").extents[0])


def _look(statements: Block, warpgroup: Var, count: int) -> list[Stmt] | None:
    """A block, with its loop over shared steps; None if neither it nor one in it has one."""
    loops = [i for i, statement in enumerate(statements) if _has_steps(statement)]
    if len(loops) > 1:
        raise Decline("Several loops have MMAs; warpgroups share the steps of one loop.")
    if loops:
        loop = separated(statements, loops[0], "warpgroups that share steps")
        return _shared_steps(loop, warpgroup, count)
    for number, outer in enumerate(statements):
        if isinstance(outer, Loop) and outer.over_tiles:
            inner = _look(outer.body, warpgroup, count)
            if inner is not None:
                before, after = raws(statements[:number]), raws(statements[number + 1 :])
                return [*before, ir.with_body(outer.raw, inner), *after]
    return None


def _operates(statements: Block) -> bool:
    """Whether the author operates mbarriers."""
    return any(
        read_operation(statement.raw) is not None or any(map(_operates, statement.blocks))
        for statement in statements
        if not isinstance(statement, Orchestrated)
    )


def _has_steps(statement: Statement) -> bool:
    return (
        isinstance(statement, Loop)
        and statement.pipelined
        and any(isinstance(inner, Mma) for inner in statement.body)
    )


def _shared_steps(split: SeparableLoop, warpgroup: Var, count: int) -> list[Stmt]:
    loop = split.loop
    if _operates((*split.before, *loop.body, *split.after)):
        raise Decline("The program operates mbarriers itself, which warpgroups pass together.")
    common = [statement for statement in loop.body if _is_common(statement)]
    own = [statement for statement in loop.body if not _is_common(statement)]
    _require_stages(common, own)
    require_private(split.before, _is_common, "before the loop", "keep it in registers")
    require_private(own, _is_common, "of the loop", "keep it in registers")
    step = [_accumulating(statement, split) for statement in own]
    notes = {**loop.raw.annotations, STAGES: max(count, (loop.stages or 1) // count * count)}
    taken = [*raws(common), tirx.AttrStmt(0, SLICE_STEP, ir.as_expr(count), ir.seq(step))]
    steps = ir.loop(loop.var, loop.extent, taken, notes, loop.raw.kind, loop.start, loop.raw.step)
    places = {tile: _place(tile, count) for tile in split.sums}
    return [
        *(tirx.AllocBuffer(place) for place in places.values()),
        *raws(split.before),
        *(_zero(start.d) for start in split.starts),
        steps,
        _added(places, warpgroup, count),
        *_of_first(split.after, warpgroup),
    ]


def _is_common(statement: Statement) -> bool:
    """Whether a statement is for all: a load, which no consumer executes, or a definition."""
    return isinstance(statement, (Load, Scalar, Allocation))


def _of_first(statements: Block, warpgroup: Var) -> list[Stmt]:
    """The statements behind the loop: the first warpgroup finishes the tile."""
    result: list[Stmt] = []
    table = {warpgroup: tirx.const(0, "int32")}
    for common, run in groupby(statements, _is_common):
        own = [statement.raw for statement in run]
        if not common:
            mine = ir.seq(ir.substitute(statement, table) for statement in own)
            own = [tirx.AttrStmt(0, FIRST, ir.as_expr(1), mine)]
        result += own
    return result


def _require_stages(common: list[Statement], own: list[Statement]) -> None:
    tiles = {load.tile for load in common if isinstance(load, Load)}
    if not any(tiles & statement.effects.reads for statement in own):
        raise Decline(
            "The loop loads nothing, so no stages tell which warpgroup computes a step; load a "
            "tile in it, or drop the hint slice_k."
        )
    if any(
        isinstance(statement, Scalar) and tiles & statement.effects.reads for statement in common
    ):
        raise Decline("A scalar of the loop comes from a tile; read it from global memory.")


def _accumulating(statement: Statement, loop: SeparableLoop) -> Stmt:
    """An MMA that adds to its accumulator in every step."""
    if not loop.is_start(statement):
        return statement.raw
    return tile_call(statement.raw, *statement.raw.args[:-1], tirx.const(True, "bool"))


def _place(tile: Buffer, count: int) -> Buffer:
    """Shared memory for the sums of all warpgroups but the first."""
    shape = (count - 1, *tile.shape)
    return tirx.decl_buffer(shape, str(tile.dtype), f"{tile.name}_sums", scope="shared")


def _added(places: dict[Buffer, Buffer], warpgroup: Var, count: int) -> Stmt:
    """All leave their sums, the first adds them: those of the last tile it has added by then."""
    leave = [_leave(tile, place, warpgroup) for tile, place in places.items()]
    add = [_add(tile, place, count) for tile, place in places.items()]
    return orchestrated([
        consumers_sync(count),
        ir.when(warpgroup > 0, leave),
        consumers_sync(count),
        ir.when(T.EQ(warpgroup, 0), add),
    ])  # fmt: skip


def _nest(tile: Buffer, value: Any) -> Stmt:
    """``value(i, j)``, a store, for all elements of a tile."""
    indices = [Var(name, "int32") for name in "ij"]
    body = value(*indices)
    for index, extent in reversed(list(zip(indices, tile.shape, strict=True))):
        body = ir.loop(index, int(extent), [body])
    return body


def _zero(tile: Buffer) -> Stmt:
    zero = tirx.const(0, str(tile.dtype))
    return _nest(tile, lambda i, j: tirx.BufferStore(tile, zero, [i, j]))


def _leave(tile: Buffer, place: Buffer, warpgroup: Var) -> Stmt:
    return _nest(tile, lambda i, j: tirx.BufferStore(place, tile[i, j], [warpgroup - 1, i, j]))


def _add(tile: Buffer, place: Buffer, count: int) -> Stmt:
    def total(i: Var, j: Var) -> Stmt:
        value = tile[i, j]
        for warpgroup in range(count - 1):
            value = value + place[warpgroup, i, j]
        return tirx.BufferStore(tile, value, [i, j])

    return _nest(tile, total)
