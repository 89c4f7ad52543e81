"""Runs of statements that one span covers: where they end, and the names of the spans."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.tirx import Buffer

from warploom.profile import span_kinds as kinds
from warploom.tile.statement import Allocation, Block, Scalar

#: Bits of a register.
_WORD_BITS = 32


def end_of_run(kinds_of: list[set[str]], start: int, kind: str) -> int:
    """The end of the statements from ``start`` on that are of a kind, or of none in between."""
    end = start + 1
    for number in range(start + 1, len(kinds_of)):
        if kinds_of[number] == {kind}:
            end = number + 1
        elif kinds_of[number]:
            break
    return end


def result_of(run: Block) -> Any:
    """A register of an MMA that the statements have waited for last, if that is complete."""
    waits = [i for i, statement in enumerate(run) if kinds.is_wait_for_mmas(statement)]
    after = run[waits[-1] :] if waits else ()
    if any(map(kinds.has_mmas, after)):
        return None
    views = [
        allocation.buffer
        for allocation in after
        if isinstance(allocation, Allocation) and not allocation.allocates
    ]
    words = [view for view in views if _is_words(view)]
    return words[-1][0] if words else None


def _is_words(view: Buffer) -> bool:
    """Whether a buffer is the registers of a tile, each of 32 bits."""
    return (
        view.scope() == "local" and len(view.shape) == 1
        and tvm.DataType(str(view.dtype)).bits == _WORD_BITS
    )  # fmt: skip


def with_arrivals(statements: Block, kinds_of: list[set[str]], end: int) -> int:
    """The end of a run with the arrivals that follow it.

    ptxas moves a wait for MMAs down to the first instruction that needs it, past a clock; to
    one that lets others overwrite the operands of the MMAs, if no statement needs a result.
    """
    while end < len(statements) and not kinds_of[end]:
        if isinstance(statements[end], Scalar):
            break
        end += 1
    return end


def named_after(run: Block, kind: str) -> str:
    subjects = dict.fromkeys(name for statement in run for name in kinds.subjects(statement, kind))
    if kind == kinds.MMA and not any(map(kinds.has_mmas, run)):
        return "mma: wait for results"
    return f"{kind} {', '.join(subjects)}".strip()


def category_of(name: str) -> str:
    """The category of a span that an author named: its first word, if that is one."""
    word = name.split()[0].rstrip(":") if name.split() else ""
    return word if word in kinds.CATEGORIES else kinds.COMPUTE
