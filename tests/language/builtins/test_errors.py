"""Bad arguments of builtins: one sentence with the value and what is allowed."""

from __future__ import annotations

import pytest
import tvm
from tvm.script import tirx as T
from tvm.tirx import Var, decl_buffer

from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.layout.fragment import wgmma_accumulator

A = decl_buffer((64, 32), "float16", "A")
BIG = decl_buffer((4096, 4096), "float16", "BIG")
X = decl_buffer((8,), "int32", "X")
TILE = decl_buffer((64, 32), "float16", "tile", scope="shared")
BARS = decl_buffer((4,), "uint64", "bars", scope="shared")
DESC = decl_buffer((2,), "uint64", "desc", scope="local")
FRAGMENT = decl_buffer((8,), "float16", "fragment", scope="local")
SUMS = decl_buffer((8,), "float32", "sums", scope="local")
SPREAD = decl_buffer((64, 8), "float32", "spread", scope="local", layout=wgmma_accumulator(64, 8))
N = Var("n", "int32")
MAP = Var("map", T.handle("tensormap").ty)
VOLTA = ["m16n16k4", "row", "col", "fp16", "fp16", "fp32", FRAGMENT, 0, FRAGMENT, 4, SUMS, 0]


def volta(at: int, value: object) -> list:
    return [value if i == at else one for i, one in enumerate(VOLTA)]


