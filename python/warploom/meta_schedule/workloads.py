"""Functions to tune, for commands and benchmarks that name only sizes."""

from __future__ import annotations

from tvm import te
from tvm.tirx import PrimFunc

from warploom.target.dtypes import is_float8, with_dtype_names


@with_dtype_names
def matmul(
    m: int, n: int, k: int, dtype: str = "float16", out_dtype: str = "", factor: float = 1.0
) -> PrimFunc:
    """``C[m, n] = factor * A[m, k] B[n, k]^T`` as ``te`` writes it.

    Sums are float32, and int32 those of integers.

    Parameters
    ----------
    m, n, k : int
    dtype : str
        Of A and B.
    out_dtype : str
        Of C; by default as ``dtype``, and bfloat16 for 8-bit floats.
    factor : float
    """
    out = out_dtype or ("bfloat16" if is_float8(dtype) else dtype)
    a = te.placeholder((m, k), dtype, name="A")
    b = te.placeholder((n, k), dtype, name="B")
    wide = "int32" if dtype in ("int8", "uint8") else "float32"
    along = te.reduce_axis((0, k), name="k")
    total = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, along].astype(wide) * b[j, along].astype(wide), along),
        name="matmul",
    )
    scaled = total if factor == 1 else te.compute((m, n), lambda i, j: total[i, j] * factor)
    c = te.compute((m, n), lambda i, j: scaled[i, j].astype(out), name="C")
    return te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
