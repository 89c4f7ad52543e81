"""Drops what passes have told each other: a lowered program is plain TIRx.

One attribute of the function stays, ``warploom.lowered``: by it the dispatcher of tile primitives
knows that our op schedules come first (:mod:`warploom.ops.dispatch`).
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.tirx import Stmt

from warploom.ops.dispatch import LOWERED
from warploom.tile import ir
from warploom.tile.hints import PREFIX, Hints
from warploom.tile.program import TileProgram


def strip_annotations(program: TileProgram) -> TileProgram:
    """Remove hints, and all annotations and attributes of the dialect."""

    def loop(one: tirx.For) -> Stmt:
        kept = {k: v for k, v in one.annotations.items() if not k.startswith(PREFIX)}
        if len(kept) == len(one.annotations):
            return one
        return ir.loop(one.loop_var, one.extent, [one.body], kept, one.kind, one.min, one.step)

    def attr(one: tirx.AttrStmt) -> Stmt:
        return one.body if one.attr_key.startswith(PREFIX) else one

    callbacks = [(tirx.For, loop), (tirx.AttrStmt, attr)]
    body = [tvm_ffi.structural_map(one, callbacks, order="post") for one in program.body]
    flat = tuple(one for statement in body for one in ir.flatten(statement))
    func = program.func.with_attr(LOWERED, True)
    return program.replace(func=func, body=flat, hints=Hints(), passes=False)
