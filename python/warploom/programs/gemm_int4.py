"""C = X Wᵀ with weights of 4 bits: dequantised in registers, on their way into the product.

The weights are operand A, which the tensor core reads from registers, so that C is computed as the
transpose of W Xᵀ: that suits few rows of X, where reading the weights takes the time.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl

#: 2**23 as a float32: an integer below, put into its mantissa, is added to it.
_MAGIC_BITS, _MAGIC = 0x4B000000, 8388608.0


def gemm_int4(
    n: int,
    k: int,
    m: int,
    group: int = 128,
    dtype: str = "float16",
    tile: tuple[int, int, int] = (16, 64, 256),
    stages: int = 4,
) -> PrimFunc:
    """The tile program of a product with packed weights.

    Parameters
    ----------
    n, k, m : int
        C is ``(m, n)``, X ``(m, k)``; ``k`` a multiple of ``tile[2]``.
    group : int
        Weights along K that share a scale; ``tile[2]`` is a multiple of it, or it of ``tile[2]``.
    dtype : str
        Of X, the scales and C: ``"float16"`` or ``"bfloat16"``.
    tile : (int, int, int)
        Rows of X, rows of W (a multiple of 64), and K of one step.
    stages : int
        Steps that are loaded ahead.

    Returns
    -------
    PrimFunc
        ``matmul(X, W, Scale, C)``: W is uint8 ``(n, k / 2)``, two weights of a byte, the one of
        even K in the low half, each stored as weight + 8; Scale is ``(n, k / group)``.
    """
    bm, bn, bk = tile

    def weight(byte: Any, j: Any) -> Any:
        """The weight in one half of a byte, as a float32, without a conversion."""
        nibble = byte >> (j % 2 * 4) & 15
        return T.reinterpret("float32", nibble | _MAGIC_BITS) - T.float32(_MAGIC + 8)

    @T.prim_func
    def matmul(
        X: T.Buffer((m, k), dtype, align=16),
        W: T.Buffer((n, k // 2), "uint8", align=16),
        Scale: T.Buffer((n, k // group), dtype),
        C: T.Buffer((m, n), dtype, align=16),
    ):
        T.device_entry()
        i, j = T.cta_id([-(-m // bm), -(-n // bn)])
        X_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        W_s = T.alloc_buffer((bn, bk // 2), "uint8", scope="shared")
        W_f = T.alloc_buffer((bn, bk), dtype, scope="fragment")
        acc = T.alloc_buffer((bn, bm), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), dtype, scope="shared")
        for step in wl.pipelined(k // bk, stages):
            Tx.cta.copy_async(X_s, X[i * bm : i * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(
                W_s, W[j * bn : j * bn + bn, step * (bk // 2) : step * (bk // 2) + bk // 2]
            )
            for y, x in T.grid(bn, bk):
                byte: T.let = T.cast(W_s[y, x // 2], "int32")
                scale: T.let = T.cast(Scale[j * bn + y, (step * bk + x) // group], "float32")
                W_f[y, x] = T.cast(weight(byte, x) * scale, dtype)
            Tx.cta.gemm_async(acc, W_f, X_s, accum=step > 0)
        for y, x in T.grid(bm, bn):
            out[y, x] = T.cast(acc[x, y], dtype)
        Tx.cta.copy(C[i * bm : i * bm + bm, j * bn : j * bn + bn], out)

    return matmul
