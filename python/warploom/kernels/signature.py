"""The arguments that every GEMM kernel of this package takes.

``gemm(A, B, C)`` computes C = A B; ``gemm(A, B, scale_a, scale_b, C)``, for float8, multiplies C
by both scales, ``float32`` tensors of one element. A is ``[M, K]``, B ``[N, K]`` or ``[K, N]``
(``GemmConfig.layout``), C ``[M, N]``, all contiguous.
"""

from __future__ import annotations

from tvm.tirx import PrimFunc, Var

from warploom.kernels.config import GemmConfig


def row_count(m: int | None) -> int | Var:
    """The number of rows of A and C: the given one, or a variable that a call decides.

    One row is left to the call as well: TVM takes the pitch of a dimension of extent 1 for one
    element, and TMA refuses that.
    """
    return Var("m", "int32") if m is None or m == 1 else m


def drop_unused_scales(func: PrimFunc, config: GemmConfig) -> PrimFunc:
    """``func(A, B, scale_a, scale_b, C)`` as it is, or without the scales if the dtype has none.

    TVMScript cannot write a parameter conditionally, so every kernel is written with both.
    """
    if config.scaled:
        return func
    a, b, _, _, c = func.params
    return PrimFunc([a, b, c], func.body, func.ret_type, func.attrs, func.span)
