"""The measured products as ``te`` writes them: what a user of TVM hands to the compiler."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

from tvm import te, tirx
from tvm.tirx import PrimFunc

from warploom.decide.problem import GemmProblem
from warploom.gemm.recognition import recognise
from warploom.gemm.tf32 import allow_tf32
from warploom.gemm_shape import GemmShape
from warploom.target.dtypes import is_float8


def function(shape: GemmShape) -> PrimFunc:
    """The function of a shape.

    Its parameters are A, B, the two scales of 8-bit floats, bias or residual where the epilogue has
    one, and the result: see :func:`warploom_bench.operands.arguments`.
    """
    m, n, k, dtype = shape.m, shape.n, shape.k, shape.storage_dtype
    accumulator = "int32" if dtype == "int8" else "float32"
    a, b = te.placeholder(shape.a_shape, dtype, "A"), te.placeholder(shape.b_shape, dtype, "B")
    along = te.reduce_axis((0, k), "k")

    def term(i: Any, j: Any) -> Any:
        left = a[i, along] if shape.layout[0] == "N" else a[along, i]
        right = b[j, along] if shape.layout[1] == "T" else b[along, j]
        return te.sum(left.astype(accumulator) * right.astype(accumulator), along)

    total = te.compute((m, n), term, "matmul")
    more: list[Any] = []
    if is_float8(dtype):
        more = [te.placeholder((1,), "float32", name) for name in ("scale_a", "scale_b")]
        factors, plain = tuple(more), total
        # One product for all elements, and one for each: what a library computes.
        total = te.compute((m, n), lambda i, j: plain[i, j] * (factors[0][0] * factors[1][0]), "S")
    extra, final = _epilogue(shape, total)
    func = te.create_prim_func([a, b, *more, *extra, final]).with_attr("global_symbol", "main")
    return allow_tf32(func) if shape.dtype == "tfloat32" else func


def problem_of(shape: GemmShape) -> GemmProblem:
    """The key by which records of a shape are found."""
    return _problem_of(replace(shape, group="", target=None))


@functools.cache
def _problem_of(shape: GemmShape) -> GemmProblem:
    return recognise(function(shape)).problem


def _epilogue(shape: GemmShape, total: Any) -> tuple[list[Any], Any]:
    """Further parameters and the result."""
    m, n, dtype, out = shape.m, shape.n, shape.storage_dtype, shape.result_dtype
    if shape.epilogue == "swiglu":
        half = n // 2
        gate = te.compute((m, half), lambda i, j: total[i, j] * te.sigmoid(total[i, j]), "gate")
        return [], te.compute(
            (m, half), lambda i, j: (gate[i, j] * total[i, j + half]).astype(out), "C"
        )
    if shape.epilogue == "residual":
        residual = te.placeholder((m, n), dtype, "residual")
        value = te.compute((m, n), lambda i, j: total[i, j] + residual[i, j].astype("float32"))
        return [residual], te.compute((m, n), lambda i, j: value[i, j].astype(out), "C")
    if shape.epilogue == "none":
        return [], te.compute((m, n), lambda i, j: total[i, j].astype(out), "C")
    bias = te.placeholder((n,), dtype, "bias")
    value = te.compute((m, n), lambda i, j: total[i, j] + bias[j].astype("float32"), "biased")
    if shape.epilogue == "bias_gelu":
        biased = value
        value = te.compute((m, n), lambda i, j: _gelu(biased[i, j]), "gelu")
    return [bias], te.compute((m, n), lambda i, j: value[i, j].astype(out), "C")


def _gelu(x: Any) -> Any:
    """The approximation by tanh, which is what cuBLASLt has."""
    half, cubic = tirx.const(0.5, "float32"), tirx.const(0.044715, "float32")
    inner = tirx.const(math.sqrt(2 / math.pi), "float32") * (x + cubic * x * x * x)
    return half * x * (tirx.const(1.0, "float32") + te.tanh(inner))
