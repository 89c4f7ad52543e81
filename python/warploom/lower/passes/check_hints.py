"""Hints that contradict the program, so that no lowering can follow them."""

from __future__ import annotations

from collections.abc import Iterator

import tvm_ffi
from tvm import tirx
from tvm.tirx import PrimFunc

from warploom.tile.annotations import PIPELINED, STAGES
from warploom.tile.hint_attributes import hint_statements
from warploom.tile.hints import HINT_KEYS, HINT_OF_KEY
from warploom.tile.program import TileProgram


def check_hints(program: TileProgram) -> TileProgram:
    """Note the hints that contradict the program, or that stand where no pass reads them."""
    for hint, reason in _unfollowed(program):
        program = program.not_followed(hint, reason)
    return program


def _unfollowed(program: TileProgram) -> Iterator[tuple[str, str]]:
    hints = program.hints
    for hint in dict.fromkeys(misplaced(program.func)):
        yield hint, "it stands behind other statements; write it directly after T.device_entry()"
    if hints.stages is not None:
        loops = _pipelined(program)
        if not loops:
            yield "stages", "the program has no pipelined loop; write wl.pipelined, or leave it out"
        elif all(STAGES in loop.annotations for loop in loops):
            yield "stages", "every pipelined loop has stages= of its own; leave out one of them"
    if hints.reduce_through is not None and not hints.stream_k and (hints.split_k or 1) == 1:
        yield "reduce_through", "no CTAs share a tile; ask for split_k or stream_k, or leave it out"


def misplaced(func: PrimFunc) -> list[str]:
    """Hints that stand where :func:`~warploom.tile.hint_attributes.read_hints` does not look."""
    read = hint_statements(func)
    hints: list[str] = []

    def visit(attribute: tirx.AttrStmt) -> None:
        key = str(attribute.attr_key)
        if key in HINT_KEYS and not any(attribute.same_as(known) for known in read):
            hints.append(HINT_OF_KEY[key])

    tvm_ffi.structural_walk(func.body, (tirx.AttrStmt, visit))
    return hints


def _pipelined(program: TileProgram) -> list[tirx.For]:
    loops: list[tirx.For] = []

    def visit(loop: tirx.For) -> None:
        if PIPELINED in loop.annotations:
            loops.append(loop)

    for statement in program.body:
        tvm_ffi.structural_walk(statement, (tirx.For, visit))
    return loops
