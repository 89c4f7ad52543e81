"""A dtype is taken as TVM, numpy or ml_dtypes write it, by every function that takes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as ir_builder
from tvm.tirx import Buffer, PrimFunc, decl_buffer

from warploom import kernels, programs, target
from warploom import language as wl
from warploom.decide import Config, plain_gemm
from warploom.errors import IllegalCombination
from warploom.layout.fragment import wgmma_register_a
from warploom.layout.smem_matrix import Major, SharedMatrix
from warploom.layout.tensor_memory import columns_of
from warploom.meta_schedule.workloads import matmul
from warploom.target import Swizzle
from warploom.target.dtypes import SCALARS, bits_of, dtype_name, is_float8
from warploom.target.tensor_map import TensorMap
from warploom.target.tma import box_bytes, box_error, tensor_error

NUMPY = {
    "bool": np.bool_, "int8": np.int8, "uint8": np.uint8, "int32": np.int32, "int64": np.int64,
    "float16": np.float16, "float32": np.float32, "float64": np.float64,
    "bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2, "int4": ml_dtypes.int4,
}  # fmt: skip


def spellings(name: str) -> list[object]:
    """All ways to write a dtype."""
    return [name, tvm.DataType(name), NUMPY[name], np.dtype(NUMPY[name])]


@pytest.mark.parametrize("name", NUMPY)
def test_all_spellings_are_one_dtype(name):
    for one in spellings(name):
        assert dtype_name(one) == name and type(dtype_name(one)) is str


def test_all_dtypes_have_names():
    assert all(dtype_name(one) == one for one in (*SCALARS, "float16x2", "int8x16"))


@pytest.mark.parametrize(
    "value",
    ["float17", "f16", "int", "float16x0", "", 16, None, np.zeros(2), np.dtype(">f2"),
     np.dtype("U3"), np.dtype([("a", "f4")]), float, str, object(), ["float16"]],
)  # fmt: skip
def test_what_is_no_dtype(value):
    with pytest.raises(IllegalCombination, match=r"d is .* allowed are .* such as 'float"):
        dtype_name(value, "d")


def in_kernel(call: Callable[[Buffer], object]) -> PrimFunc:
    """The function that a call writes its statements into; its argument is a matrix in memory."""
    with IRBuilder() as builder, ir_builder.prim_func():
        ir_builder.func_name("main")
        call(ir_builder.arg("A", ir_builder.buffer((64, 64), "float16")))
    return builder.get()


#: Functions of the package -> a call of each, of one dtype, and that dtype.
CALLS = {
    "programs.conv2d": ("float16", lambda d: programs.conv2d(1, 16, 16, 64, 128, dtype=d)),
    "programs.attention": ("bfloat16", lambda d: programs.attention(256, dtype=d)),
    "programs.top_k": ("float16", lambda d: programs.top_k(64, 4, dtype=d)),
    "programs.paged_decode": ("bfloat16", lambda d: programs.paged_decode(8, 2, 64, d)),
    "programs.paged_prefill": ("bfloat16", lambda d: programs.paged_prefill(8, 2, 64, d)),
    "programs.paged_latent": ("bfloat16", lambda d: programs.paged_latent(8, 64, 64, d)),
    "programs.ragged_tree_attention": (
        "bfloat16", lambda d: programs.ragged_tree_attention(8, 2, 64, d)),
    "programs.paged_tree_attention": (
        "bfloat16", lambda d: programs.paged_tree_attention(8, 2, 64, d)),
    "programs.ragged_prefill": (
        "bfloat16", lambda d: programs.ragged_prefill(8, 2, 64, dtype=d)),
    "programs.gemm_quantised": ("bfloat16", lambda d: programs.gemm_quantised(256, 256, dtype=d)),
    "programs.gemm_grouped": ("float16", lambda d: programs.gemm_grouped(
        2, 256, 256, 128, d, out_dtype=d)),
    "programs.gemm_grouped indptr": ("int64", lambda d: programs.gemm_grouped(
        2, 256, 256, indptr_dtype=d)),
    "programs.gemm_block_scaled": ("float8_e4m3fn", lambda d: programs.gemm_block_scaled(
        256, 256, dtype=d)),
    "programs.gemm_grouped_block_scaled": ("bfloat16", lambda d: programs.gemm_grouped_block_scaled(
        2, 256, 256, out_dtype=d)),
    "decide.plain_gemm": ("float8_e5m2", lambda d: plain_gemm(None, 256, 256, d, d)),
    "programs.gemm": ("float16", lambda d: programs.gemm(
        Config(), 256, 256, dtype=d, out_dtype=d)),
    "programs.compile_gemm": ("bfloat16", lambda d: programs.compile_gemm(
        None, 256, 256, d, d).mod.imports[0].inspect_source()),
    "kernels.matmul_multistage": ("int8", lambda d: kernels.matmul_multistage(
        256, 256, 256, d, b_dtype=d)),
    "kernels.matmul_warp_specialised": ("bfloat16", lambda d: kernels.matmul_warp_specialised(
        256, 256, 256, dtype=d)),
    "kernels.matmul sums": ("float32", lambda d: kernels.matmul_multistage(
        256, 256, 256, accumulator=d, out_dtype=d)),
    "meta_schedule.matmul": ("float16", lambda d: matmul(64, 64, 64, d, out_dtype=d)),
    "target.TensorMap": ("float16", lambda d: TensorMap(d, (64, 64), (8, 8))),
    "target.tensor_error": ("float16", lambda d: tensor_error(d, (3, 5))),
    "target.box_error": ("float16", lambda d: box_error(d, (3, 5))),
    "target.box_bytes": ("int8", lambda d: box_bytes(d, (16, 16))),
    "target.wgmma_kind": ("float16", lambda d: target.wgmma_kind(d, d, "float32")),
    "target.tcgen05_kinds": ("float16", lambda d: target.tcgen05_kinds(d, d, "float32")),
    "target.bits_of": ("float8_e4m3fn", bits_of),
    "target.is_float8": ("float8_e4m3fn", is_float8),
    "layout.SharedMatrix": ("float16", lambda d: SharedMatrix(d, Major.K, Swizzle.B128, 64, 64)),
    "layout.widest": ("float16", lambda d: SharedMatrix.widest(d, Major.K, 64, 64)),
    "layout.columns_of": ("float16", lambda d: columns_of(d, 64)),
    "layout.wgmma_register_a": ("int8", lambda d: wgmma_register_a(d, 64)),
    "language.TensorSpec": ("int8", lambda d: wl.TensorSpec((4,), d)),
    "language.WgmmaEmitter": ("int8", lambda d: wl.WgmmaEmitter.of(64, 64, 64, d, b_dtype=d)),
    "language.WgmmaEmitter sums": ("float16", lambda d: wl.WgmmaEmitter.of(
        64, 64, 64, "float16", d)),
    "language.warpgroup_fence_operand": ("float16", lambda d: wl.warpgroup_fence_operand(
        HALVES.ptr_to([0]), 0, 4, d)),
    "language.ptx_mma_sm70": ("float16", lambda d: wl.ptx_mma_sm70(
        "m16n16k4", "row", "col", d, d, d, HALVES, 0, HALVES, 4, HALVES, 0)),
    "language.alloc_accumulator": ("int32", lambda d: in_kernel(
        lambda _: wl.alloc_accumulator((64, 64), d))),
    "language.alloc_fragment": ("bfloat16", lambda d: in_kernel(
        lambda _: wl.alloc_fragment((64, 64), d))),
    "language.cast": ("bfloat16", lambda d: in_kernel(
        lambda _: wl.cast(wl.alloc_fragment((64, 64)), d))),
    "language.load": ("float16", lambda d: in_kernel(
        lambda a: wl.load(a, (0, 0), (64, 64), dtype=d))),
    "language.gemm": ("float16", lambda d: in_kernel(
        lambda a: wl.gemm(wl.load(a, (0, 0), (64, 64)), wl.load(a, (0, 0), (64, 64)), dtype=d))),
}  # fmt: skip
HALVES = decl_buffer((8,), "float16", "halves", scope="local")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.some(8)
def test_a_function_takes_all_spellings(name):
    dtype, call = CALLS[name]
    first, *others = [call(one) for one in spellings(dtype)]
    for other in others:
        if isinstance(first, PrimFunc | tvm.ir.Call):  # attributes, such as the name, are compared
            assert tvm_ffi.structural_equal(first, other)
        else:
            assert str(first) == str(other)


@pytest.mark.parametrize("name", CALLS)
def test_a_function_refuses_what_is_no_dtype(name):
    _, call = CALLS[name]
    with pytest.raises(IllegalCombination, match=r"allowed are TVM|no scalar dtype|one of"):
        call(3.5)


def test_no_public_function_is_left_out():
    """Those of the packages' faces that have a parameter of that name."""
    called = {name.split()[0] for name in CALLS}
    for package in (programs, kernels, target, wl):
        short = package.__name__.removeprefix("warploom.")
        for name in package.__all__:
            one = getattr(package, name)
            if not callable(one) or inspect.ismodule(one):
                continue
            parameters = inspect.signature(one).parameters
            if any(p == "dtype" or p.endswith("_dtype") for p in parameters):
                assert f"{short}.{name}" in called, f"{short}.{name}"
