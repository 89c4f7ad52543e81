"""A grid without a CTA computes nothing, so nothing is launched.

How many rows there are may be known at the launch alone, and may be none. The driver encodes no
tensor map of a matrix without rows (CUDA driver API, ``cuTensorMapEncodeTiled``).
"""

from __future__ import annotations

import functools
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from warploom.tile import ir
from warploom.tile.ids import KINDS, parent_and_child
from warploom.tile.program import TileProgram


def skip_empty(lowered: PrimFunc, program: TileProgram, of_host: int = 0) -> PrimFunc:
    """The lowered function, which does nothing where the program has no CTA.

    Parameters
    ----------
    lowered : PrimFunc
        The lowered ``program``.
    program : TileProgram
        Before passes have chosen another grid.
    of_host : int
        Statements of the author before the kernel: they are executed in any case, as the number of
        CTAs may depend on them.
    """
    counts = [extent for extent in _grid(program) if not isinstance(extent, tirx.IntImm)]
    if not counts:
        return lowered
    some = functools.reduce(T.And, (extent > 0 for extent in counts))
    statements = ir.flatten(lowered.body)
    kernel = ir.when(some, statements[of_host:])
    return lowered.with_body(ir.seq([*statements[:of_host], kernel]))


def _grid(program: TileProgram) -> list[Any]:
    """The extents of the grid; none of a kernel by hand that does not say them."""
    if not program.by_hand:
        return [ir.as_expr(extent) for extent in program.id("cta").extents]
    extents: list[Any] = []

    def visit(statement: tirx.ScopeIdDefStmt) -> None:
        definition = getattr(statement, "def")
        if parent_and_child(definition) == KINDS["cta"] and definition.extents is not None:
            extents.extend(definition.extents)

    for statement in program.body:
        tvm_ffi.structural_walk(statement, (tirx.ScopeIdDefStmt, visit))
    return extents
