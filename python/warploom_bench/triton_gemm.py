"""A GEMM in Triton, autotuned, as its users would write it for Hopper.

A persistent grid, operands through TMA descriptors, tiles in an order that shares B in the L2. It
is imported where somebody asks for it: Triton is no dependency of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from warploom.gemm_shape import GemmShape
from warploom.target.dtypes import bits_of, is_float8
from warploom_bench import operands as ops

#: (tile of M, of N, stages, warps); all have 128 bytes of K in a stage.
_TILES = (
    (128, 256, 3, 8), (256, 128, 3, 8), (128, 128, 4, 8), (128, 128, 4, 4), (64, 256, 4, 4),
    (64, 128, 5, 4), (64, 64, 6, 4),
)  # fmt: skip
_ROW_BYTES = 128
#: Rows of tiles that share columns of B.
_GROUP = 8


@triton.jit
def matmul(
    a, b, c, scale_a, scale_b, m, n, k,
    A_IS_MK: tl.constexpr, B_IS_NK: tl.constexpr, SCALED: tl.constexpr, SUM: tl.constexpr,
    OUT: tl.constexpr, CTAS: tl.constexpr, GROUP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """``c = a b``, a tile of BM x BN at a time; operands and result are descriptors."""
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, CTAS, flatten=True):
        first = tile // (GROUP * tiles_n) * GROUP
        rows = min(tiles_m - first, GROUP)
        at_m = (first + tile % (GROUP * tiles_n) % rows) * BM
        at_n = tile % (GROUP * tiles_n) // rows * BN
        total = tl.zeros((BM, BN), SUM)
        for step in range(tl.cdiv(k, BK)):
            at_k = step * BK
            left = a.load([at_m, at_k]) if A_IS_MK else a.load([at_k, at_m]).T
            right = b.load([at_n, at_k]).T if B_IS_NK else b.load([at_k, at_n])
            total = tl.dot(left, right, total, input_precision="tf32", out_dtype=SUM)
        if SCALED:
            total = total * (tl.load(scale_a) * tl.load(scale_b))
        c.store([at_m, at_n], total.to(OUT))


def _set_blocks(arguments: dict[str, Any]) -> None:
    """Descriptors get the boxes of the tile that is about to be tried."""
    bm, bn, bk = (arguments[name] for name in ("BM", "BN", "BK"))
    arguments["a"].block_shape = [bm, bk] if arguments["A_IS_MK"] else [bk, bm]
    arguments["b"].block_shape = [bn, bk] if arguments["B_IS_NK"] else [bk, bn]
    arguments["c"].block_shape = [bm, bn]


def configs(dtype: str) -> list[triton.Config]:
    """Configurations to try for operands of a type."""
    bk = _ROW_BYTES * 8 // bits_of(dtype)
    return [
        triton.Config(
            {"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps,
            pre_hook=_set_blocks,
        )
        for bm, bn, stages, warps in _TILES
    ]  # fmt: skip


def gemm(
    torch: Any, shape: GemmShape, sets: Sequence[ops.Operands]
) -> Callable[[ops.Operands], object]:
    """The GEMM of a shape without epilogue, tuned at its first call."""
    tuned = triton.autotune(configs(shape.storage_dtype), key=["m", "n", "k"])(matmul)
    ctas = torch.cuda.get_device_properties(0).multi_processor_count
    constants = {
        "A_IS_MK": shape.layout[0] == "N",
        "B_IS_NK": shape.layout[1] == "T",
        "SCALED": is_float8(shape.dtype),
        "SUM": tl.int32 if shape.dtype == "int8" else tl.float32,
        "OUT": getattr(tl, shape.result_dtype),
        "CTAS": ctas,
        "GROUP": _GROUP,
    }
    # Made once for each set, as a program that calls it often would: their making is slow.
    described = {
        id(operands): [
            TensorDescriptor.from_tensor(x, [1, 1]) for x in (operands.a, operands.b, operands.c)
        ]
        for operands in sets
    }

    def run(operands: ops.Operands) -> None:
        tuned[(ctas,)](
            *described[id(operands)], operands.scale_a, operands.scale_b, shape.m, shape.n,
            shape.k, **constants,
        )  # fmt: skip

    return run
