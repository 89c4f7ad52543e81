"""Statements of a tile program that are legal and probably a mistake: one warning each.

Every rule is a function from the statements of a program to findings. A finding is issued as a
:class:`~warploom.errors.TileProgramWarning` at the author's line; ``tvm.compile`` and
``wl.interpret`` both do so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tvm import sym, tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, PrimFunc, Stmt, Var

from warploom.errors import TileProgramWarning
from warploom.language.pipelined import PIPELINED, STAGES
from warploom.language.statements import Leaf, Statements, statements_of
from warploom.spans import file_of, flat
from warploom.tile import ir
from warploom.warn import warn

#: The mistake with its fix, and the statement.
Finding = tuple[str, Stmt]

_PACKAGE = f"{Path(__file__).parents[1]}/"
_COPIES = ("copy", "copy_async")
_TILES = ("shared", "accumulator", "fragment", "tmem")


def warn_of_mistakes(func: PrimFunc) -> None:
    """Issue a warning for each statement of a tile program that is probably a mistake.

    Kernels that are orchestrated by hand, and the package's own programs, are not looked at.
    """
    try:
        mistakes = findings(func)
    except Exception:  # a program that breaks a rule is refused by the interpreter or the lowering
        return
    for text, statement in mistakes:
        span = getattr(statement, "span", None)
        places = list(flat(span))
        if not places or not all(file_of(one).startswith(_PACKAGE) for one in places):
            warn(text, TileProgramWarning, span)


def findings(func: PrimFunc) -> list[Finding]:
    """The findings of the rules in a function."""
    program = statements_of(func)
    if program.by_hand:
        return []
    return [finding for rule in RULES for finding in rule(program)]


def _lost_sums(program: Statements) -> Iterator[Finding]:
    """An MMA that starts anew in each step of a loop, in which no statement reads it."""
    for leaf in program.leaves:
        if leaf.name != "gemm_async":
            continue
        to = leaf.statement.args[0]
        inner: dict[Var, Any] = {}
        for loop in reversed(leaf.loops):
            if _read_within(program, loop, to.source) or leaf.is_guarded_in(loop):
                break
            second = {**inner, loop.loop_var: loop.min + 1}
            inner[loop.loop_var] = loop.min
            if _trips(loop) in (0, 1) or ir.uses(to.region) & program.changes(loop):
                continue
            if _is_false(program, leaf.accumulate, second):
                name = loop.loop_var.name
                yield (
                    f"The MMA into {to.source.name} starts anew in each step of the loop over "
                    f"{name}, in which nothing reads it, so only the last step counts; write "
                    f"accum={name} > {loop.min}.",
                    leaf.statement,
                )
                break


def _read_within(program: Statements, loop: tirx.For, tile: Buffer) -> bool:
    """Whether a statement of a loop reads a tile, apart from MMAs that add to it."""
    return any(leaf.is_in(loop) for leaf in program.readers(tile))


def _is_false(program: Statements, value: Any, table: dict[Var, Any]) -> bool:
    if isinstance(value, bool):
        return not value
    known = sym.Analyzer().simplify(ir.substitute(program.expanded(value), table))
    return isinstance(known, tirx.IntImm) and not int(known)


def _rests(program: Statements) -> Iterator[Finding]:
    """Steps of copies that end before the dimension they go along."""
    for leaf in program.leaves:
        if leaf.name not in _COPIES:
            continue
        for position, verb in ((1, "loaded"), (0, "stored")):
            part = leaf.statement.args[position]
            if isinstance(part, TensorRegion) and part.source not in program.tiles:
                yield from _rests_of(program, leaf, part, position, verb)


def _rests_of(
    program: Statements, leaf: Leaf, part: TensorRegion, position: int, verb: str
) -> Iterator[Finding]:
    counters = {loop.loop_var: (loop, loop.min, loop.extent) for loop in leaf.loops}
    counters |= {var: (None, 0, extent) for var, extent in program.grid.items()}
    for axis, (start, size) in enumerate(ir.ranges(part)):
        start, whole = program.expanded(start), part.source.shape[axis]
        for var in ir.uses(start) & counters.keys():
            loop, first, count = counters[var]
            if not _is_step(start, var, first, size) or _elsewhere(
                program, leaf, part.source, position, axis, loop, start
            ):
                continue
            rest, step = _rest(program.expanded(count), size, whole), int(size)
            if rest is not None:
                units = f"steps of the loop over {var.name}" if loop else "CTAs"
                yield (
                    f"{part.source.name} is {verb} in {_text(count)} {units}, {step} elements "
                    f"each, along a dimension of {_text(whole)}: the last {rest} are not; write "
                    f"T.ceildiv({_text(whole)}, {step}), as copies read zeros and write nothing "
                    "beyond the end.",
                    leaf.statement,
                )


def _is_step(start: Any, var: Var, first: Any, size: Any) -> bool:
    """Whether a start is 0 in the first step, and moves by the size of the part in each."""
    analyzer = sym.Analyzer()
    if not isinstance(size, tirx.IntImm):
        return False
    begin = analyzer.simplify(ir.substitute(start, {var: ir.as_expr(first)}))
    move = analyzer.simplify(ir.substitute(start, {var: var + 1}) - start)
    return ir.is_constant(begin, 0) and ir.is_constant(move, int(size))


def _elsewhere(
    program: Statements, leaf: Leaf, buffer: Buffer, position: int, axis: int,
    loop: tirx.For | None, start: Any,
) -> bool:  # fmt: skip
    """Whether other statements see to the rest: those outside the loop, or with other starts."""
    for other in (program.writers, program.readers)[position](buffer):
        if other.statement.same_as(leaf.statement):
            continue
        if loop is not None and not other.is_in(loop):
            return True
        if other.name not in _COPIES:
            return True
        part = other.statement.args[position]
        if not sym.Analyzer().can_prove_equal(program.expanded(part.region[axis].min), start):
            return True
    return False


def _rest(count: Any, size: Any, whole: Any) -> str | None:
    """How much of a dimension the steps leave, less than one step of it; None if nothing."""
    analyzer = sym.Analyzer()
    left = analyzer.simplify(whole - count * size)
    if isinstance(left, tirx.IntImm):
        return str(int(left)) if 0 < int(left) < int(size) else None
    for divided in (tirx.floordiv(whole, size), tirx.truncdiv(whole, size)):
        known = analyzer.can_prove_equal(tirx.floormod(whole, size), 0)
        if analyzer.can_prove_equal(count, divided) and not known:
            return f"{_text(whole)} % {int(size)}"
    return None


def _unused_tiles(program: Statements) -> Iterator[Finding]:
    """Tiles that no statement reads."""
    for tile, allocation in program.tiles.items():
        if not tile.scope().startswith(_TILES) or any(program.readers(tile)):
            continue
        writers = list(program.writers(tile))
        if not writers:
            yield f"The tile {tile.name} is allocated and never used; leave it out.", allocation
        elif all(leaf.name in _COPIES for leaf in writers):
            yield (
                f"The tile {tile.name} is loaded and never used; use it, or leave out the copy.",
                writers[0].statement,
            )
        else:
            yield (
                f"The tile {tile.name} is computed and never used; store it with Tx.cta.copy, or "
                "leave it out.",
                writers[-1].statement,
            )


def _short_pipelines(program: Statements) -> Iterator[Finding]:
    """Pipelined loops with fewer steps than their stages."""
    for loop in program.loops:
        trips = _trips(loop)
        if PIPELINED not in loop.annotations or trips is None:
            continue
        name, stages = loop.loop_var.name, int(loop.annotations.get(STAGES, 1))
        if trips <= 1:
            yield (
                f"The pipelined loop over {name} has {trips} step{'s' * (trips != 1)}, so nothing "
                "is loaded ahead; make the tiles smaller, or write T.serial.",
                loop,
            )
        elif stages > trips:
            yield (
                f"The pipelined loop over {name} has {trips} steps and stages={stages}, of which "
                f"{stages - trips} stay empty in shared memory; write stages={trips}.",
                loop,
            )


def _same_places(program: Statements) -> Iterator[Finding]:
    """Copies in a loop whose place in global memory is the same in each step."""
    for leaf in program.leaves:
        if leaf.name not in _COPIES or not leaf.loops:
            continue
        loop = leaf.loops[-1]
        if _trips(loop) in (0, 1) or leaf.is_guarded_in(loop):
            continue
        to, source = leaf.statement.args[:2]
        changed = program.changes(loop)
        stores = to.source not in program.tiles
        outside = to if stores else source
        if outside.source in program.tiles or _depends(program, outside, changed):
            continue
        name = loop.loop_var.name
        if stores:
            text = (
                f"Each step of the loop over {name} stores to the same place of "
                f"{outside.source.name}, so only the last step counts; let the place depend on "
                f"{name}, or store behind the loop."
            )
        elif _only_writer(program, leaf, to.source) and outside.source not in changed:
            text = (
                f"Each step of the loop over {name} loads the same part of "
                f"{outside.source.name}; let the part depend on {name}, or load it before the "
                "loop."
            )
        else:
            continue
        yield text, leaf.statement


def _only_writer(program: Statements, leaf: Leaf, tile: Buffer) -> bool:
    return all(writer.statement.same_as(leaf.statement) for writer in program.writers(tile))


def _depends(program: Statements, part: TensorRegion, changed: set[Any]) -> bool:
    """Whether the place of a part of a buffer may change with the variables of a loop."""
    ends = [value for pair in ir.ranges(part) for value in pair]
    return any(ir.uses(program.expanded(ir.as_expr(end))) & changed for end in ends)


def _trips(loop: tirx.For) -> int | None:
    """How many iterations a loop has, if that is known."""
    return int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else None


def _text(expression: Any) -> str:
    """An expression as the author writes it, without the dtypes of its numbers."""
    return re.sub(r"T\.int\d+\((\d+)\)", r"\1", str(expression))


#: The rules, in the order of their findings.
RULES: tuple[Callable[[Statements], Iterator[Finding]], ...] = (
    _lost_sums, _rests, _unused_tiles, _short_pipelines, _same_places,
)  # fmt: skip
