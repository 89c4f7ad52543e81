"""C = A B as a tile program: one loop, three statements in it, one after it."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.decide.config import Config
from warploom.kernels.kernel_name import named
from warploom.kernels.signature import row_count
from warploom.ops.copy_strided import CACHE_HINT
from warploom.programs.gemm_matrices import check_pitches, problem_of_matrices
from warploom.target.dtypes import bits_of, with_dtype_names
from warploom.tile.choices import POLICIES

#: Bits of the rows that TMA stores are multiples of these.
_TMA_BITS = 128
#: Hints that a grid with a CTA for each tile does not have.
_OF_A_LOOP = ("raster", "group", "ctas")


@with_dtype_names
@named
def gemm(
    config: Config,
    n: int,
    k: int,
    m: int | None = None,
    dtype: str = "float16",
    out_dtype: str | None = None,
    layout: str = "NT",
    **hints: Any,
) -> PrimFunc:
    """The tile program of a GEMM, with the tiles of a config.

    Parameters
    ----------
    config : Config
        Tiles, stages, cluster, order; with ``swap_ab`` the tensor core computes the transpose, for
        few rows. :func:`warploom.decide.ranking` has the model's choice.
    n, k : int
        Columns of C, and the extent of K; edges may be ragged.
    m : int, optional
        Rows of A and C; without it the kernel takes any number, 0 included.
    dtype : str
        Of A and B: float16, bfloat16, float8_e4m3fn or float8_e5m2.
    out_dtype : str, optional
        Of C: float16 or bfloat16; by default that of A and B, bfloat16 for float8.
    layout : str
        ``"NT"``: A [M, K], B [N, K]; ``"NN"``: A [M, K], B [K, N] (16-bit dtypes only).
    **hints
        Further ones of :func:`warploom.tile.hints`, and others than those of the config.

    Returns
    -------
    PrimFunc
        ``(A, B, C)``, or ``(A, B, scale_a, scale_b, C)`` for float8, which multiplies C by both
        scales, ``float32`` tensors of one element. All matrices are contiguous.

    Raises
    ------
    IllegalCombination
        If no kernel for these matrices can have the config, or a row pitch is no multiple of 16
        bytes; with ``swap_ab`` that of C may be any.

    Examples
    --------
    >>> gemm(Config(tile_n=128), 4096, 4096).attrs["global_symbol"]
    'gemm_n4096_k4096_tilen128'
    """
    problem = problem_of_matrices(m, n, k, dtype, out_dtype, layout)
    check_pitches(problem, config)
    config.check(problem)
    rows, out_dtype = row_count(m), problem.outputs[0]
    bm, bn, bk = config.tile_m, config.tile_n, config.tile_k
    k_major, scaled, swapped = layout == "NT", bool(problem.inputs), config.swap_ab
    # Tiles that TMA cannot store, threads read from shared memory.
    by_threads = n * bits_of(out_dtype) % _TMA_BITS != 0
    of_a, of_b = ({CACHE_HINT: p} if p else {} for p in POLICIES[config.l2_policy])
    wanted = {**config.hints(), **hints}
    if wanted.get("persistent") is False:
        wanted = {name: value for name, value in wanted.items() if name not in _OF_A_LOOP}

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
        acc = T.alloc_buffer(config.accumulator, "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), out_dtype, scope="shared" if by_threads else "fragment")
        scale: T.float32 = 1.0
        if scaled:
            scale = scale_a[0] * scale_b[0]
        for step in wl.pipelined(-(-k // bk), config.stages):
            Tx.cta.copy_async(A_s, A[i * bm : i * bm + bm, step * bk : step * bk + bk], **of_a)
            if k_major:
                Tx.cta.copy_async(B_s, B[j * bn : j * bn + bn, step * bk : step * bk + bk], **of_b)
            else:
                Tx.cta.copy_async(B_s, B[step * bk : step * bk + bk, j * bn : j * bn + bn], **of_b)
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
