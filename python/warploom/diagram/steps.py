"""What a role does, line by line, from its statements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.diagram.parts import Step
from warploom.tile.barrier_uses import WAIT, BarrierUse, barrier_uses
from warploom.tile.scopes import is_global
from warploom.tile.statement import (
    Block,
    Copy,
    ForLoader,
    Load,
    Loop,
    Mma,
    Nest,
    Statement,
    Store,
    While,
)

#: Kinds of steps, in the order in which a picture explains them.
KINDS = ("wait", "load", "mma", "compute", "store", "signal", "loop")
_SIGNALS = {
    "expect": "announce bytes to", "arrive": "arrive at", "commit": "MMAs arrive at",
}  # fmt: skip


def steps_of(block: Block, depth: int = 0) -> tuple[Step, ...]:
    """The steps of statements; equal steps that follow each other are one."""
    merged: list[tuple[Step, int]] = []
    for step in _steps(block, depth):
        if merged and merged[-1][0] == step and step.kind != "loop":
            merged[-1] = step, merged[-1][1] + 1
        else:
            merged.append((step, 1))
    return tuple(
        step if count == 1 else Step(step.kind, f"{step.text}, {count} times", step.depth)
        for step, count in _folded(merged)
    )


def _folded(steps: list[tuple[Step, int]]) -> list[tuple[Step, int]]:
    """Sequences of steps that repeat at once, as an unrolled epilogue has them, are one."""
    result: list[tuple[Step, int]] = []
    at = 0
    while at < len(steps):
        for length in range(1, min(12, (len(steps) - at) // 2) + 1):
            unit, count = steps[at : at + length], 1
            while steps[at + count * length : at + (count + 1) * length] == unit:
                count += 1
            same = len({step.depth for step, _ in unit}) == 1
            if count > 1 and length > 1 and same:
                depth = unit[0][0].depth
                result.append((Step("loop", f"{count} times, for parts of the tile:", depth), 1))
                result += [(Step(s.kind, s.text, s.depth + 1), times) for s, times in unit]
                at += count * length
                break
        else:
            result.append(steps[at])
            at += 1
    return result


def _steps(block: Block, depth: int) -> Iterator[Step]:
    for statement in block:
        own = _step(statement, depth)
        if own is not None:
            yield own
            continue
        inner_depth = depth + _is_loop(statement)
        inside = [step for part in statement.blocks for step in _steps(part, inner_depth)]
        if inside and _is_loop(statement):
            yield Step("loop", _loop_text(statement), depth)
        yield from inside


def _is_loop(statement: Statement) -> bool:
    unrolled = isinstance(statement, Loop) and statement.raw.kind == tirx.ForKind.UNROLLED
    return isinstance(statement, (Loop, While)) and not unrolled


def _loop_text(statement: Statement) -> str:
    if not isinstance(statement, Loop):
        return "while there are tiles:"
    if statement.over_tiles:
        return "for each tile of this CTA:"
    extent = statement.extent
    count = str(int(extent)) if isinstance(extent, tirx.IntImm) else "dynamically many"
    stages = f", {statement.stages} stages" if statement.pipelined and statement.stages else ""
    return f"for {statement.var.name} in {count} iterations{stages}:"


def _step(statement: Statement, depth: int) -> Step | None:
    match statement:
        case Mma():
            a, b = (operand.source.name for operand in statement.operands)
            return Step("mma", f"{statement.d.name} += {a} x {b}", depth)
        case Load() | Statement(raw=TilePrimitiveCall()) if _fills_shared(statement):
            to, source = (region.source for region in statement.raw.args[:2])
            return Step("load", f"load {to.name} from {source.name}", depth)
        case Store():
            return Step("store", f"store {statement.to.source.name}", depth)
        case Copy():
            names = statement.to.source.name, statement.source.source.name
            return Step("compute", f"{names[0]} <- {names[1]}", depth)
        case Nest():
            names = dict.fromkeys(str(store.buffer.name) for store in _stores(statement))
            return Step("compute", f"compute {', '.join(names)}", depth)
        case Statement(raw=TilePrimitiveCall()):
            return Step("compute", _primitive(statement.raw), depth)
        case Statement(raw=tirx.BufferStore(buffer=buffer)) if is_global(buffer):
            return Step("store", f"store {buffer.name}", depth)
        case ForLoader() if statement.blocks:
            return None
        case Statement(raw=tirx.Evaluate()):
            return _barrier_step(barrier_uses([statement.raw]), depth)
    return None


def _barrier_step(uses: list[BarrierUse], depth: int) -> Step | None:
    for use in uses:
        if use.kind == WAIT:
            return Step("wait", f"wait for {use.barrier}", depth)
        if use.kind in _SIGNALS:
            return Step("signal", f"{_SIGNALS[use.kind]} {use.barrier}", depth)
    return None


def _fills_shared(statement: Statement) -> bool:
    arguments = statement.raw.args
    return isinstance(statement, Load) or (
        isinstance(statement, ForLoader) and len(arguments) >= 2
        and all(hasattr(one, "source") for one in arguments[:2])
    )  # fmt: skip


def _stores(statement: Nest) -> list[Any]:
    return statement.stores


def _primitive(raw: TilePrimitiveCall) -> str:
    name = str(raw.op.name).rpartition(".")[2]
    first = raw.args[0] if len(raw.args) else None
    target = f" {first.source.name}" if hasattr(first, "source") else ""
    return f"{name}{target}"
