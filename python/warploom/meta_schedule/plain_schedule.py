"""A schedule for sums of products that TVM's own rules for GPUs fail at, such as those in pairs.

Every block becomes a kernel of its own, in order; the results of each lie in global
memory. A thread keeps several sums in registers, so that nobody waits long for large GEMMs.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline

#: Threads of a block along rows and along columns of a result, and elements of each thread there.
_THREADS, _ELEMENTS = 16, 4


def scheduled_apart(mod: tvm.IRModule) -> tvm.IRModule | None:
    """The module with the blocks of ``main`` as kernels; None if these are no plain loops.

    Parameters
    ----------
    mod : IRModule
        With one function, as ``te`` makes it.
    """
    sch = Schedule(mod)
    blocks = normalize_prim_func(sch)
    if blocks is None:
        return None
    for block in try_inline(sch, blocks):
        loops = list(zip(sch.get_loops(block.block_rv), block.dom_kind(), strict=True))
        spatial = [loop for loop, kind in loops if kind == "S"]
        summed = [loop for loop, kind in loops if kind == "R"]
        if len(spatial) + len(summed) < len(loops):
            return None
        _schedule(sch, block.block_rv, spatial, summed)
    return sch.mod


def _schedule(sch: Schedule, block: Any, spatial: list[Any], summed: list[Any]) -> None:
    """Threads for one block: rows are all axes but the last, which is the columns."""
    while len(spatial) < 2:
        spatial.insert(0, sch.add_unit_loop(spatial[0] if spatial else block))
    sch.reorder(*spatial, *summed)
    axes = [sch.fuse(*spatial[:-1]), spatial[-1]]
    # More threads than one for a loop of one iteration would all store what only the first summed.
    parts = [
        sch.split(axis, [1, 1, 1] if _is_single(sch, axis) else [None, _THREADS, _ELEMENTS])
        for axis in axes
    ]
    (by, ty, rows), (bx, tx, columns) = parts
    sch.reorder(by, bx, ty, tx, *summed, rows, columns)
    for loop, thread in (
        (by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")
    ):  # fmt: skip
        sch.bind(loop, thread)
    if summed:
        sch.reverse_compute_at(sch.cache_write(block, 0, "local"), tx)
        sch.decompose_reduction(block, summed[0])


def _is_single(sch: Schedule, loop: Any) -> bool:
    """Whether a loop has one iteration."""
    extent = sch.get(loop).extent
    return isinstance(extent, tvm.tirx.IntImm) and int(extent) == 1
