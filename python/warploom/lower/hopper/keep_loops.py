"""Loops of asynchronous MMAs stay loops.

Where the compiler writes out steps of such a loop, ptxas (CUDA 13.0 and 13.5) has been seen to read
sums before ``wgmma.wait_group 0``: the conversions of an epilogue with ``erff`` stood above the
instruction that waits, and results were wrong by some percent (H200, 2026-11-26). PTX has the right
order there. Loops that are not written out have not shown it.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.tirx import ForKind, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir

#: TVM's annotation for ``#pragma unroll 1``.
_KEPT = "disable_unroll"
_MMA = "gemm_async"


def keep_loops(statement: Stmt) -> Stmt:
    """The statement, its loops of MMAs marked so that the compiler does not write them out.

    Of loops in each other the innermost one.
    """

    def loop(node: tirx.For) -> Stmt:
        if node.kind != ForKind.SERIAL or not _multiplies(node):
            return node
        notes = {**node.annotations, _KEPT: True}
        return ir.loop(
            node.loop_var, node.extent, [node.body], notes, node.kind, node.min, node.step
        )

    return tvm_ffi.structural_map(statement, (tirx.For, loop), order="post")


def _multiplies(loop: tirx.For) -> bool:
    """Whether a loop has MMAs, and none of the loops in it has them."""
    found: list[TilePrimitiveCall] = []
    inner: list[tirx.For] = []

    def call(node: TilePrimitiveCall) -> None:
        if node.op.name.rpartition(".")[2] == _MMA:
            found.append(node)

    def marked(node: tirx.For) -> None:
        if _KEPT in node.annotations:
            inner.append(node)

    tvm_ffi.structural_walk(loop.body, [(TilePrimitiveCall, call), (tirx.For, marked)])
    return bool(found) and not inner
