"""A program whose kernel multiplies, or is wrong for the compiler of CUDA."""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.tirx import PrimFunc


def scale_program(factor: float, broken: str = "") -> PrimFunc:
    """``b = a * factor``; with ``broken``, a call of a function without that name."""

    @T.prim_func
    def scale(a: T.Buffer((32,), "float32"), b: T.Buffer((32,), "float32")):
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([32])
        b[thread] = a[thread] * T.float32(factor)

    @T.prim_func
    def wrong(a: T.Buffer((32,), "float32"), b: T.Buffer((32,), "float32")):
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([32])
        b[thread] = a[thread] + T.cuda.func_call(
            "call", T.float32(1), return_type="float32",
            source_code=f"__device__ float call(float x) {{ return {broken}(x); }}\n",
        )  # fmt: skip

    return wrong if broken else scale
