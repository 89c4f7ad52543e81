"""Warpgroups that take turns with the steps of a loop, where a tile has no rows to share.

A tile of 64 rows occupies one warpgroup, one warp on each scheduler of an SM: whenever it waits,
for a stage, for shared memory, for its product, nothing else computes. With turns, each of n
warpgroups computes every nth step of the loop, all rows of the tile, into accumulators of its own.
After the loop the sums meet in shared memory, and the first warpgroup finishes the tile while the
others are at the next one.

Whose turn it is the stage tells: each is used, and given back, by one warpgroup alone, which has
seen every phase of the stage's barrier, as waiting for the parity of a phase takes. Stages are a
multiple of n, so that all warpgroups have as many.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.transform import ir
from warploom.transform.decline import Decline
from warploom.transform.effects import accumulates, effects
from warploom.transform.persistent import TILES
from warploom.transform.plan_pipeline import DEFAULT_STAGES
from warploom.transform.program import (
    PIPELINED,
    PREFIX,
    STAGES,
    Id,
    TileProgram,
    is_gemm,
    is_load,
    is_nest,
    is_scalar,
    is_shared,
    is_tile,
)
from warploom.transform.stage_stores import ORCHESTRATED

#: Attribute of statements that one of so many warpgroups executes, waiting for the stages that they
#: read and giving them back included.
TURN = PREFIX + "turn"


def take_turns(program: TileProgram) -> TileProgram:
    """Follow the hint ``turns``.

    Raises
    ------
    Decline
        If warpgroups share rows already, or the steps of the loop depend on each other.
    """
    count = program.hints.turns
    if count is None or count == 1:
        return program
    (warpgroup,) = program.id("warpgroup").vars
    rows = int(program.id("warpgroup").extents[0])
    if rows > 1:
        raise Decline(
            f"{rows} warpgroups share the rows of tiles, so they cannot take turns; drop the hint "
            "turns, or ask for consumers=1."
        )
    default = program.hints.stages or DEFAULT_STAGES
    body, found = _look(list(program.body), warpgroup, count, default)
    if not found:
        raise Decline("No pipelined loop has a product whose steps could be taken in turns.")
    ids = tuple(
        Id("warpgroup", one.vars, (count,)) if one.kind == "warpgroup" else one
        for one in program.ids
    )
    hints = dataclasses.replace(program.hints, consumers=count)
    return program.replace(body=tuple(body), ids=ids, hints=hints).decided(
        f"turns: each of {count} warpgroups computes every {count}th step, the first adds the sums"
    )


def no_turns(program: TileProgram) -> TileProgram:
    """Say that the hint is not followed."""
    if program.hints.turns is None:
        return program
    return program.decided("turns: not followed, only specialised warps of Hopper take turns")


def is_turn(statement: Stmt) -> bool:
    """Whether a statement is for the warpgroup whose turn it is."""
    return isinstance(statement, tirx.AttrStmt) and statement.attr_key == TURN


def _look(
    statements: list[Stmt], warpgroup: Var, count: int, stages: int
) -> tuple[list[Stmt], bool]:
    """A block, with its loop over steps in turns; whether it, or one in it, has such a loop."""
    loops = [i for i, one in enumerate(statements) if _has_steps(one)]
    if loops:
        if len(loops) > 1:
            raise Decline("Several loops have products; warpgroups take turns in one.")
        return _in_turns(statements, loops[0], warpgroup, count, stages), True
    result, found = [], False
    for one in statements:
        inside = isinstance(one, tirx.For) and TILES in one.annotations
        if not inside and not isinstance(one, tirx.AttrStmt):
            result.append(one)
            continue
        body, here = _look(ir.flatten(one.body), warpgroup, count, stages)
        found |= here
        result.append(ir.with_body(one, body) if here else one)
    return result, found


def _has_steps(statement: Stmt) -> bool:
    return (
        isinstance(statement, tirx.For)
        and PIPELINED in statement.annotations
        and any(is_gemm(one) for one in ir.flatten(statement.body))
    )


def _in_turns(
    statements: list[Stmt], at: int, warpgroup: Var, count: int, stages: int
) -> list[Stmt]:
    before, loop, after = statements[:at], statements[at], statements[at + 1 :]
    body = ir.flatten(loop.body)
    common = [one for one in body if _is_common(one)]
    own = [one for one in body if not _is_common(one)]
    sums = _sums(own)
    _require_private(own, sums, [*before, *after])
    starts = [_zero(tile) for tile in sums if _is_overwritten(own, tile, loop)]
    _require_started(before, [tile for tile in sums if not _is_overwritten(own, tile, loop)])
    _require_registers_only(before)
    _require_loads(common, own)
    turn = tirx.AttrStmt(0, TURN, ir.as_expr(count), ir.seq(map(_accumulating, own)))
    stages = int(loop.annotations.get(STAGES, stages))
    notes = {**loop.annotations, STAGES: max(count, stages // count * count)}
    places = {tile: _place(tile, count) for tile in sums}
    return [
        *(tirx.AllocBuffer(place) for place in places.values()),
        *before,
        *starts,
        ir.loop(loop.loop_var, loop.extent, [*common, turn], notes, loop.kind, loop.min, loop.step),
        ir.when(warpgroup > 0, [_leave(tile, place, warpgroup) for tile, place in places.items()]),
        *(_of_first(_add(tile, place, count), warpgroup) for tile, place in places.items()),
        *(one if _is_common(one) else _of_first(one, warpgroup) for one in after),
    ]


def _is_common(statement: Stmt) -> bool:
    """Whether a statement is for all: a load, which nobody here executes, or a definition."""
    return (
        is_load(statement)
        or is_scalar(statement)
        or isinstance(statement, (tirx.AllocBuffer, tirx.DeclBuffer))
    )


def _require_loads(common: list[Stmt], own: list[Stmt]) -> None:
    loads = [one for one in common if is_load(one)]
    tiles = {one.args[0].source for one in loads}
    if not loads:
        raise Decline("The loop loads nothing, so there are no stages that tell whose turn it is.")
    for one in common:
        if is_scalar(one) and tiles & effects(one).reads:
            raise Decline("A scalar of the loop comes from a tile; read it from global memory.")


def _of_first(statement: Stmt, warpgroup: Var) -> Stmt:
    """A statement of the first warpgroup; what synchronises itself goes on doing so."""
    first = T.EQ(warpgroup, 0)
    statement = ir.substitute(statement, {warpgroup: tirx.const(0, "int32")})
    if isinstance(statement, tirx.AttrStmt) and statement.attr_key == ORCHESTRATED:
        return ir.with_body(statement, [ir.when(first, [statement.body])])
    return ir.when(first, [statement])


def _sums(own: list[Stmt]) -> list[Buffer]:
    """The accumulators of the products, which are all that the steps have in common."""
    found = dict.fromkeys(one.args[0].source for one in own if is_gemm(one))
    for one in own:
        if not is_gemm(one) and not is_nest(one) and not isinstance(one, TilePrimitiveCall):
            raise Decline("The loop has loops or branches in it, so its steps take no turns.")
    return list(found)


def _require_private(own: list[Stmt], sums: list[Buffer], others: list[Stmt]) -> None:
    """Whatever else the steps write they make anew, and nothing reads it afterwards."""
    written: set[Buffer] = set()
    made = {b for one in own for b in effects(one).writes} - set(sums)
    for one in own:
        found = effects(one)
        early = (found.reads & made) - written
        if early or any(not is_tile(tile) or is_shared(tile) for tile in found.writes):
            name = sorted(tile.name for tile in early or found.writes)[0]
            raise Decline(
                f"A step of the loop writes {name}, which is shared memory or read by another "
                "step, so steps take no turns."
            )
        if not is_gemm(one) and found.writes & set(sums):
            raise Decline("The loop changes its accumulators itself, so its steps take no turns.")
        written |= found.writes
    for one in others:
        if not isinstance(one, tirx.AllocBuffer) and made & effects(one).reads:
            name = sorted(tile.name for tile in made & effects(one).reads)[0]
            raise Decline(f"The tile {name} is used after the loop that makes it in turns.")


def _require_started(before: list[Stmt], tiles: list[Buffer]) -> None:
    """Each warpgroup adds to what it finds: zeros, else they would count several times."""
    for tile in tiles:
        starts = [one for one in before if is_nest(one) and tile in effects(one).writes]
        if not starts or not _is_zero(starts[-1]):
            raise Decline(
                f"The accumulator {tile.name} does not start as zero, so that warpgroups that "
                "take turns would all add what it is; use accum=step > 0, or zero it."
            )


def _is_zero(statement: Stmt) -> bool:
    while isinstance(statement, tirx.For):
        statement = statement.body
    value = statement.value if isinstance(statement, tirx.BufferStore) else None
    return isinstance(value, (tirx.FloatImm, tirx.IntImm)) and value.value == 0


def _require_registers_only(before: list[Stmt]) -> None:
    """What precedes the loop every warpgroup executes."""
    for one in before:
        if _is_common(one):
            continue
        if not all(is_tile(tile) and not is_shared(tile) for tile in effects(one).writes):
            raise Decline(
                "A statement before the loop writes to memory that warpgroups share; each of those "
                "that take turns would write there."
            )


def _is_overwritten(own: list[Stmt], tile: Buffer, loop: tirx.For) -> bool:
    """Whether the products of step 0 overwrite an accumulator; else all of them add to it."""
    forms = [accumulates(one) for one in own if is_gemm(one) and one.args[0].source.same_as(tile)]
    if all(form is True for form in forms):
        return False
    (form, *rest) = forms
    after_first = isinstance(form, tirx.GT) and form.a.same_as(loop.loop_var)
    zeros = ir.is_constant(loop.min, 0) and after_first and ir.is_constant(form.b, 0)
    if zeros and not rest:
        return True
    raise Decline(
        f"Products add to {tile.name} where {form}; warpgroups take turns where that is "
        f"{loop.loop_var.name} > 0, or True."
    )


def _accumulating(statement: Stmt) -> Stmt:
    """A product that adds to its accumulator in every step."""
    if not is_gemm(statement):
        return statement
    *args, _ = statement.args
    return ir.tile_call(statement, *args, tirx.const(True, "bool"))


def _place(tile: Buffer, count: int) -> Buffer:
    """Shared memory for the sums of all warpgroups but the first."""
    shape = (count - 1, *tile.shape)
    return tirx.decl_buffer(shape, str(tile.dtype), f"{tile.name}_sums", scope="shared")


def _nest(tile: Buffer, value: Any) -> Stmt:
    """``value(tile, i, j)``, a store, for all elements of a tile."""
    indices = [Var(name, "int32") for name in "ij"]
    body = value(*indices)
    for index, extent in reversed(list(zip(indices, tile.shape, strict=True))):
        body = ir.loop(index, int(extent), [body])
    return body


def _zero(tile: Buffer) -> Stmt:
    zero = tirx.const(0, str(tile.dtype))
    return _nest(tile, lambda i, j: tirx.BufferStore(tile, zero, [i, j]))


def _leave(tile: Buffer, place: Buffer, warpgroup: Var) -> Stmt:
    return _nest(
        tile, lambda i, j: tirx.BufferStore(place, tile[i, j], [warpgroup - 1, i, j])
    )


def _add(tile: Buffer, place: Buffer, count: int) -> Stmt:
    def total(i: Var, j: Var) -> Stmt:
        value = tile[i, j]
        for other in range(count - 1):
            value = value + place[other, i, j]
        return tirx.BufferStore(tile, value, [i, j])

    return _nest(tile, total)
