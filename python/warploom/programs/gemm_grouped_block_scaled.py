"""Products of groups of rows in 8-bit floats with scales for blocks: experts of DeepSeek's models.

As :mod:`warploom.programs.gemm_block_scaled`, for rows of groups that are found as in
:mod:`warploom.programs.gemm_grouped`.
"""

from __future__ import annotations

import math
from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.decide.families.grouped_problem import GroupedBlockScaledProblem
from warploom.decide.machines import arch_for
from warploom.decide.price.block_scaled import BLOCK
from warploom.decide.price.grouped import side_by_side
from warploom.decide.selector import choose
from warploom.kernels.kernel_name import named
from warploom.kernels.signature import row_count
from warploom.programs.gemm_block_scaled import check_block_scaled
from warploom.programs.group_slots import Slot, band_and_hints, check_groups, slots
from warploom.target.dtypes import with_dtype_names
from warploom.tile.annotations import SIZES


@with_dtype_names
@named
def gemm_grouped_block_scaled(
    groups: int,
    n: int,
    k: int,
    m: int | None = None,
    dtype: str = "float8_e4m3fn",
    out_dtype: str = "bfloat16",
    scale_layout: str = "MK",
    indptr_dtype: str = "int32",
    tile: tuple[int, int] | None = None,
    stages: int | None = None,
    arch: str | None = None,
    **hints: Any,
) -> PrimFunc:
    """The tile program of a GEMM with other weights for each group of rows, and block scales.

    Parameters
    ----------
    groups, n, k : int
        Weights, and their rows, a multiple of 8, and columns, one of 16.
    m : int, optional
        Rows of X and C, of all groups together; without it the kernel takes any number.
    dtype, out_dtype, scale_layout : str
        As in :func:`~warploom.programs.gemm_block_scaled.gemm_block_scaled`.
    indptr_dtype : str
        Of Indptr: ``"int32"`` or ``"int64"``.
    tile : (int, int), optional
        Rows of X and of W; a step along K has one block of 128. Without it tile, stages and hints
        are those of :func:`warploom.decide.choose`.
    stages : int, optional
        Steps that are loaded ahead.
    arch : str, optional
        What tile, stages and hints are chosen for: ``"sm_90a"`` or ``"sm_100a"``; by default that
        of the current target, and without a target the former.
    **hints
        Those of :func:`warploom.tile.hints`; ``group``: tiles of rows of a band, see
        :mod:`~warploom.programs.group_slots`.

    Returns
    -------
    PrimFunc
        ``matmul(X, W, ScaleX, ScaleW, Indptr, C)``: X is ``(m, k)``, W ``(groups, n, k)``, ScaleX
        ``(m, ceil(k / 128))`` or its transpose, ScaleW ``(groups, ceil(n / 128), ceil(k / 128))``,
        both float32, C ``(m, n)``; Indptr as in
        :func:`~warploom.programs.gemm_grouped.gemm_grouped`.

    Raises
    ------
    IllegalCombination
        If there is no group, or a dtype, a size or the layout is none of those.

    Examples
    --------
    >>> program = programs.gemm_grouped_block_scaled(8, 4096, 7168, m=2048)
    """
    check_groups(groups, indptr_dtype)
    check_block_scaled(n, k, dtype, out_dtype, scale_layout)
    if tile is None:
        config = choose(
            GroupedBlockScaledProblem(groups, m, n, k, dtype, out_dtype, arch or arch_for())
        )
        tile, stages = (config.tile_m, config.tile_n), stages or config.stages
        hints = {**config.hints(usual=False), **hints}
    rows, (bm, bn), blocks = row_count(m), tile, -(-k // BLOCK)
    together = math.gcd(bn, BLOCK)
    by_rows = scale_layout == "MK"
    across, width = side_by_side(n, bn, hints.get("cluster", (1, 1))[1])
    band, hints = band_and_hints(hints)

    def of_x(scale: Any, row: Any, block: Any) -> Any:
        return scale[row, block] if by_rows else scale[block, row]

    @T.prim_func
    def matmul(
        x: T.handle, w: T.handle, sx: T.handle, sw: T.handle, p: T.handle, c: T.handle
    ):
        X = T.match_buffer(x, (rows, k), dtype, align=16)
        W = T.match_buffer(w, (groups, n, k), dtype, align=16)
        ScaleX = T.match_buffer(sx, (rows, blocks) if by_rows else (blocks, rows), "float32")
        ScaleW = T.match_buffer(sw, (groups, -(-n // BLOCK), blocks), "float32")
        Indptr = T.match_buffer(p, (groups + 1,), indptr_dtype)
        C = T.match_buffer(c, (rows, n), out_dtype, align=16)
        T.device_entry()
        wl.hints(**hints)
        number, beside = T.cta_id([slots(rows, groups, bm) * across, width])
        X_s = T.alloc_buffer((bm, BLOCK), dtype, scope="shared")
        W_s = T.alloc_buffer((bn, BLOCK), dtype, scope="shared")
        part = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        of_rows = T.alloc_buffer((bm,), "float32", scope="fragment")
        of_columns = T.alloc_buffer((bn,), "float32", scope="fragment")
        total = T.alloc_buffer((bm, bn), "float32", scope="fragment")
        out = T.alloc_buffer((bm, bn), out_dtype, scope="fragment")
        slot = Slot(Indptr, groups, bm, across, band)
        slot.find(number)
        g, row, count = slot.group, slot.row, slot.count
        j: T.let = slot.column * width + beside
        if count > 0:
            Tx.cta.zero(total)
            for step in wl.pipelined(blocks, stages):
                first: T.let = step * BLOCK
                Tx.cta.copy_async(X_s, X[row : row + bm, first : first + BLOCK])
                Tx.cta.copy_async(W_s, W[g, j * bn : j * bn + bn, first : first + BLOCK])
                Tx.cta.gemm_async(part, X_s, W_s)
                # Scales arrive while the MMA runs.
                for y in T.serial(bm):
                    of_rows[y] = of_x(ScaleX, row + y, step)
                for z in T.serial(bn):
                    column = T.meta_var(j * bn + z // together * together)
                    # The minimum spares a guard of every element.
                    of_w = T.meta_var(T.min(T.truncdiv(column, BLOCK), -(-n // BLOCK) - 1))
                    of_columns[z] = ScaleW[g, of_w, step]
                for y, z in T.grid(bm, bn):
                    total[y, z] += part[y, z] * (of_rows[y] * of_columns[z])
            Tx.cta.cast(out, total)
            slot.store(C, out, j * bn)

    return matmul.with_attr(SIZES, {"m": 1}) if m == 1 else matmul
