"""Several CTAs share a tile: each sums some steps of its loop, one adds the sums and finishes it.

Few tiles of a long loop leave SMs idle: ``split_k`` cuts each loop into equal parts. A number of
tiles that is no multiple of the CTAs leaves them idle at the end: ``stream_k`` shares those tiles
out step by step. Both become a loop over segments, whose body is that of the program with the
segment's steps in place of all; a workspace in global memory takes the sums of those that do not
own the tile. The program stays sequential: CTA after CTA, each sum is written before it is read.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.lower.analysis.separable_loop import SeparableLoop, separable_loop
from warploom.lower.grid.persistent import DEFAULT_GROUP, grid_of, persistent_grid
from warploom.lower.grid.resident import Resident
from warploom.lower.grid.segments import (
    Segment,
    in_clusters,
    in_segments,
    in_teams,
    split_k,
    stream_k,
)
from warploom.target.dtypes import bits_of
from warploom.tile import ir
from warploom.tile.annotations import GIVEN, TAKEN
from warploom.tile.primitives import primitive, tile_call
from warploom.tile.program import TileProgram
from warploom.tile.statement import Statement, raws

#: Size of an element of the workspace: a thread moves words.
_WORD_BITS = 32


def split_tiles(
    program: TileProgram,
    ctas: int | Resident,
    group: int | None = DEFAULT_GROUP,
    cluster: tuple[int, ...] = (1, 1),
) -> TileProgram:
    """Replace the grid by a loop over segments, as the hints ``split_k`` and ``stream_k`` say.

    Parameters are those of :func:`~warploom.lower.grid.persistent.persistent_grid`.

    Raises
    ------
    Decline
        If the loop does more than accumulate matmuls, so that its steps cannot be separated.
    """
    loop = separable_loop(program)
    for tile in loop.sums:
        if bits_of(str(tile.dtype)) != _WORD_BITS:
            raise Decline(
                f"The accumulator {tile.name} is {tile.dtype}; CTAs that share a tile reduce "
                f"sums of {_WORD_BITS} bits, so accumulate in float32 or int32."
            )
    extent = loop.loop.extent
    steps = int(extent) if isinstance(extent, tirx.IntImm) else extent
    segment, parts = Segment(), program.hints.split_k
    if parts is not None and isinstance(steps, int) and parts > steps:
        raise Decline(
            f"split_k {parts}: the loop over {loop.loop.var.name} has {steps} steps, and a "
            f"part needs one at least; ask for {steps} parts at most, or smaller steps."
        )
    cut = stream_k(steps) if parts is None else split_k(steps, parts)
    shared = parts if program.hints.reduce_through == "cluster" else 1
    if shared > 1:
        schedule = in_clusters(segment, cut, shared)
    elif parts is not None and loop.condition is not None:
        schedule = in_teams(segment, steps, parts)
    else:
        schedule = in_segments(segment, cut)
    slots = schedule(grid_of(program, ctas, cluster, shared)).slots
    workspace = {
        tile: tirx.decl_buffer(
            (slots, *tile.shape), str(tile.dtype), f"{tile.name}_of_others", scope="global"
        )
        for tile in loop.sums
    }
    body = _segmented(loop, segment, workspace)
    program = program.replace(body=tuple(body))
    changed = persistent_grid(program, ctas, group, cluster, schedule, shared)
    how = f"each in {parts} parts" if parts is not None else "those of the last rounds step by step"
    where = "their cluster" if shared > 1 else f"{_number(slots)} slots of a workspace"
    return changed.replace(
        host=(*changed.host, *(tirx.AllocBuffer(buffer) for buffer in workspace.values()))
    ).decided(
        f"split: tiles shared by CTAs, {how}; sums of {', '.join(t.name for t in workspace)} pass "
        f"through {where}"
    )


def _number(slots: Any) -> str:
    return str(slots) if isinstance(slots, int) else "as many as a launch needs,"


def _segmented(
    loop: SeparableLoop, segment: Segment, workspace: dict[Buffer, Buffer]
) -> list[Stmt]:
    """The statements of one segment of a tile."""
    old = loop.loop
    step, peer = Var(old.var.name, "int32"), Var("other", "int32")
    table = {old.var: old.start + (segment.first.value + step)}
    body = [ir.substitute(_started(statement, loop, step), table) for statement in old.body]
    steps = ir.loop(step, segment.steps.value, body, old.raw.annotations)
    slot = segment.slot.value
    theirs = slot - (peer + 1) * segment.stride.value
    taken = [_taken(tile, place, theirs) for tile, place in workspace.items()]
    given = [_given(tile, place, slot) for tile, place in workspace.items()]
    take = ir.loop(peer, segment.others.value, [tirx.AttrStmt(0, TAKEN, theirs, ir.seq(taken))])
    give = tirx.AttrStmt(0, GIVEN, slot, ir.seq(given))
    some = ir.when(segment.steps.value > 0, [give])
    after = raws(loop.after)
    finish = ir.when(segment.part.value < 1, [take, *after], [some])
    statements = [*raws(loop.before), steps, finish]
    if loop.condition is None:
        return statements
    return [*raws(loop.outside), ir.when(loop.condition, statements)]


def _started(statement: Statement, loop: SeparableLoop, step: Var) -> Stmt:
    """A statement of the loop; an MMA that overwrites its sum at first does so in each segment."""
    if not loop.is_start(statement):
        return statement.raw
    return tile_call(statement.raw, *statement.raw.args[:-1], step > 0)


def _given(tile: Buffer, workspace: Buffer, slot: Any) -> Stmt:
    """A copy of a sum into a slot."""
    parts = [(0, int(extent)) for extent in tile.shape]
    place = ir.region(workspace, (slot, 1), *parts)
    return primitive("copy", place, ir.whole(tile), scope="cta")


def _taken(tile: Buffer, workspace: Buffer, slot: Any) -> Stmt:
    """A nest that adds the sum of a slot."""
    y, x = (Var(name, "int32") for name in ("y", "x"))
    store = tirx.BufferStore(tile, tile[y, x] + workspace[slot, y, x], [y, x])
    return ir.nest([y, x], map(int, tile.shape), [store])
