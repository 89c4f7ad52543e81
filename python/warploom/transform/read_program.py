"""Takes the function that an author wrote apart, and tells which functions are tile programs.

What a tile program cannot have, since passes decide about threads, is declined here by name.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.tirx import PrimFunc, Stmt

from warploom.language.hints import DEVICE_ENTRY, PREFIX, read_hints
from warploom.language.mbarrier import LOADING
from warploom.language.span import span_name
from warploom.target import SM90A
from warploom.transform import ir
from warploom.transform.decline import Decline
from warploom.transform.program import (
    KINDS,
    Id,
    TileProgram,
    device_entries,
    needs_place,
    parent_and_child,
)

#: What each thread of a CTA, a warp or a loop has to take part in, by the name of its op.
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


def is_tile_program(func: PrimFunc) -> bool:
    """Whether a function is written in this dialect: a hint, a pipelined loop or a tile scope.

    Spans alone leave a kernel as it is.
    """
    found = False

    def attr(one: tirx.AttrStmt) -> None:
        nonlocal found
        found |= one.attr_key.startswith(PREFIX) and span_name(one) is None

    def for_loop(one: tirx.For) -> None:
        nonlocal found
        found |= any(key.startswith(PREFIX) for key in one.annotations)

    def alloc(one: tirx.AllocBuffer) -> None:
        nonlocal found
        found |= needs_place(one.buffer)

    for entry in device_entries(func):
        tvm_ffi.structural_walk(
            entry, [(tirx.AttrStmt, attr), (tirx.For, for_loop), (tirx.AllocBuffer, alloc)]
        )
    return found


def read(func: PrimFunc, arch: str = SM90A.name) -> TileProgram:
    """Take a function apart.

    Raises
    ------
    Decline
        If it has no device part, several, no ``T.cta_id``, a while loop, or, without threads, a
        statement that threads execute together.
    """
    entries = device_entries(func)
    if not entries:
        raise Decline("The function has no device entry; write T.device_entry() in it.")
    if len(entries) > 1:
        raise Decline(
            f"The function has {len(entries)} device entries; a tile program has one, so give each "
            "kernel a function of its own."
        )
    (entry,) = entries
    by_hand = _defines_threads(entry)
    ids: list[Id] = []
    attrs: list[tuple[str, Any]] = []
    body: list[Stmt] = []

    def take(statement: Stmt) -> None:
        for one in ir.flatten(statement):
            attribute = isinstance(one, tirx.AttrStmt)
            if attribute and one.attr_key not in (DEVICE_ENTRY, LOADING) and not body:
                if not one.attr_key.startswith(PREFIX):
                    attrs.append((one.attr_key, one.value))
                take(one.body)
            elif isinstance(one, tirx.ScopeIdDefStmt) and not by_hand:
                ids.append(_id(getattr(one, "def")))
            else:
                body.append(one)

    take(entry.body)
    if not by_hand:
        tvm_ffi.structural_walk(entry.body, (tirx.While, _decline_while))
        tvm_ffi.structural_walk(entry.body, (tirx.Evaluate, _decline_meeting))
    if not by_hand and not any(one.kind == "cta" for one in ids):
        raise Decline("The kernel does not say how many CTAs it has; write T.cta_id([...]).")
    return TileProgram(
        func, tuple(ids), read_hints(func), tuple(attrs), tuple(body), arch=arch, by_hand=by_hand
    )


def _defines_threads(entry: Stmt) -> bool:
    """Whether a kernel tells more apart than CTAs."""
    found = False

    def visit(one: tirx.ScopeIdDefStmt) -> None:
        nonlocal found
        found |= parent_and_child(getattr(one, "def")) != KINDS["cta"]

    tvm_ffi.structural_walk(entry, (tirx.ScopeIdDefStmt, visit))
    return found


def _decline_while(_: tirx.While) -> None:
    raise Decline("The program has a while loop; in a tile program, loops are for loops.")


def _decline_meeting(one: tirx.Evaluate) -> None:
    call = one.value
    name = str(call.op.name) if isinstance(call, Call) and isinstance(call.op, Op) else ""
    if name in _MEETINGS or name.startswith(_MEETING_FAMILIES):
        raise Decline(
            f"The program has the statement {_MEETINGS.get(name, name)}, in which threads take "
            "part, and no threads; passes write what it needs, so leave it out, or define ids of "
            "threads."
        )


def _id(definition: tirx.ScopeIdDef) -> Id:
    kinds = {tuple(pair): kind for kind, pair in KINDS.items()}
    kind = kinds[parent_and_child(definition)]
    return Id(kind, tuple(definition.def_ids), tuple(definition.extents or ()))