#: Builtin, arguments, and what the error says.
CASES = [
    ("access_ptr", [A, "x"], r"access_type is 'x'; it must be 'r', 'w', 'rw'"),
    ("access_ptr", [A, 4], "access_type is 4"),
    ("access_ptr", [Var("p", T.handle().ty)], "pointer p to an unknown dtype; name the buffer, or"),
    ("access_ptr", [3], "base of access_ptr is 3; it must be a buffer"),
    ("access_ptr", [A[0, 0], "r", 1, 2, 3], "3 extents; the buffer has 2 dimensions"),
    ("access_ptr", [A, "r", dict(ignore_last_ndim=3)], "ignore_last_ndim is 3; .* from 0 to 2"),
    ("create_tma_descriptor", [TILE, (8, 8)], "tile.*must be a buffer in global memory"),
    ("create_tma_descriptor", [A, (8,)], "a box of 1 dimensions for a tensor of 2"),
    ("create_tma_descriptor", [A, (8, 257)], "a box extent is 257; .* from 1 to 256"),
    ("create_tma_descriptor", [A, (8, 4)], "a box row of 4 float16 is 8 bytes"),
    ("create_tma_descriptor", [A, (8, 32), dict(swizzle=4)], "swizzle is 4; .* 'none', '32B'"),
    ("create_tma_descriptor", [A, (8, 32), dict(swizzle=1)], "permutes rows of at most 32"),
    ("create_tma_descriptor", [A, (8, 8), dict(l2_promotion="1")], "l2_promotion is '1'.*'none'"),
    ("create_tma_descriptor", [A, (8, 8), dict(oob_fill=0)], "oob_fill is 0; .* 'zeros', 'nan'"),
    ("create_tma_descriptor", [A, (8, 8), dict(interleave=8)], "interleave is 8; .* 'none', "),
    ("create_tma_descriptor", [X, (8,), dict(oob_fill="nan")], "int32 has no NaN to fill with"),
    ("create_tma_descriptor", [A, (8, 8), dict(element_strides=(9, 1))], "element stride 9"),
    ("tma_load", [A, BARS, TILE, 0, 0], "descriptor is A.*create_tma_descriptor"),
    ("tma_load", [MAP, BARS, TILE], "tma_load has 0 coordinates"),
    ("tma_load", [MAP, BARS, TILE, *[0] * 6], "tma_load has 6 coordinates"),
    ("tma_load", [MAP, TILE, TILE, 0, 0], "element of tile, which is float16; mbarriers are"),
    ("tma_load", [MAP, BARS, TILE, 0, SUMS[0]], r"a coordinate is sums\[0\].*must be an integer"),
    ("tma_load", [MAP, BARS, TILE, 0, 0, dict(cta_mask=0)], "cta_mask is 0; .* at least one CTA"),
    ("fence_proxy_async", ["shared"], "'shared'; the space must be one of 'global', 'shared::cta'"),
    ("tma_store_wait", [-1], "count is -1; it must be a constant, from 0"),
    ("tma_store_wait", [N], r"count is n \(int32\); it must be a constant"),
    ("set_max_nreg", [100, 1], "reg_count is 100; it must be a constant, a multiple of 8 from 24"),
    ("set_max_nreg", [104, 2], "is_inc is 2; it must be True or False"),
    ("inc_max_nreg", [264], "reg_count is 264; .* to 256"),
    ("dec_max_nreg", [16], "reg_count is 16"),
    ("annotate_producer_reg_dealloc", [25], "reg_count is 25"),
    ("annotate_consumer_reg_alloc", ["240"], "reg_count is '240'"),
    ("ptx_arrive_cluster_barrier", [BARS, 16], "cta_id is 16; ranks .* are 0 to 15"),
    ("ptx_arrive_cluster_barrier", [5, 0], "mbarrier is 5; it must be a buffer"),
    ("mbarrier_wait_parity", [BARS, 2], "parity is 2; it must be 0 or 1"),
    ("mbarrier_wait_parity", [X, 0], "element of X, which is int32"),
    ("mbarrier_arrive", [TILE[0, 0]], "element of tile, which is float16"),
    ("mbarrier_expect_tx", [BARS, 1 << 20], "tx is 1048576 bytes; .* 0 to 1048575"),
    ("mbarrier_expect_tx", [BARS, "16"], "tx is '16'; it must be an integer"),
    ("warpgroup_wait", [8], "num_mma is 8; it must be a constant, from 0 to 7"),
    ("wait_wgmma", [-1], "id is -1"),
    ("get_lane_idx", [0], "warp_size is 0"),
    ("get_warp_idx", [48], "warp_size is 48; it must be a power of two"),
    ("get_warp_idx_sync", [16], "warp_size is 16; .* at least 32"),
    ("get_warp_group_idx", [32, 33], "warps_per_group is 33; .* from 1 to 32"),
    ("shuffle_elect", [33], "thread_extent is 33; it must be a constant: 1, 2, 4, 8, 16, "),
    ("shuffle_elect", [24], "thread_extent is 24"),
    ("shuffle_elect", [N], r"thread_extent is n \(int32\); it must be a constant"),
    ("shuffle_elect", [2048], "thread_extent is 2048; .* up to 1024"),
    ("warpgroup_fence_operand", [N], r"buffer_or_ptr is n \(int32\)"),
    ("warpgroup_fence_operand", [SUMS, 0, 9], "num_regs is 9 .*; sums has 8 elements"),
    ("warpgroup_fence_operand", [SUMS, N], "num_regs is missing"),
    ("warpgroup_fence_operand", [SPREAD[0, 1], 0, 1], "spread is spread over threads, so the"),
    ("warpgroup_fence_operand", [DESC, 0, 257, "float32"], "num_regs is 257; .* from 1 to 256"),
    ("warpgroup_fence_operand", [FRAGMENT, 1, 2], "offset is 1; 2 elements of float16 share"),
    ("warpgroup_fence_operand", [DESC, 0, 1, "int2"], "'int2'; its elements must have 4, 8,"),
    ("barrier_wait", [BARS, -1], "parity is -1"),
    ("barrier_wait", [BARS, SUMS[0]], r"parity is sums\[0\] \(float32\); it must be 0 or 1"),
    ("barrier_wait", [BARS, 1, 1 << 32], "ticks is 4294967296; it must fit in uint32"),
    ("barrier_arrive", [SUMS], "element of sums, which is float32"),
    ("shfl_xor", [N, 32], "offset is 32; it must be from 0 to 31"),
    ("shfl_xor", ["3", 1], "the shuffled value is '3'; it must be an expression or a number"),
    ("shfl_down", [T.Cast("int4", N), 1], r"int4\); it must be .* of 8 to 256 bits"),
    ("shfl_up", [N, -1], "offset is -1"),
    ("shfl_sync", [0, N, 1], "mask is 0; at least one lane"),
    ("shfl_sync", [1 << 32, N, 1], "mask is 4294967296; it must fit in uint32"),
    ("shfl_sync", [1, N, 1, 12], "width is 12; it must be a power of two"),
    ("sync_threads", [16], "barrier_id is 16; it must be a constant, from 0 to 15"),
    ("sync_threads", [1, 100], "arrive_count is 100; .* a multiple of 32 from 32 to 1024"),
    ("sync_threads", [None, 64], "arrive_count is 64 and barrier_id is missing"),
    ("sync_threads", [SUMS[0]], r"barrier_id is sums\[0\]"),
    ("sync_warp", [0], "mask is 0"),
    ("initialize_wgmma_descriptor", [X[0], TILE], "descriptor is int32; it must be uint64"),
    ("initialize_wgmma_descriptor", [DESC[0], TILE, 4], "layout_type_ is 4; .*1 .128B., 2"),
    ("initialize_wgmma_descriptor", [DESC[0], TILE, 1, 16384], "leading_byte_offset is 16384;"),
    ("initialize_tcgen05_descriptor", [N, TILE, 0, 0], "descriptor is n .*must be an element of a"),
    ("initialize_tcgen05_descriptor", [DESC[0], TILE, 0, -1], "stride_byte_offset is -1"),
    ("initialize_tcgen05_descriptor", [DESC[0], TILE, 0, 0, 8], "base_offset is 8; .* from 0 to 7"),
    ("initialize_tcgen05_descriptor", [DESC[0], TILE, 0, 0, 0, 2], "leading_is_absolute is 2"),
    ("initialize_tcgen05_descriptor", [DESC[0], TILE, 0, 0, 0, 0, 3], "swizzle_mode is 3; .*2 ."),
    ("increase_descriptor_offset", [DESC[0], 8], "offset is 8 bytes; .* multiples of 16"),
    ("increase_descriptor_offset", [DESC[0], SUMS[0]], r"offset is sums\[0\].*must be an integer"),
    ("cp_async_barrier_noinc", [SUMS], "element of sums, which is float32"),
    ("tcgen05_mma_arrive", [BARS, 3], "cta_group is 3; .* from 1 to 2"),
    ("tcgen05_mma_arrive", [BARS, 1, 0], "cta_mask is 0"),
    ("ptx_mma_sm70", volta(0, "m8n8k4"), "shape is 'm8n8k4'; it must be 'm16n16k4'"),
    ("ptx_mma_sm70", volta(2, "column"), "B_layout is 'column'; it must be 'row' or 'col'"),
    ("ptx_mma_sm70", volta(3, "bf16"), "A_dtype is 'bf16'; it must be one of 'fp16'"),
    ("ptx_mma_sm70", volta(5, "int32"), "C_dtype is 'int32'"),
    ("ptx_mma_sm70", volta(8, TILE), "multiplicand_b is tile.*scope local"),
    ("ptx_mma_sm70", volta(10, FRAGMENT), "accumulator is float16; it must be float32"),
    *[(f"ldg{bits}", [TILE], "of tile in shared memory; .* global") for bits in (32, 64, 128, 256)],
    *[(f"stg{bits}", [A, SUMS[0], 1.5], "a condition|must have") for bits in (32, 64, 128, 256)],
    ("ldg64", [A[0, 1]], "ldg64 of A at element 1; that is no multiple of 64 bits"),
    ("ldg128", [A[0, 0:4]], "ldg128 of a region of 64 bits of A; it must have 128"),
    ("ldg32", [A, 0.5], "pred is 0.5; it must be a condition"),
    ("ldg32", [N], r"the place of ldg32 is n \(int32\)"),
    ("stg64", [A, SUMS[0]], r"the value of stg64 is sums\[0\] \(float32\); it must have 64 bits"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "message"), CASES)
