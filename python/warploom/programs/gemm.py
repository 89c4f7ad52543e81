"""C = A B as a tile program: one loop, three statements in it, one after it."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.kernels.config import GemmConfig
from warploom.kernels.kernel_name import named
from warploom.kernels.signature import drop_unused_scales, row_count


@named
def gemm(
    config: GemmConfig, n: int, k: int, m: int | None = None, **hints: Any
) -> PrimFunc:
    """The tile program of a product, with the tiles of a configuration.

    Parameters
    ----------
    config : GemmConfig
        Dtypes, operand layout, tiles, stages, cluster, order; what it says about store buffers is
        up to the passes.
    n, k : int
        Columns of C, and products of each of its elements; edges may be ragged.
    m : int, optional
        Rows of A and C; without it the kernel takes any number.
    **hints
        Further ones of :func:`warploom.tile.hints`, such as ``stream_k=True`` where the tiles
        leave CTAs idle.

    Returns
    -------
    PrimFunc
        Arguments as in :mod:`warploom.kernels.signature`.

    Raises
    ------
    IllegalCombination
        If a row pitch is no multiple of 16 bytes.
    """
    config.check_shape(n, k, m)
    rows, dtype, out_dtype = row_count(m), config.dtype, config.out_dtype
    bm, bn, bk = config.tile_m, config.tile_n, config.tile_k
    k_major, scaled = config.layout == "NT", config.scaled
    order = {"raster": "grouped", "group": config.group}
    wanted = {
        "cluster": (config.cluster, 1), "consumers": config.consumers,
        **(order if hints.get("persistent") is not False else {}), **hints,
    }  # fmt: skip

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, sa: T.handle, sb: T.handle, c: T.handle):
        A = T.match_buffer(a, (rows, k), dtype, align=16)
        B = T.match_buffer(b, (n, k) if k_major else (k, n), dtype, align=16)
        scale_a = T.match_buffer(sa, (1,), "float32")
        scale_b = T.match_buffer(sb, (1,), "float32")
        C = T.match_buffer(c, (rows, n), out_dtype, align=16)
        T.device_entry()
        wl.hints(**wanted)
        i, j = T.cta_id([T.truncdiv(rows + (bm - 1), bm), -(-n // bn)])
        A_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        B_s = T.alloc_buffer((bn, bk) if k_major else (bk, bn), dtype, scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), out_dtype, scope="fragment")
        scale: T.float32 = 1.0
        if scaled:
            scale = scale_a[0] * scale_b[0]
        for step in wl.pipelined(-(-k // bk), config.stages):
            Tx.cta.copy_async(A_s, A[i * bm : i * bm + bm, step * bk : step * bk + bk])
            if k_major:
                Tx.cta.copy_async(B_s, B[j * bn : j * bn + bn, step * bk : step * bk + bk])
            else:
                Tx.cta.copy_async(B_s, B[step * bk : step * bk + bk, j * bn : j * bn + bn])
            Tx.cta.gemm_async(acc, A_s, B_s, transB=not k_major, accum=step > 0)
        for y, x in T.grid(bm, bn):
            out[y, x] = T.cast(acc[y, x] * scale if scaled else acc[y, x], out_dtype)
        Tx.cta.copy(C[i * bm : i * bm + bm, j * bn : j * bn + bn], out)

    return drop_unused_scales(matmul, config)
