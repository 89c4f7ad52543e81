"""Builtins of the tensor cores: groups of wgmma, operand fences, descriptors, tcgen05, sm70."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx
from tvm.backend.cuda.cpp.descriptors import encode_instr_descriptor_dense_uint32
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc
from tvm.tirx.layout import S, TileLayout

import warploom
from tests.language.builtins.vocabulary import ARCHS, compiled, poisoned, report_of
from warploom import language as wl
from warploom.layout.fragment import wgmma_accumulator
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.lowerings import lower
from warploom.target import Major, Swizzle, cuda_target

DTYPE = "float16"
K = 64


def products(n: int = 8, missing: str = "") -> PrimFunc:
    """C = 3 A B^T and D = A B^T + 1, by two groups of wgmma with descriptors made by hand.

    Rows of A and B are 128 bytes with the swizzle of that width: eight rows are 1024 bytes.
    """
    layout = [mma_shared_layout(DTYPE, 3, (rows, K)) for rows in (64, n)]
    count, opcode = n // 2, f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16"

    @T.prim_func
    def main(
        A: T.Buffer((64, K), DTYPE), B: T.Buffer((n, K), DTYPE),
        C: T.Buffer((64, n), "float32"), D: T.Buffer((64, n), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        t = T.thread_id_in_wg([128])
        A_s = T.alloc_buffer((64, K), DTYPE, scope="shared", layout=layout[0])
        B_s = T.alloc_buffer((n, K), DTYPE, scope="shared", layout=layout[1])
        for i in T.serial(64 * K // 128):
            A_s[2 * i + t // K, t % K] = A[2 * i + t // K, t % K]
        for i in T.serial(n * K // 128):
            B_s[2 * i + t // K, t % K] = B[2 * i + t // K, t % K]
        if missing != "proxy":
            wl.fence_proxy_async()
        wl.sync_threads()
        left: T.uint64 = T.uint64(0)
        right = T.alloc_buffer((1, 1), "uint64", scope="wgmma.descriptor")
        wl.initialize_wgmma_descriptor(left, A_s, 1, 1, 64)
        wl.initialize_wgmma_descriptor(right[0, 0], B_s[0, 0], 1, 1, 64)
        acc = T.alloc_buffer((64, n), "float32", scope="local", layout=wgmma_accumulator(64, n))
        more = T.alloc_buffer((64, n), "float32", scope="local", layout=wgmma_accumulator(64, n))
        c = acc.local(count, layout=TileLayout(S[(count,)]))
        d = more.local(count, layout=TileLayout(S[(count,)]))
        for i in T.unroll(count):
            d[i] = 1.0
        wl.warpgroup_fence_operand(more)
        if missing != "arrive":
            wl.warpgroup_arrive()
        for k in T.unroll(K // 16):
            T.ptx[opcode](
                *[c[i] for i in range(count)], left, right[0, 0],
                T.ptx.pred(T.cast(k > 0, "bool")), 1, 1, 0, 0,
            )  # fmt: skip
            if k < K // 16 - 1:
                wl.increase_descriptor_offset(left, 32)
                wl.increase_descriptor_offset(right[0, 0], k * 0 + 32)
        wl.warpgroup_commit_batch()
        for k in T.unroll(K // 16):
            T.ptx[opcode](*[d[i] for i in range(count)], left, right[0, 0], True, 1, 1, 0, 0)
            if k < K // 16 - 1:
                wl.increase_descriptor_offset(left, -32)
                wl.increase_descriptor_offset(right[0, 0], k * 0 - 32)
        if missing != "commit":
            wl.warpgroup_commit_batch()
        if missing != "first":
            wl.warpgroup_wait(1)
        if missing != "fence":
            wl.warpgroup_fence_operand(c, num_regs=count)
        for i in T.unroll(count):
            c[i] = c[i] * 3.0
        Tx.wg.copy(C[:, :], acc)
        if missing != "second":
            wl.wait_wgmma(0)
        wl.warpgroup_fence_operand(d.ptr_to([0]), 0, count, "float32")
        Tx.wg.copy(D[:, :], more)

    return main


@pytest.mark.gpu
def test_wgmma(rng):
    kernel = compiled(products, "sm_90a")
    assert kernel.has(
        "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 0;",
    )  # fmt: skip
    a, b = (rng.standard_normal((rows, K)).astype(DTYPE) for rows in (64, 8))
    _, _, c, d = kernel.run(a, b, *(poisoned((64, 8), "float32") for _ in range(2)))
    exact = a.astype(float) @ b.astype(float).T
    assert np.abs(c - 3 * exact).max() <= 1e-5 * np.abs(exact).max()
    assert np.abs(d - exact - 1).max() <= 1e-5 * np.abs(exact).max()


@pytest.mark.parametrize("missing", ["proxy", "arrive", "commit", "first", "second"])
def test_the_checker_sees_what_wgmma_lacks(missing, rng):
    a, b = (rng.standard_normal((rows, K)).astype(DTYPE) for rows in (64, 8))
    arrays = a, b, *(poisoned((64, 8), "float32") for _ in range(2))
    report = report_of(products(8, missing), *arrays)
    assert ("fence.proxy.async" if missing == "proxy" else "wgmma") in report


@pytest.mark.usefixtures("machine_code")
def test_fenced_registers_stay_registers():
    """256 accumulators of two MMAs: nothing is spilled, serialised or used too early."""
    report = warploom.compile_report(lower(products(128), "sm_90a"), cuda_target("h200"))
    (kernel,) = report.kernels
    assert not report.problems, report
    assert kernel.spill_store_bytes == kernel.spill_load_bytes == 0
    assert kernel.sass["HGMMA"] == 2 * K // 16
    assert not {"LDL", "STL"} & set(kernel.sass)


N = 16


def tensor_memory(swizzle: Swizzle, missing: str = "") -> PrimFunc:
    """C = A B^T by tcgen05, with operands of a swizzle, and tensor memory by hand."""
    left, right = (SharedMatrix(DTYPE, Major.K, swizzle, rows, K) for rows in (128, N))
    fields = [(m.leading_bytes // 16, m.stride_bytes // 16) for m in (left, right)]
    code = swizzle.tcgen05_code

    def moved(operand, k):
        matrix = (left, right)[operand]
        return matrix.byte_offset(0, 16 * k) - matrix.byte_offset(0, 16 * k - 16)

    mma = encode_instr_descriptor_dense_uint32(
        M=128, N=N, K=16, d_dtype="float32", a_dtype=DTYPE, b_dtype=DTYPE, trans_a=False,
        trans_b=False,
    )  # fmt: skip

    @T.prim_func
    def main(
        A: T.Buffer((128, K), DTYPE), B: T.Buffer((N, K), DTYPE), C: T.Buffer((128, N), "float32")
    ):
        T.device_entry()
        T.cta_id([1])
        warp = T.warp_id([4])
        lane = T.lane_id([32])
        t: T.let = warp * 32 + lane
        A_s = T.alloc_buffer((128, K), DTYPE, scope="shared", layout=left.layout())
        B_s = T.alloc_buffer((N, K), DTYPE, scope="shared", layout=right.layout())
        place = T.alloc_buffer((4,), "uint32", scope="shared")
        done = wl.mbarrier.alloc()
        if t == 0:
            wl.mbarrier.init(done, 1)
        if warp == 0:
            T.ptx["tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"](place.ptr_to([0]), 32)
        for i in T.serial(K):
            A_s[2 * i + t // K, t % K] = A[2 * i + t // K, t % K]
        for i in T.serial(N * K // 128):
            B_s[2 * i + t // K, t % K] = B[2 * i + t // K, t % K]
        wl.fence_proxy_async()
        T.ptx.tcgen05.fence__before_thread_sync()
        wl.sync_threads()
        T.ptx.tcgen05.fence__after_thread_sync()
        if warp == 0 and T.cuda.elect_sync() != T.uint32(0):
            a: T.uint64 = T.uint64(0)
            b: T.uint64 = T.uint64(0)
            wl.initialize_tcgen05_descriptor(a, A_s, *fields[0], swizzle_mode=code)
            wl.initialize_tcgen05_descriptor(b, B_s[0, 0], *fields[1], 0, False, code)
            for k in T.unroll(K // 16):
                if k > 0:
                    wl.increase_descriptor_offset(a, moved(0, k))
                    wl.increase_descriptor_offset(b, moved(1, k))
                T.ptx["tcgen05.mma.cta_group::1.kind::f16"](
                    place[0], a, b, T.uint32(mma), 0, 0, 0, 0, T.ptx.pred(T.cast(k > 0, "bool"))
                )
            if missing != "arrive":
                wl.tcgen05_mma_arrive(done)
        if missing != "wait":
            wl.mbarrier_wait_parity(done, 0)
        T.ptx.tcgen05.fence__after_thread_sync()
        c = T.alloc_buffer((N,), "uint32", scope="local")
        T.ptx[f"tcgen05.ld.sync.aligned.32x32b.x{N}.b32"](
            *[c[i] for i in range(N)], place[0] + T.Cast("uint32", warp * 32) * T.uint32(65536)
        )
        T.ptx["tcgen05.wait::ld.sync.aligned"]()
        for i in T.unroll(N):
            C[t, i] = T.reinterpret("float32", c[i])
        T.ptx.tcgen05.fence__before_thread_sync()
        wl.sync_threads()
        if warp == 0:
            T.ptx["tcgen05.dealloc.cta_group::1.sync.aligned.b32"](place[0], 32)

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("swizzle", Swizzle)
def test_tcgen05(swizzle, rng):
    kernel = compiled(tensor_memory, "sm_100a", swizzle)
    assert kernel.has("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64")
    a, b = (rng.standard_normal((rows, K)).astype(DTYPE) for rows in (128, N))
    _, _, c = kernel.run(a, b, poisoned((128, N), "float32"))
    exact = a.astype(float) @ b.astype(float).T
    assert np.abs(c - exact).max() <= 4e-6 * np.abs(exact).max()


@pytest.mark.parametrize("missing", ["arrive", "wait"])
def test_the_checker_sees_what_tcgen05_lacks(missing, rng):
    a, b = (rng.standard_normal((rows, K)).astype(DTYPE) for rows in (128, N))
    func = tensor_memory(Swizzle.B128, missing)
    report = report_of(func, a, b, poisoned((128, N), "float32"), arch="sm_100a")
    assert ("deadlock" if missing == "arrive" else "tcgen05") in report


def fields() -> PrimFunc:
    """Descriptors of both kinds, to memory."""

    @T.prim_func
    def main(A: T.Buffer((8,), "uint64"), n: T.int32):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([32])
        tile = T.alloc_buffer((64, 64), "float16", scope="shared")
        if t == 0:
            tile[0, 0] = T.float16(0)
            d = T.alloc_buffer((8,), "uint64", scope="local")
            wl.initialize_wgmma_descriptor(d[0], tile)
            wl.initialize_wgmma_descriptor(d[1], tile, 3, 0x3FFF, n)
            wl.initialize_wgmma_descriptor(d[2], tile[2, 0], 2, n, 0x1234)
            wl.initialize_tcgen05_descriptor(d[3], tile, 0, 0)
            wl.initialize_tcgen05_descriptor(d[4], tile, n, 0x3FFF, 5, True, 6)
            wl.initialize_tcgen05_descriptor(d[5], tile[2, 0], 0x1234, n, swizzle_mode=1)
            d[6] = d[4]
            wl.increase_descriptor_offset(d[6], n * 16)
            d[7] = d[1]
            wl.increase_descriptor_offset(d[7], -16)
            for i in T.serial(8):
                A[i] = d[i]

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_descriptors_have_the_fields_that_they_are_given(arch):
    """Bit for bit."""
    (got,) = compiled(fields, arch).run(poisoned(8, "uint64"), 0x21)
    low, chunk = int(got[0]) & 0x3FFF, 2 * 64 * 2 // 16
    expected = [
        low, low | 0x3FFF << 16 | 0x21 << 32 | 3 << 62,
        low + chunk | 0x21 << 16 | 0x1234 << 32 | 2 << 62,
        low | 1 << 46, low | 0x21 << 16 | 0x3FFF << 32 | 1 << 46 | 5 << 49 | 1 << 52 | 6 << 61,
        low + chunk | 0x1234 << 16 | 0x21 << 32 | 1 << 46 | 1 << 61,
    ]  # fmt: skip
    expected += [expected[4] + 0x21, expected[1] - 1 if low else expected[1] + 0x3FFF]
    assert [hex(int(one)) for one in got] == [hex(one) for one in expected]


def volta(layouts: tuple[str, str], result: str) -> PrimFunc:
    """C += A B of 16 x 4 and 4 x 16, with one MMA."""

    @T.prim_func
    def main(
        A: T.Buffer((32, 4), DTYPE), B: T.Buffer((32, 4), DTYPE), C: T.Buffer((32, 8), result)
    ):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([32])
        a = T.alloc_buffer((8,), DTYPE, scope="local")
        b = T.alloc_buffer((4,), DTYPE, scope="local")
        c = T.alloc_buffer((8,), result, scope="local")
        for i in T.unroll(4):
            a[4 + i] = A[t, i]
            b[i] = B[t, i]
        for i in T.unroll(8):
            c[i] = C[t, i]
        wl.ptx_mma_sm70("m16n16k4", *layouts, "fp16", "fp16", result, a, 4, b, 0, c, 0)
        for i in T.unroll(8):
            C[t, i] = c[i]

    return main


def volta_exact(a, b, c, layouts):
    """What the lanes of a warp hold after it (PTX ISA, "Matrix Fragments for mma.m8n8k4")."""
    after = c.astype(float)
    for quarter in range(4):
        lanes = [4 * quarter + i for i in range(4)] + [16 + 4 * quarter + i for i in range(4)]
        left, right = np.zeros((8, 4)), np.zeros((4, 8))
        for number, lane in enumerate(lanes):
            high, within = divmod(number, 4)
            for i in range(4):
                if layouts[0] == "row":
                    left[within + 4 * high, i] = a[lane, i]
                else:
                    left[i + 4 * high, within] = a[lane, i]
                if layouts[1] == "col":
                    right[i, within + 4 * high] = b[lane, i]
                else:
                    right[within, i + 4 * high] = b[lane, i]
        product = left @ right
        for number, lane in enumerate(lanes):
            high, within = divmod(number, 4)
            for i in range(8):
                if c.dtype == np.float16:
                    row, column = within + 4 * high, i
                else:
                    row = (within & 1) + (i & 2) + 4 * high
                    column = (i & 4) + (within & 2) + (i & 1)
                after[lane, i] += product[row, column]
    return after


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("layouts", "result", "arch"),
    [
        (("row", "col"), "float32", "sm_90a"),
        (("col", "row"), "float32", "sm_100a"),
        (("row", "row"), "float16", "sm_90a"),
    ],
)
def test_mma_sm70(layouts, result, arch, rng):
    kernel = compiled(volta, arch, layouts, result)
    kind = {"float32": "f32", "float16": "f16"}[result]
    shape = ".".join(["mma.sync.aligned.m8n8k4", *layouts])
    assert kernel.has(f"{shape}.{kind}.f16.f16.{kind}")
    a, b = (rng.standard_normal((32, 4)).astype(DTYPE) for _ in range(2))
    c = rng.standard_normal((32, 8)).astype(result)
    got = kernel.run(a, b, c)[2]
    exact = volta_exact(a, b, c, layouts)
    assert np.abs(got - exact).max() <= (2e-3 if result == "float16" else 1e-6) * 4


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("mask", [None, 1, 3])
def test_arrivals_of_mmas_name_their_ctas(group, mask):
    """A commit of a group of CTAs, to this CTA's mbarrier or to those of a mask."""
    bars = tirx.decl_buffer((1,), "uint64", "bars", scope="shared")
    text = str(wl.tcgen05_mma_arrive(bars, group, mask))
    assert f"cta_group::{group}" in text and '"commit"' in text
    assert ("multicast::cluster" in text) == (mask is not None)
    assert (f"T.uint16({mask})" in text) == (mask is not None)
