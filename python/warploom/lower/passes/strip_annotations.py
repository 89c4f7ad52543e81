"""Drops the annotations of passes for other passes: a lowered program is plain TIRx.

One attribute of the function stays, ``warploom.lowered``: by it the dispatcher of tile primitives
knows that our op schedules come first (:mod:`warploom.ops.dispatch`).
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.tirx import Stmt

from warploom.lower.hopper.keep_loops import keep_loops
from warploom.ops.dispatch import LOWERED
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.hints import PREFIX, Hints
from warploom.tile.program import TileProgram


def strip_annotations(program: TileProgram) -> TileProgram:
    """Remove hints, and all annotations and attributes of the dialect; loops of MMAs stay loops."""

    def loop(node: tirx.For) -> Stmt:
        kept = {k: v for k, v in node.annotations.items() if not k.startswith(PREFIX)}
        if len(kept) == len(node.annotations):
            return node
        return ir.loop(
            node.loop_var, node.extent, [node.body], kept, node.kind, node.min, node.step
        )

    def attr(attribute: tirx.AttrStmt) -> Stmt:
        return attribute.body if attribute.attr_key.startswith(PREFIX) else attribute

    callbacks = [(tirx.For, loop), (tirx.AttrStmt, attr)]
    body = [
        tvm_ffi.structural_map(statement, callbacks, order="post") for statement in program.body
    ]
    if program.arch == SM90A.name:
        body = list(map(keep_loops, body))
    flat = tuple(leaf for statement in body for leaf in ir.flatten(statement))
    func = program.func.with_attr(LOWERED, True)
    return program.replace(func=func, body=flat, hints=Hints(), passes=False)
