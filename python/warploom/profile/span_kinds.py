"""Which span of a timeline a statement of a role belongs to.

Statements are told apart as passes have written them, tiles still whole: waits for mbarriers,
loads, MMAs, and work on registers. What is none of these (scalars, arrivals, barriers of
threads) is part of a span only between two statements of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tvm import tirx
from tvm.ir import Call
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile.mbarriers import read_address, read_operation
from warploom.tile.scopes import is_global
from warploom.tile.statement import (
    ForLoader,
    Instruction,
    Load,
    Loop,
    Mma,
    Nest,
    Scalar,
    Statement,
    While,
)

WAIT, LOAD, MMA, WORK = "wait", "load", "mma", "work"
#: Names of the work of threads on registers: within the loop of MMAs, and after it.
COMPUTE, EPILOGUE = "compute", "epilogue"
#: Categories of spans in the order that legends have.
CATEGORIES = (WAIT, LOAD, MMA, COMPUTE, EPILOGUE)

#: How the names of instructions begin that belong to MMAs.
_MMA_OPS = ("tirx.ptx.wgmma_", "tirx.ptx.tcgen05_commit", "tirx.ptx.tcgen05_mma")
#: Instructions with such names that order MMAs, and are none.
_ORDER_OPS = ("_fence", "_commit_group", "_wait_group", "_commit", "_commit_multicast")
#: Calls after which the statements that follow are not executed.
_JUMP_OPS = ("tirx.break_loop", "tirx.continue_loop", "tirx.thread_return")
_MMA_WAIT_OP = "tirx.ptx.wgmma_wait_group"
_WAIT_OP = "tirx.cuda.mbarrier_wait"
_JUMPS = (tirx.Break, tirx.Continue, tirx.Return)


def kinds(statement: Statement) -> set[str]:
    """The kinds of all parts of a statement: of ``WAIT``, ``LOAD``, ``MMA`` and ``WORK``."""
    own = _kind(statement)
    if own is not None:
        return {own}
    return {kind for inner in _inside(statement) for kind in kinds(inner)}


def _inside(statement: Statement) -> Iterator[Statement]:
    return chain.from_iterable(statement.blocks)


def _kind(statement: Statement) -> str | None:
    """The kind of a statement that is one as a whole."""
    match statement:
        case Mma():
            return MMA
        case Load() | ForLoader(copies=True):
            return LOAD
        case Scalar():
            return None
        case Nest() | Statement(raw=TilePrimitiveCall()):
            return WORK
        case Instruction(raw=tirx.BufferStore(buffer=buffer)):
            return WORK if is_global(buffer) else None
    operation = read_operation(statement.raw)
    if operation is not None and operation.kind in ("wait", "expect"):
        return WAIT if operation.kind == "wait" else LOAD
    name = _op_name(statement)
    if name == _WAIT_OP:
        return WAIT
    return MMA if name.startswith(_MMA_OPS) else None


def _op_name(statement: Statement) -> str:
    """The name of the op that a statement calls for its effect; empty if it does not."""
    call = statement.raw.value if isinstance(statement.raw, tirx.Evaluate) else None
    return str(getattr(call.op, "name", "")) if isinstance(call, Call) else ""


def jumps(statement: Statement) -> bool:
    """Whether a statement, or a part of it, leaves a loop, its trip or the kernel."""
    own = isinstance(statement.raw, _JUMPS) or _op_name(statement) in _JUMP_OPS
    return own or any(map(jumps, _inside(statement)))


def is_wait_for_mmas(statement: Statement) -> bool:
    """Whether a statement waits until MMAs of this warpgroup are complete."""
    return _op_name(statement) == _MMA_WAIT_OP


def is_mma(statement: Statement) -> bool:
    """Whether a statement is an MMA of tiles, or an instruction of one."""
    name = _op_name(statement)
    order = name.removeprefix("tirx.ptx.wgmma").removeprefix("tirx.ptx.tcgen05")
    multiplies = name.startswith(_MMA_OPS) and order not in _ORDER_OPS
    return multiplies or isinstance(statement, Mma)


def has_mmas(statement: Statement) -> bool:
    """Whether a statement multiplies, or is a loop that stands for that in another role."""
    return (
        _is_pipelined(statement)
        or is_mma(statement)
        or any(map(has_mmas, _inside(statement)))
    )


def is_mma_loop(statement: Statement) -> bool:
    """Whether a statement is a loop that multiplies itself, not only a loop within it does."""

    def multiplies(part: Statement) -> bool:
        return is_mma(part) or (not _is_loop(part) and any(map(multiplies, _inside(part))))

    return _is_loop(statement) and (
        _is_pipelined(statement) or any(map(multiplies, _inside(statement)))
    )


def _is_pipelined(statement: Statement) -> bool:
    return isinstance(statement, Loop) and statement.pipelined


def _is_loop(statement: Statement) -> bool:
    """Whether a statement is a loop, other than the author's way to write one several times."""
    unrolled = isinstance(statement, Loop) and statement.raw.kind == tirx.ForKind.UNROLLED
    return isinstance(statement, (Loop, While)) and not unrolled


def subjects(statement: Statement, kind: str) -> list[str]:
    """Names of the barriers, loaded tiles or accumulators of a statement's parts of a kind."""
    if kind == WAIT:
        operation = read_operation(statement.raw)
        if operation is not None:
            return [operation.barriers.name]
        if isinstance(statement.raw, tirx.Evaluate) and isinstance(statement.raw.value, Call):
            places = map(read_address, statement.raw.value.args)
            return [place.source.name for place in places if place is not None]
    elif isinstance(statement.raw, TilePrimitiveCall):
        return [statement.raw.args[0].source.name] if _kind(statement) == kind else []
    return [name for inner in _inside(statement) for name in subjects(inner, kind)]
