"""Decisions on a product as annotations of the block with its sum.

Annotations are what TVM's traces, databases and structural hashes know, so decisions in that form
can be replayed, mutated and stored like those of any other schedule.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.s_tir import SBlock, Schedule
from tvm.tirx import IntImm, PrimFunc

from warploom.gemm.knobs import GemmKnobs

#: What the names of our annotations of blocks begin with.
PREFIX = "warploom."


def annotate(sch: Schedule, block: Any, values: dict[str, Any]) -> None:
    """Record decisions by the names of knobs; values are integers or random variables."""
    for key, value in values.items():
        sch.annotate(block, PREFIX + key, int(value) if isinstance(value, bool) else value)


def knobs_of(func: PrimFunc) -> GemmKnobs | None:
    """The decisions that a function is annotated with; None if there are none.

    Raises
    ------
    IllegalCombination
        If an annotation is no knob, or a value is out of range.
    """
    found: dict[str, int] = {}

    def visit(block: SBlock) -> None:
        for key, value in block.annotations.items():
            if key.startswith(PREFIX):
                found[key.removeprefix(PREFIX)] = _integer(value)

    tvm_ffi.structural_walk(func.body, (SBlock, visit))
    return GemmKnobs.of(found) if found else None


def has_decisions(func: Any) -> bool:
    """Whether a function of a module is in S-TIR and annotated."""
    if not isinstance(func, PrimFunc) or not (func.attrs or {}).get("s_tir", False):
        return False
    return knobs_of(func) is not None


def _integer(value: Any) -> int:
    return int(value.value) if isinstance(value, IntImm) else int(value)
