"""Global to shared memory by TMA, in boxes that may reach over the edge of the matrix."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.layout.smem_matrix import SharedMatrix
from warploom.target.swizzle import Major, Swizzle


def alloc_ring(pool: Any, tile: SharedMatrix, stages: int) -> Any:
    """A ring of ``stages`` operand tiles in shared memory, each aligned for any swizzle."""
    shape, layout = (stages, *tile.shape), tile.layout((stages,))
    return pool.alloc(shape, tile.dtype, align=Swizzle.B128.atom_bytes, layout=layout)


def load_tile(
    shared: Any,
    tile: SharedMatrix,
    stage: Any,
    matrix: Any,
    start: tuple[Any, Any],
    barrier: Any,
    **copy_options: Any,
) -> None:
    """Emit the copies of one operand tile into one stage of its ring.

    One copy for each column of swizzle atoms: a box that is a single atom wide may start or end
    outside the matrix, whatever the matrix's extents.

    Parameters
    ----------
    shared : Buffer
        The ring, ``(stages, *tile.shape)``.
    matrix : Buffer
        The operand in global memory, with the same contiguous dimension as the tile.
    start : (Expr, Expr)
        First row (M or N) and first K of the tile in the matrix.
    barrier : Expr
        Address of the mbarrier that counts the bytes.
    **copy_options
        Further options of ``Tx.copy_async``, such as those of ``TensorMap.copy_options``.
    """
    mn_start, k_start = start
    if tile.major is Major.K:
        rows, columns, row_start, column_start = tile.mn, tile.k, mn_start, k_start
    else:
        rows, columns, row_start, column_start = tile.k, tile.mn, k_start, mn_start
    width = tile.atom_columns
    # A loop in the program, not here: every copy_async call encodes a tensor map of its own.
    with T.unroll(columns // width) as atom:
        place, source = atom * width, column_start + atom * width
        Tx.copy_async(
            shared[stage, 0:rows, place : place + width],
            matrix[row_start : row_start + rows, source : source + width],
            mbar=barrier,
            **{"dispatch": "tma_auto", **copy_options},
        )
