"""The original of a scheduled function, from before TVM's own rules scheduled it.

A builder gets functions that are scheduled. The decisions of a search can be removed from GEMMs,
and the rest computes the right result; the schedules of TVM's rules for other functions cannot be
undone. So the design space, which sees both, leaves a key in the scheduled function, and the
builder finds the original by it.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.ir import IRModule
from tvm.s_tir import SBlock, Schedule

#: The annotation of a function's outermost block. It is none of a GEMM's choices.
KEY = "warploom_original"
#: Functions by their keys, in the process with the search.
_known: dict[str, IRModule] = {}


def key_of(mod: IRModule) -> str:
    """Return the structural hash that all candidates of a task share, as hexadecimal digits."""
    return f"{tvm_ffi.structural_hash(mod) % 2**64:016x}"


def remember(mod: IRModule) -> str:
    """Keep a function that will be scheduled, for :func:`original_of`; returns its key."""
    key = key_of(mod)
    _known[key] = mod
    return key


def mark(sch: Schedule, key: str) -> None:
    """Leave the key in a schedule's function, as one of the steps of its trace."""
    sch.annotate(sch.get_sblock("root", "main"), KEY, key)


def original_of(mod: IRModule) -> IRModule | None:
    """The function that a candidate was made of; None if no design space of ours has marked it."""
    names: list[str] = []

    def visit(block: SBlock) -> None:
        value: Any = block.annotations.get(KEY)
        if value is not None:
            names.append(str(getattr(value, "value", value)))

    tvm_ffi.structural_walk(mod["main"].body, (SBlock, visit))
    return _known.get(names[0]) if names else None
