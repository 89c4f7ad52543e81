"""Finds the loop of a program whose iterations can be computed apart and added.

That is one which loads tiles, makes operands of them and accumulates matmuls, where only the
results of the MMAs outlive an iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import Range
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.language.printing import has_prints
from warploom.tile import ir
from warploom.tile.effects import destination
from warploom.tile.nest import ElementStore, Guard
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global, is_tile
from warploom.tile.statement import (
    Block,
    Branch,
    Load,
    Loop,
    Mma,
    Nest,
    Scalar,
    Statement,
    raws,
    walk,
)

#: More iterations than any loop has.
_MANY = 1 << 30


@dataclass(frozen=True)
class SeparableLoop:
    """A loop whose iterations only add to accumulators, and the statements around it.

    Attributes
    ----------
    before, after : tuple of Statement
        Statements of the program; all allocations are among the first.
    loop : Loop
        The loop.
    sums : tuple of Buffer
        The accumulators.
    starts : tuple of Mma
        MMAs that overwrite their accumulator in the first iteration.
    outside : tuple of Statement
        Statements before the branch that the loop stands in.
    condition : Expr or None
        That of the branch; None if the loop stands in none. A tile for which it does not hold has
        nothing to compute.
    """

    before: Block
    loop: Loop
    after: Block
    sums: tuple[Buffer, ...]
    starts: tuple[Mma, ...]
    outside: Block = ()
    condition: Any = None

    def is_start(self, statement: Statement) -> bool:
        """Whether a statement overwrites an accumulator in the first iteration."""
        return any(statement.raw.same_as(start.raw) for start in self.starts)


#: Units that share a tile, as messages name them.
_CTAS = "CTAs that share a tile"


def separable_loop(program: TileProgram) -> SeparableLoop:
    """The loop of a program that accumulates matmuls.

    Raises
    ------
    Decline
        If there is none or several, or something but sums goes from iteration to iteration; the
        message names the statement.
    """
    statements = program.block
    places = [i for i, statement in enumerate(statements) if _count_mmas(statement)]
    outside, condition = (), None
    if len(places) == 1 and isinstance(statements[places[0]], Branch):
        outside, condition, statements = _in_branch(statements, places[0])
        places = [i for i, statement in enumerate(statements) if _count_mmas(statement)]
    if len(places) != 1 or not isinstance(statements[places[0]], Loop):
        where = "no loop of its own" if len(places) == 1 else f"{len(places)} places"
        raise Decline(
            f"The program has MMAs in {where}; CTAs can share a tile where one loop, which is "
            "in no other loop, and in one branch at most, has all MMAs, so leave out split_k and "
            "stream_k."
        )
    loop = separated(statements, places[0])
    _require_uniform(program, loop.loop, (*outside, *loop.before))
    return replace(loop, outside=outside, condition=condition)


def _in_branch(statements: Block, at: int) -> tuple[Block, Any, Block]:
    """Statements before a branch, its condition, and the statements in it.

    All CTAs of a tile must decide alike, at whatever time each of them comes to the branch.

    Raises
    ------
    Decline
        If it has another case, if statements follow, or if what it depends on may change.
    """
    branch = statements[at]
    assert isinstance(branch, Branch)
    allocated = tuple(statement for statement in statements[at + 1 :] if statement.allocates)
    outside = (*statements[:at], *allocated)
    if len(branch.blocks) > 1 or len(outside) + 1 < len(statements):
        raise Decline(
            f"The loop with the MMAs stands in a branch on {branch.condition}, which has another "
            f"case or is followed by statements, where {_CTAS} would each execute them; leave out "
            "split_k and stream_k."
        )
    stored = {buffer for buffer in branch.effects.writes if is_global(buffer)}
    read = {buffer for buffer in ir.uses(branch.condition) if ir.is_buffer(buffer)}
    read |= {buffer for statement in outside for buffer in statement.effects.reads}
    if changed := sorted(buffer.name for buffer in stored & read):
        raise Decline(
            f"The loop with the MMAs stands in a branch that depends on {changed[0]}, into which "
            f"the kernel stores; {_CTAS} may come to it at different times."
        )
    _require_no_prints(outside, _CTAS)
    return outside, branch.condition, branch.blocks[0]


def separated(statements: Block, at: int, units: str = _CTAS) -> SeparableLoop:
    """The loop that is statement ``at`` of a block, if its iterations can be computed apart.

    Parameters
    ----------
    who : str
        The units that compute them, for messages.

    Raises
    ------
    Decline
        If something but sums goes from iteration to iteration.
    """
    loop = statements[at]
    _require_no_prints(statements[: at + 1], units)
    allocated = [statement for statement in statements[at + 1 :] if statement.allocates]
    before = (*statements[:at], *allocated)
    after = tuple(statement for statement in statements[at + 1 :] if not statement.allocates)
    mmas = [mma for mma in loop.body if isinstance(mma, Mma)]
    if len(mmas) != _count_mmas(loop):
        raise Decline(
            f"An MMA in the loop over {loop.var.name} stands in another loop or branch; "
            f"{units} need it in the loop itself."
        )
    sums = tuple(dict.fromkeys(mma.d for mma in mmas))
    _require_no_carry(loop, set(sums), units)
    cleared = _cleared(before, sums)
    starts = tuple(
        start for tile in sums for start in _starts(mmas, tile, loop, tile in cleared)
    )
    _require_local(loop, sums, before, after, units)
    return SeparableLoop(before, loop, after, sums, starts)


def _require_no_prints(statements: Block, units: str) -> None:
    """Decline prints before or in the loop: each of the units executes them, with partial sums."""
    if any(map(has_prints, raws(statements))):
        raise Decline(
            f"A wl.print stands before the loop with the MMAs or in it, where {units} each "
            "have a part of the sums; print behind the loop, or leave out the hint."
        )


def _count_mmas(statement: Statement) -> int:
    return sum(isinstance(node, Mma) for node in walk((statement,)))


def _require_uniform(program: TileProgram, loop: Loop, before: Block) -> None:
    """All tiles have the same number of steps, which is known before any is begun."""
    own = set(program.id("cta").vars)
    own |= {scalar.variable for scalar in before if isinstance(scalar, Scalar)}
    used = {v for part in (loop.start, loop.extent) for v in ir.uses(part)}
    if variables := [v for v in used if v in own or ir.is_buffer(v)]:
        raise Decline(
            f"The extent of the loop over {loop.var.name} depends on {variables[0].name}, so that "
            "tiles may have different numbers of steps; CTAs share tiles only where all have the "
            "same, known from the arguments."
        )


def _cleared(before: Block, sums: tuple[Buffer, ...]) -> set[Buffer]:
    """Accumulators that are zero before the loop."""
    tiles: set[Buffer] = set()
    for statement in before:
        touched = statement.effects.touched
        for tile in sums:
            if tile in touched:
                if not _clears(statement, tile):
                    raise Decline(
                        f"A statement before the loop uses {tile.name}, and does not only set it "
                        f"to 0: {_text(statement)}; whoever has a part of the loop starts from 0."
                    )
                tiles.add(tile)
    return tiles


def _clears(statement: Statement, tile: Buffer) -> bool:
    if not isinstance(statement, Nest):
        return False
    extents = {loop.loop_var: int(loop.extent) for loop in statement.loops}
    part, *others = statement.parts
    return (
        not others
        and isinstance(part, ElementStore)
        and isinstance(part.value, (tirx.IntImm, tirx.FloatImm))
        and float(part.value.value) == 0
        and [extents.get(index) for index in part.indices] == [int(e) for e in tile.shape]
    )


def _starts(mmas: list[Mma], tile: Buffer, loop: Loop, cleared: bool) -> Iterator[Mma]:
    """The MMA that overwrites an accumulator in the first iteration, if one does."""
    for number, mma in enumerate(p for p in mmas if p.d.same_as(tile)):
        adds = mma.accumulates
        if adds is True and (number or cleared):
            continue
        if not number and adds is not True and adds is not False and _after_first(adds, loop):
            yield mma
            continue
        raise Decline(
            f"The MMA into {tile.name}, {_text(mma)}, does not add to what the iterations "
            f"before have summed; write accum={loop.var.name} > 0, or set {tile.name} to 0 "
            "before the loop."
        )


def _after_first(value: Any, loop: Loop) -> bool:
    """Whether an expression is false in the first iteration and true in all others."""
    analyzer, later = Analyzer(), Var("later", "int32")
    analyzer.bind(later, Range.from_min_extent(1, _MANY))
    first = analyzer.simplify(ir.substitute(value, {loop.var: loop.start}))
    then = ir.substitute(value, {loop.var: loop.start + later})
    return isinstance(first, tirx.IntImm) and not int(first) and analyzer.can_prove(then)


def _require_no_carry(loop: Loop, sums: set[Buffer], units: str) -> None:
    """Apart from sums, an iteration reads only tiles that it has written itself."""
    every = set(loop.effects.writes) - sums
    changing = {loop.var} | {buffer for buffer in every if not is_tile(buffer)}
    written: set[Buffer] = set()

    def visit(statements: Block, known: set[Buffer]) -> None:
        for statement in statements:
            for inner in statement.blocks:
                # A branch or a loop of unknown extent may not execute its writes.
                visit(inner, set(known))
            if statement.blocks:
                continue
            effects = statement.effects
            _require_order(statement, every - known, sums, loop, units)
            if not isinstance(statement, Load) and _moves(statement, changing):
                (name, *_) = sorted(buffer.name for buffer in effects.writes)
                raise Decline(
                    f"{_text(statement)} writes a part of {name} that depends on the iteration; "
                    f"{units} compute other iterations, so keep nothing between them."
                )
            known |= effects.writes

    visit(loop.body, written)


def _require_order(
    statement: Statement, open_: set[Buffer], sums: set[Buffer], loop: Loop, units: str
) -> None:
    effects = statement.effects
    if carried := sorted(b.name for b in effects.reads & open_):
        raise Decline(
            f"{carried[0]} goes from one iteration of the loop over {loop.var.name} to the "
            f"next, through {_text(statement)}; {units} can only add MMAs."
        )
    used = sorted(b.name for b in effects.touched & sums)
    if used and not isinstance(statement, Mma):
        raise Decline(
            f"{_text(statement)} uses the accumulator {used[0]} inside the loop; {units} have "
            "parts of the sum there, so use it after the loop."
        )
    if stored := sorted(b.name for b in effects.writes if is_global(b)):
        raise Decline(
            f"{_text(statement)} stores into {stored[0]} inside the loop; {units} do "
            "that after it only."
        )


def _moves(statement: Statement, changing: set[Any]) -> bool:
    """Whether a statement writes other elements in other iterations."""
    if isinstance(statement.raw, TilePrimitiveCall):
        places = [part.min for part in destination(statement.raw).region]
        return any(ir.uses(place) & changing for place in places)
    if not isinstance(statement, Nest):
        return False
    conditions = [guard.condition for guard in statement.parts if isinstance(guard, Guard)]
    if any(v in changing or ir.is_buffer(v) for c in conditions for v in ir.uses(c)):
        return True
    return any(ir.uses(index) & changing for store in statement.stores for index in store.indices)


def _require_local(
    loop: Loop, sums: tuple[Buffer, ...], before: Block, after: Block, units: str
) -> None:
    """Nothing but sums flows into the loop or out of it."""
    own = set(loop.effects.writes) - set(sums)
    for statement, read in [(s, False) for s in before] + [(s, True) for s in after]:
        effects = statement.effects
        shared = sorted(b.name for b in own & (effects.reads if read else effects.writes))
        if shared:
            where = "after" if read else "before"
            raise Decline(
                f"{shared[0]} is used in the loop over {loop.var.name} and {where} it, in "
                f"{_text(statement)}; {units} each know a part of the loop."
            )
        if not read and any(is_global(b) for b in effects.writes):
            raise Decline(
                f"{_text(statement)} stores to global memory before the loop, which all {units} "
                "would do; put it after the loop."
            )


def _text(statement: Statement) -> str:
    """A statement in one line, for messages."""
    return str(statement.raw).strip().splitlines()[-1].strip()
