"""Who computes the product: the kernels of this package, and NVIDIA's libraries.

Every competitor writes into ``operands.c`` on PyTorch's current stream. The first of a dtype's
libraries is the one that ratios refer to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warploom.bench.operands import Operands
from warploom.bench.suite import GemmShape

#: Computes ``operands.c`` from the other operands.
Product = Callable[[Operands], object]

OURS = "warploom"


def our_product(shape: GemmShape) -> Product:
    """The kernel that this package chooses for the shape, compiled."""
    from warploom.kernels import compile_gemm

    gemm = compile_gemm(shape.m, shape.n, shape.k, shape.dtype, out_dtype=shape.result_dtype)
    if shape.dtype.startswith("float8"):
        return lambda o: gemm(o.a, o.b, o.scale_a, o.scale_b, o.c)
    return lambda o: gemm(o.a, o.b, o.c)


def library_products(torch: Any, shape: GemmShape) -> dict[str, Product]:
    """The libraries' products, the one that ratios refer to first."""
    if not shape.dtype.startswith("float8"):
        return {"cuBLAS": lambda o: torch.matmul(o.a, o.b.T, out=o.c)}

    def scaled(fast: bool) -> Product:
        return lambda o: torch._scaled_mm(
            o.a,
            o.b.T,
            o.scale_a,
            o.scale_b,
            out_dtype=o.c.dtype,
            use_fast_accum=fast,
            out=o.c,
        )

    return {"cuBLASLt, fast accumulate": scaled(True), "cuBLASLt": scaled(False)}
