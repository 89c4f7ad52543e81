"""Gives every pipelined loop its number of stages: how many iterations its loads run ahead."""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.tirx import Stmt

from warploom.lower.analysis.room_for_stages import stages_by_room
from warploom.tile import ir
from warploom.tile.annotations import PIPELINED, STAGES
from warploom.tile.program import TileProgram


def plan_stages(program: TileProgram) -> TileProgram:
    """Annotate the pipelined loops whose author has not said how many stages they have.

    The hint ``stages`` says it for all of them; without it shared memory decides. Later passes read
    the annotation of a loop alone.
    """
    stages, why = program.hints.stages, "as the hint says"
    if stages is None:
        stages, why = stages_by_room(program)
    sentences: list[str] = []

    def annotate(loop: tirx.For) -> Stmt:
        if PIPELINED not in loop.annotations or STAGES in loop.annotations:
            return loop
        plural = "s" * (stages > 1)
        sentences.append(f"loop over {loop.loop_var.name}: {stages} stage{plural}, {why}")
        notes = {**loop.annotations, STAGES: stages}
        return ir.loop(
            loop.loop_var, loop.extent, [loop.body], notes, loop.kind, loop.min, loop.step
        )

    body = [
        tvm_ffi.structural_map(statement, (tirx.For, annotate), order="post")
        for statement in program.body
    ]
    return program.replace(body=tuple(body)).decided(*sentences)
