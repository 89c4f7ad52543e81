"""A grid without a CTA computes nothing, so nothing is launched.

How many rows there are may be known at the launch alone, and may be none. The driver encodes no
tensor map of a matrix without rows (CUDA driver API, ``cuTensorMapEncodeTiled``).
"""

from __future__ import annotations

import functools

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from warploom.tile import ir
from warploom.tile.program import TileProgram


def skip_empty(lowered: PrimFunc, program: TileProgram) -> PrimFunc:
    """The lowered function, which does nothing where the program has no CTA.

    Parameters
    ----------
    lowered : PrimFunc
        The lowered ``program``.
    program : TileProgram
        Before passes have chosen another grid.
    """
    if program.by_hand:
        return lowered
    extents = (ir.as_expr(extent) for extent in program.id("cta").extents)
    counts = [extent for extent in extents if not isinstance(extent, tirx.IntImm)]
    if not counts:
        return lowered
    some = functools.reduce(T.And, (extent > 0 for extent in counts))
    return lowered.with_body(ir.when(some, [lowered.body]))
