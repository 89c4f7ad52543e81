"""C = A B as a tile program: one loop, three statements in it, one after it."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.kernels.kernel_name import named
from warploom.kernels.signature import row_count
from warploom.programs.gemm_config import GemmConfig
from warploom.target.dtypes import bits_of

#: Bits of the rows that TMA stores are multiples of these.
_TMA_BITS = 128


@named
def gemm(
    config: GemmConfig, n: int, k: int, m: int | None = None, **hints: Any
) -> PrimFunc:
    """The tile program of a GEMM, with the tiles of a configuration.

    Parameters
    ----------
    config : GemmConfig
        Dtypes, operand layout, tiles, stages, cluster, order; with ``swap_ab`` the tensor core
        computes the transpose, for few rows.
    n, k : int
        Columns of C, and the extent of K; edges may be ragged.
    m : int, optional
        Rows of A and C; without it the kernel takes any number, 0 included.
    **hints
        Further ones of :func:`warploom.tile.hints`, such as ``stream_k=True`` where the tiles
        leave CTAs idle.

    Returns
    -------
    PrimFunc
        ``(A, B, C)``, or ``(A, B, scale_a, scale_b, C)`` for float8, which multiplies C by both
        scales, ``float32`` tensors of one element. A is ``[M, K]``, B ``[N, K]`` or ``[K, N]``
        (``config.layout``), C ``[M, N]``, all contiguous.

    Raises
    ------
    IllegalCombination
        If a row pitch is no multiple of 16 bytes; with ``swap_ab`` that of C may be any.

    Examples
    --------
    >>> gemm(GemmConfig(tile_n=128), 4096, 4096).attrs["global_symbol"]
    'gemm_n4096_k4096_tilen128'
    """
    config.check_shape(n, k, m)
    rows, dtype, out_dtype = row_count(m), config.dtype, config.out_dtype
    bm, bn, bk = config.tile_m, config.tile_n, config.tile_k
    k_major, scaled, swapped = config.layout == "NT", config.scaled, config.swap_ab
    # Tiles that TMA cannot store, threads read from shared memory.
    by_threads = n * bits_of(out_dtype) % _TMA_BITS != 0
    order = {"raster": "grouped", "group": config.group, "ctas": config.ctas}
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
        C = T.match_buffer(c, (rows, n), out_dtype, align=2 if by_threads else 16)
        T.device_entry()
        wl.hints(**wanted)
        i, j = T.cta_id([T.truncdiv(rows + (bm - 1), bm), -(-n // bn)])
        A_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        B_s = T.alloc_buffer((bn, bk) if k_major else (bk, bn), dtype, scope="shared")
        acc = T.alloc_buffer(config.wgmma_tile, "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), out_dtype, scope="shared" if by_threads else "fragment")
        scale: T.float32 = 1.0
        if scaled:
            scale = scale_a[0] * scale_b[0]
        for step in wl.pipelined(-(-k // bk), config.stages):
            Tx.cta.copy_async(A_s, A[i * bm : i * bm + bm, step * bk : step * bk + bk])
            if k_major:
                Tx.cta.copy_async(B_s, B[j * bn : j * bn + bn, step * bk : step * bk + bk])
            else:
                Tx.cta.copy_async(B_s, B[step * bk : step * bk + bk, j * bn : j * bn + bn])
            if swapped:
                Tx.cta.gemm_async(acc, B_s, A_s, transA=not k_major, accum=step > 0)
            else:
                Tx.cta.gemm_async(acc, A_s, B_s, transB=not k_major, accum=step > 0)
        for y, x in T.grid(bm, bn):
            total = T.meta_var(acc[x, y] if swapped else acc[y, x])
            out[y, x] = T.cast(total * scale if scaled else total, out_dtype)
        if by_threads:
            for y, x in T.grid(bm, bn):
                C[i * bm + y, j * bn + x] = out[y, x]
        else:
            Tx.cta.copy(C[i * bm : i * bm + bm, j * bn : j * bn + bn], out)

    if scaled:
        return matmul
    # TVMScript cannot write a parameter conditionally.
    a, b, _, _, c = matmul.params
    return PrimFunc([a, b, c], matmul.body, matmul.ret_type, matmul.attrs, matmul.span)
