"""Which expressions a tile program may have."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.ir import Call, Op

from warploom.errors import TileProgramError
from warploom.language.random import function_of
from warploom.language.rules.nests import text
from warploom.language.values.expressions import FUNCTIONS
from warploom.tile.device_question import is_question

#: Calls with a meaning of their own, beside :data:`FUNCTIONS` of numbers.
_SPECIAL = ("if_then_else", "likely", "reinterpret")
#: Ops in which each thread of a CTA, a warp or a loop has to take part, by name.
_MEETINGS = {
    "tirx.break_loop": "break",
    "tirx.continue_loop": "continue",
    "tirx.cuda.cta_sync": "cta_sync",
    "tirx.cuda.warp_sync": "warp_sync",
    "tirx.cuda.warpgroup_sync": "warpgroup_sync",
    "tirx.cuda.cluster_sync": "cluster_sync",
    "tirx.cuda.grid_sync": "grid_sync",
    "tirx.ptx.setmaxnreg": "setmaxnreg",
}
_MEETING_FAMILIES = ("tirx.ptx.bar_", "tirx.ptx.barrier_", "tirx.ptx.wgmma_")


def require_expression(expression: Any) -> None:
    """Check the functions that an expression calls.

    Raises
    ------
    TileProgramError
        If one of them has no meaning in a tile program.
    """
    calls: list[Call] = []
    if isinstance(expression, tvm_ffi.Object):
        tvm_ffi.structural_walk(expression, (Call, calls.append), order="pre")
    for call in calls:
        if is_question(call) or function_of(call) is not None:  # of a pass; random numbers
            continue
        name = str(call.op.name) if isinstance(call.op, Op) else text(call)
        if name in _MEETINGS or name.startswith(_MEETING_FAMILIES):
            raise TileProgramError(
                f"the program has the statement {_MEETINGS.get(name, name)}, in which threads take "
                "part, and no threads; passes write what it needs, so leave it out, or define ids "
                "of threads."
            )
        if name == "tirx.cuda.printf":
            raise TileProgramError(
                "threads print with T.cuda.printf, and a tile program has none; write "
                "wl.print(text, values), which prints once for each CTA."
            )
        if name.startswith("tirx.cuda.atomic_"):
            update = name.rpartition(".")[2]
            raise TileProgramError(
                f"threads update memory with T.cuda.{update}, and a tile program has none; write "
                "wl.atomic_add, atomic_max or atomic_min of an element in a nest, or of a tile "
                "Tx.cta.atomic_add and so on."
            )
        if name.rpartition(".")[2] not in (*_SPECIAL, *FUNCTIONS):
            raise TileProgramError(
                f"function {name} is not defined for tile programs; allowed are "
                f"{', '.join(_SPECIAL[:-1])}, {_SPECIAL[-1]} and {', '.join(sorted(FUNCTIONS))}."
            )
