"""A GEMM in TileLang, compiled to a library of C functions: ``script.py JSON``.

It is executed as a script, in a process of its own: TileLang brings a TVM that cannot share one
with stock TVM. JSON has ``m``, ``n``, ``k``, ``dtype``, ``tile`` (M, N, K), ``stages`` and ``out``,
the path of the library, whose ``init()`` comes first and whose ``call(a, b, c, stream)`` computes
``c[m, n] = a[m, k] b[n, k]^T``.
"""

import json
import shutil
import sys

import tilelang
import tilelang.language as T


def matmul(m: int, n: int, k: int, dtype: str, tile: list[int], stages: int):
    """The program: TileLang finds TMA, wgmma and warp specialisation by itself."""
    bm, bn, bk = tile

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((n, k), dtype), C: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128 if bm < 128 else 256) as (
            x,
            y,
        ):
            left = T.alloc_shared((bm, bk), dtype)
            right = T.alloc_shared((bn, bk), dtype)
            total = T.alloc_fragment((bm, bn), "float32")
            T.use_swizzle(panel_size=10)
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                T.copy(A[y * bm, step * bk], left)
                T.copy(B[x * bn, step * bk], right)
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, C[y * bm, x * bn])

    return main


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    out = wanted.pop("out")
    target = {"kind": "cuda", "arch": "sm_90a"}
    kernel = tilelang.compile(matmul(**wanted), target=target, execution_backend="cython")
    shutil.copy(kernel.adapter.libpath, out)
