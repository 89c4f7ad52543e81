"""What tile programs compute, as functions in S-TIR without any config.

Their schedules are TVM's own for GPUs, without tensor cores:
:mod:`warploom.meta_schedule.reference`. Sums are float32; with the inputs of checks they
are exact in any order, so that kernels and references agree in every element but for the last
rounding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from tvm import te, tirx
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.layout.weight_order import WEIGHT_ORDERS
from warploom.meta_schedule.plain_schedule import scheduled_apart
from warploom.meta_schedule.reference import build_reference, runs_on_host
from warploom_bench.block_scaled import BlockScaledShape
from warploom_bench.dequant import DequantShape
from warploom_bench.grouped import GroupedShape

#: Elements along K, and columns of B, of a scale of :func:`block_scaled`.
_BLOCK = 128
_WIDE = "float32"


def quantised(shape: DequantShape) -> PrimFunc:
    """``C = X W^T`` with packed weights, in the order of fragments."""
    m, n, k, bits, dtype = shape.m, shape.n, shape.k, shape.bits, shape.dtype
    x = te.placeholder((m, k), dtype, "X")
    words = te.placeholder((n, k * bits // 32), "uint32", "W")
    scale = te.placeholder((k // shape.scale_group, n), dtype, "Scale")

    def weight(j: Any, z: Any) -> Any:
        word, low = WEIGHT_ORDERS["fragments"](z, bits)
        field = words[j, word] >> tirx.Cast("uint32", low) & tirx.const(2**bits - 1, "uint32")
        signed = field.astype("int32") - 2 ** (bits - 1)
        return signed.astype(_WIDE) * scale[z // shape.scale_group, j].astype(_WIDE)

    weights = te.compute((n, k), weight, "weights")
    return _matmul([x, words, scale], x, weights, dtype)


def block_scaled(shape: BlockScaledShape) -> PrimFunc:
    """``C = A B^T`` of 8-bit floats with a scale for each block along K."""
    m, n, k = shape.m, shape.n, shape.k
    (blocks, _), of_b = shape.scale_shapes
    a, b = (te.placeholder((rows, k), "float8_e4m3fn", name) for rows, name in ((m, "A"), (n, "B")))
    scale_a = te.placeholder((m, blocks), _WIDE, "ScaleA")
    scale_b = te.placeholder(of_b, _WIDE, "ScaleB")
    scaled_a = te.compute(
        (m, k), lambda i, z: a[i, z].astype(_WIDE) * scale_a[i, z // _BLOCK], "scaled_a"
    )
    scaled_b = te.compute(
        (n, k), lambda j, z: b[j, z].astype(_WIDE) * scale_b[j // _BLOCK, z // _BLOCK], "scaled_b"
    )
    return _matmul([a, b, scale_a, scale_b], scaled_a, scaled_b, shape.out_dtype)


def grouped(shape: GroupedShape) -> PrimFunc:
    """``C[rows of g] = X[rows of g] W[g]^T``; a row's group is how many groups end before it."""
    groups, m, n, k, dtype = shape.groups, shape.m, shape.n, shape.k, shape.dtype
    x = te.placeholder((m, k), dtype, "X")
    w = te.placeholder((groups, n, k), dtype, "W")
    indptr = te.placeholder((groups + 1,), "int32", "Indptr")
    g, z = te.reduce_axis((0, groups), "g"), te.reduce_axis((0, k), "z")
    group = te.compute(
        (m,), lambda i: te.sum((indptr[g + 1] <= i).astype("int32"), g), "group"
    )
    total = te.compute(
        (m, n),
        lambda i, j: te.sum(x[i, z].astype(_WIDE) * w[group[i], j, z].astype(_WIDE), z),
        "total",
    )
    c = te.compute((m, n), lambda i, j: total[i, j].astype(dtype), "C")
    return te.create_prim_func([x, w, indptr, c])


def _matmul(inputs: list[Any], a: Any, b: Any, dtype: str) -> PrimFunc:
    (m, k), n = a.shape, b.shape[0]
    z = te.reduce_axis((0, k), "z")
    total = te.compute(
        (m, n), lambda i, j: te.sum(a[i, z].astype(_WIDE) * b[j, z].astype(_WIDE), z), "total"
    )
    c = te.compute((m, n), lambda i, j: total[i, j].astype(dtype), "C")
    return te.create_prim_func([*inputs, c])


def build(func: PrimFunc, target: Target, apart: bool, path: str) -> None:
    """In a worker: compile a reference, for the CPU if it is small.

    Parameters
    ----------
    func : PrimFunc
    target : Target
        Of the candidates.
    apart : bool
        Whether the schedule is that of :func:`~warploom.meta_schedule.plain_schedule` and not by
        TVM's rules: a function that is no GEMM to them would take seconds.
    path : str
        The library to write.
    """
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    unfinished = Path(path).with_name(f"unfinished-{Path(path).name}")
    if apart and not runs_on_host(mod):
        tvm.compile(scheduled_apart(mod), target).export_library(str(unfinished))
    else:
        build_reference(func, target, unfinished)
    unfinished.rename(path)
