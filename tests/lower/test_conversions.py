"""Conversions of accumulators, two at a time: ptxas was seen to fuse others, before their wait."""

from __future__ import annotations

import re
from functools import partial

import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.shared import tile_programs
from tests.shared.lowered_programs import check
from tests.shared.tile_programs import Case
from warploom.compiler.invoke import compile_request, current_request
from warploom.lower.lowerings import lower
from warploom.target import cuda_target


def ptx(func: PrimFunc) -> str:
    """What becomes of a program."""
    target = cuda_target("sm_90a")
    module = tvm.IRModule({"main": lower(func, "sm_90a")})
    source = tvm.compile(module, target, tir_pipeline="tirx").mod.imports[0].inspect_source()
    with target:
        return compile_request(current_request(source, "ptx")).binary.decode()


def halves(dtype: str, kind: str) -> Case:
    """An MMA whose result is rounded, and then used as 16 bits, each element in its own way."""
    case = tile_programs.gemm(64, 64, 64, (64, 64, 64), dtype, dtype)

    @T.prim_func
    def program(
        A: T.Buffer((64, 64), dtype), B: T.Buffer((64, 64), dtype), C: T.Buffer((64, 64), dtype)
    ):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), dtype, scope="shared")
        B_s = T.alloc_buffer((64, 64), dtype, scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        out = T.alloc_buffer((64, 64), dtype, scope="fragment")
        turned = T.alloc_buffer((64, 64), dtype, scope="shared")
        Tx.cta.copy_async(A_s, A[0:64, 0:64])
        Tx.cta.copy_async(B_s, B[0:64, 0:64])
        if kind == "transposed":
            Tx.cta.gemm_async(acc, B_s, A_s)
            for i, j in T.grid(64, 64):
                turned[j, i] = T.cast(acc[i, j], dtype)
            Tx.cta.copy(C[0:64, 0:64], turned)
        else:
            Tx.cta.gemm_async(acc, A_s, B_s)
            for i, j in T.grid(64, 64):
                if kind == "chosen":
                    rounded: T.let = T.cast(acc[i, j], dtype)
                    out[i, j] = T.if_then_else(i < 64, rounded, A_s[i, j])
                elif kind == "product":
                    out[i, j] = T.cast(acc[i, j], dtype) * T.cast(T.float32(1), dtype)
                else:
                    out[i, j] = T.cast(T.cast(T.cast(acc[i, j], dtype), "float32"), dtype)
            Tx.cta.copy(C[0:64, 0:64], out)

    return Case(program, case.arguments, case.expected, case.tolerance)


KINDS = ("transposed", "chosen", "product", "twice")
#: Name -> program, and the fewest conversions of two that it has for each thread.
PROGRAMS = {
    **{f"{kind} {dtype}": (partial(halves, dtype, kind), 32 if kind == "twice" else 16)
       for kind, dtype in [(kind, "float16") for kind in KINDS] + [("transposed", "bfloat16")]},
    "packed": (tile_programs.packed, 4),
    "dequantised": (partial(tile_programs.dequantised, 4, through="fragment"), 20),
    "bias row": (partial(tile_programs.epilogue, "bias row", tile=(64, 64, 32)), 16),
    "gelu": (partial(tile_programs.epilogue, "gelu", tile=(64, 64, 32)), 16),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.some(3)
def test_conversions_of_accumulators_come_in_pairs(name):
    make, pairs = PROGRAMS[name]
    text = ptx(make().func)
    constants = set(re.findall(r"mov\.f32\s+(%f\d+), 0f", text))
    scalar = re.findall(r"cvt\.rn\.b?f16\.f32\s+%\w+, (%\w+)", text)
    assert set(scalar) <= constants, "only constants are converted alone"
    assert len(re.findall(r"cvt\.rn\.b?f16x2\.f32", text)) >= pairs


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_of_conversions_are_right(kind, rng):
    check(halves("float16", kind), rng)
    check(halves("bfloat16", kind), rng, specialise=False)