def test_bad_arguments(name, arguments, message):
    *positional, last = arguments if isinstance(arguments[-1], dict) else [*arguments, {}]
    with pytest.raises(IllegalCombination, match=message) as error:
        getattr(wl, name)(*positional, **last)
    text = str(error.value)
    assert text.endswith(".") and "\n" not in text and len(text) < 220


def test_every_builtin_that_takes_something_rejects_something():
    nothing = {
        "loop_break", "tma_store_arrive", "warpgroup_arrive", "warpgroup_commit_batch",
        "no_set_max_nreg", "disable_warp_group_reg_alloc", "sync_grid", "sync_global",
    }  # fmt: skip
    assert {name for name, _, _ in CASES} == set(wl.builtins.__all__) - nothing
    for name in nothing:
        with pytest.raises(TypeError):
            getattr(wl, name)(1)


def test_scripts_show_the_line(capsys):
    with pytest.raises(tvm.error.DiagnosticError, match=r"reg_count is 100[^\n]*\n --> .*\n"):

        @T.prim_func
        def main(B: T.Buffer((32,), "int32")):
            T.device_entry()
            T.cta_id([1])
            t = T.thread_id([32])
            T.warploom.inc_max_nreg(100)
            B[t] = 0


@pytest.mark.parametrize("count", [0, 1, (1 << 20) - 1])
def test_the_ends_of_what_an_mbarrier_expects_are_legal(count):
    assert f"T.uint32({count})" in str(wl.mbarrier_expect_tx(BARS, count))


def test_a_fence_has_all_registers_that_an_accumulator_can_have():
    sums = decl_buffer((256,), "float32", "sums", scope="local")
    assert "warploom_fence_float32_256" in str(wl.warpgroup_fence_operand(sums))
