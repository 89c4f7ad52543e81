"""Decisions on a product as annotations of the block with its sum.

Annotations are what TVM's traces, databases and structural hashes know, so decisions in that form
can be replayed, mutated and stored like those of any other schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm.s_tir import SBlock, Schedule
from tvm.tirx import IntImm, PrimFunc

from warploom.decide.config import Config
from warploom.decide.old_records import read_config
from warploom.decide.problem import GemmProblem
from warploom.errors import IllegalCombination
from warploom.gemm.recognition import recognise
from warploom.tile.choices import BY_NAME

#: What the names of our annotations of blocks begin with.
PREFIX = "warploom."
#: What follows it where a decision holds for a few rows only: ``warploom.upto_16.tile_m``.
_LIMIT = "upto_"


def annotate(
    sch: Schedule, block: Any, values: Mapping[str, Any], limit: int | None = None
) -> None:
    """Record decisions.

    Parameters
    ----------
    block : SBlockRV
        The block with the sum.
    values : mapping from str
        As a config has them, as :meth:`Config.values` has them, or random variables of the
        schedule; by the names of choices.
    limit : int, optional
        The largest number of rows that they are for, where it is known at launch only; without
        it, they are for any.
    """
    prefix = PREFIX if limit is None else f"{PREFIX}{_LIMIT}{limit}."
    for key, value in values.items():
        if isinstance(value, bool | str):
            value = BY_NAME[key].kind.number(value)
        sch.annotate(block, prefix + key, value)


def decisions_of(
    func: PrimFunc, problem: GemmProblem | None = None
) -> list[tuple[int | None, Config]]:
    """The decisions that a function is annotated with, each with the largest number of rows.

    The smallest number is first; None, for any number, is last. Empty if there are none.

    Parameters
    ----------
    func : PrimFunc
    problem : GemmProblem, optional
        What the function computes, for whoever has recognised it already.

    Raises
    ------
    IllegalCombination
        If an annotation is no choice, a value is out of range, or none is for any number of rows.
    """
    decisions: dict[int | None, dict[str, int]] = {}
    for key, value in annotations_of(func).items():
        limit, _, name = key.rpartition(".")
        number = int(limit.removeprefix(_LIMIT)) if limit else None
        decisions.setdefault(number, {})[name] = value
    if decisions and None not in decisions:
        raise IllegalCombination(
            f"There are decisions for up to {max(decisions)} rows, and none for more of them."
        )
    ordered = sorted(decisions, key=lambda rows: (rows is None, rows))

    def recognised() -> GemmProblem:
        return problem or recognise(func).problem

    return [(limit, read_config(decisions[limit], recognised)) for limit in ordered]


def config_of(func: PrimFunc, problem: GemmProblem | None = None) -> Config | None:
    """The decisions for any number of rows; None if there are none.

    Raises
    ------
    IllegalCombination
        As :func:`decisions_of`.
    """
    decisions = decisions_of(func, problem)
    return decisions[-1][1] if decisions else None


def annotations_of(func: PrimFunc) -> dict[str, int]:
    """The annotations of a function, as written; empty if there are no decisions."""
    annotations: dict[str, int] = {}

    def visit(block: SBlock) -> None:
        for key, value in block.annotations.items():
            if key.startswith(PREFIX):
                annotations[key.removeprefix(PREFIX)] = _integer(value)

    tvm_ffi.structural_walk(func.body, (SBlock, visit))
    return annotations


def has_decisions(func: Any) -> bool:
    """Whether a function of a module is in S-TIR and annotated."""
    if not isinstance(func, PrimFunc) or not (func.attrs or {}).get("s_tir", False):
        return False
    return bool(annotations_of(func))


def _integer(value: Any) -> int:
    return int(value.value) if isinstance(value, IntImm) else int(value)
