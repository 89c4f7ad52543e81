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
    part: tuple[Any, int] | None = None,
    cluster_mask: int = 0,
    cta_group: int = 1,
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
    part : (Expr, int), optional
        First row and number of rows (M or N) of the tile that this CTA loads; default all.
    cluster_mask : int
        CTAs of the cluster that receive the data and its bytes; 0: only this one.
    cta_group : int
        2 where ``barrier`` may be the one of the partner in a pair of CTAs (Blackwell).
    **copy_options
        Further options of ``Tx.copy_async``, such as those of ``TensorMap.copy_options``.
    """
    mn_start, k_start = start
    mn_first, mn_count = part if part is not None else (0, tile.mn)
    options = copy_options | ({"cta_mask": cluster_mask} if cluster_mask else {})
    if cta_group != 1:
        options["cta_group"] = cta_group
    if tile.major is Major.K:
        rows, columns, first_row, first_column = mn_count, tile.k, mn_first, 0
        row_start, column_start = mn_start + mn_first, k_start
    else:
        rows, columns, first_row, first_column = tile.k, mn_count, 0, mn_first
        row_start, column_start = k_start, mn_start + mn_first
    width = tile.atom_columns
    # A loop in the program, not here: every copy_async call encodes a tensor map of its own.
    with T.unroll(columns // width) as atom:
        place, source = first_column + atom * width, column_start + atom * width
        Tx.copy_async(
            shared[stage, first_row : first_row + rows, place : place + width],
            matrix[row_start : row_start + rows, source : source + width],
            mbar=barrier,
            **{"dispatch": "tma_auto", **options},
        )
