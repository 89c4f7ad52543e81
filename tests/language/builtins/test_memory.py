"""Builtins that move memory: pointers, wide loads and stores, ``cp.async`` with mbarriers."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from tests.language.builtins.vocabulary import ARCHS, compiled, poisoned, report_of
from warploom import language as wl

THREADS = 32
LOADS = {
    32: "ld.global.b32", 64: "ld.global.v2.b32", 128: "ld.global.v4.b32", 256: "ld.global.v4.b64"
}  # fmt: skip
STORES = {
    32: "st.global.b32", 64: "st.global.v2.b32", 128: "st.global.v4.b32", 256: "st.global.v4.b64"
}  # fmt: skip
#: The first thread for which a predicate is false.
LIMIT = 11


def words(bits: int, limit: int) -> PrimFunc:
    """Each thread moves so many bits; the second half of the rows only where a predicate says."""
    load, store = getattr(wl, f"ldg{bits}"), getattr(wl, f"stg{bits}")
    count = bits // 16
    size = THREADS * count

    @T.prim_func
    def main(A: T.Buffer((size,), "float16"), B: T.Buffer((3, size), "float16")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([THREADS])
        store(B[0, t * count : t * count + count], load(A[t * count : t * count + count]))
        value: T.let = load(A[t * count], pred=t < limit)
        store(B[1, t * count], value)
        store(B[2, t * count], load(A[t * count]), pred=t >= limit)

    return main


def legal(bits: int) -> tuple[str, ...]:
    return ARCHS if bits <= 128 else ARCHS[1:]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("bits", "arch"), [(bits, arch) for bits in LOADS for arch in legal(bits)]
)
def test_wide_loads_and_stores(bits, arch, rng):
    kernel = compiled(words, arch, bits, LIMIT)
    assert kernel.has(LOADS[bits], f"@p {LOADS[bits]}", STORES[bits], f"@p {STORES[bits]}")
    count = bits // 16
    values = rng.standard_normal(THREADS * count).astype("float16")
    before = poisoned((3, THREADS * count), "float16")
    _, after = kernel.run(values, before)
    below = np.arange(THREADS).repeat(count) < LIMIT
    np.testing.assert_array_equal(after[0], values)
    np.testing.assert_array_equal(after[1], np.where(below, values, 0))
    kept = np.where(below, before[2], values)
    np.testing.assert_array_equal(after[2].view(np.uint16), kept.view(np.uint16))


def test_256_bits_are_of_blackwell():
    with pytest.raises(Exception, match="stg256 needs sm_100a; use stg128 twice"):
        compiled(words, "sm_90a", 256, LIMIT)


def pointers() -> PrimFunc:
    """Device functions get pointers to parts of matrices."""
    copy = (
        "__forceinline__ __device__ void test_copy(float* to, const float* from, int n) "
        "{ for (int i = 0; i < n; ++i) to[i] = from[i]; }"
    )

    @T.prim_func
    def main(A: T.Buffer((4, 8, 16), "float32"), B: T.Buffer((6, 16), "float32")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([THREADS])
        tile = T.alloc_buffer((16,), "float32", scope="local")
        if t == 0:
            T.cuda.func_call(
                "test_copy", wl.access_ptr(tile, "w"), wl.access_ptr(A[1, 2, 3], "r", 5), 5,
                source_code=copy,
            )  # fmt: skip
            T.cuda.func_call(
                "test_copy", wl.access_ptr(B[0, 0], "w", 5), wl.access_ptr(tile), 5,
                source_code=copy,
            )  # fmt: skip
            T.cuda.func_call(
                "test_copy", wl.access_ptr(B[1:2, :], 2), wl.access_ptr(A[3, 4, 0:16]), 16,
                source_code=copy,
            )  # fmt: skip
            T.cuda.func_call(
                "test_copy", wl.access_ptr(B, "rw", offset=2 * 16 + 1),
                wl.access_ptr(A[2, 7, 9], "r", 8, 16, ignore_last_ndim=2, offset=4, extent=7), 7,
                source_code=copy,
            )  # fmt: skip

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_access_ptr(arch, rng):
    kernel = compiled(pointers, arch)
    assert kernel.has("ld.global", "st.global")
    values = rng.standard_normal((4, 8, 16)).astype("float32")
    before = poisoned((6, 16), "float32")
    _, after = kernel.run(values, before)
    expected = before.copy()
    expected[0, :5] = values[1, 2, 3:8]
    expected[1] = values[3, 4]
    expected[2, 1:8] = values[2, 0, 4:11]
    np.testing.assert_array_equal(after.view(np.uint32), expected.view(np.uint32))


def bases() -> PrimFunc:
    """Pointers that are bound, into views, and of another dtype."""
    copy = (
        "__forceinline__ __device__ void test_copy(float* to, const float* from, int n) "
        "{ for (int i = 0; i < n; ++i) to[i] = from[i]; }"
    )

    @T.prim_func
    def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((6, 8), "float32")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([32])
        p: T.let = A.ptr_to([1, 2])
        q: T.let = wl.access_ptr(B[0, 0], "w")
        r: T.let = A.data
        words: T.let = T.reinterpret(T.handle("uint32").ty, A.ptr_to([3, 0]))
        view = A.view(32)
        if t == 0:
            T.cuda.func_call(
                "test_copy", wl.access_ptr(q, "w", offset=2), wl.access_ptr(p, "r", 3, offset=1),
                3, source_code=copy,
            )  # fmt: skip
            T.cuda.func_call(
                "test_copy", wl.access_ptr(B[1, 0], "w"), wl.access_ptr(r, offset=1, extent=3),
                3, source_code=copy,
            )  # fmt: skip
            T.cuda.func_call(
                "test_copy", wl.access_ptr(B[2, 0:3], "w"), wl.access_ptr(view[9:12]),
                3, source_code=copy,
            )  # fmt: skip
            T.cuda.func_call(
                "test_copy", wl.access_ptr(B[3, 0], "w", 3), wl.access_ptr(A.ptr_to([2, 0]), 1, 3),
                3, source_code=copy,
            )  # fmt: skip
            T.cuda.func_call(
                "test_copy", wl.access_ptr(B[4, 0], "w", 3),
                wl.access_ptr(T.reinterpret(T.handle("float32").ty, A.ptr_to([2, 1])), "r", 3),
                3, source_code=copy,
            )  # fmt: skip
        B[5, t % 8] = T.cuda.func_call(
            "test_word", wl.access_ptr(words, offset=t % 8), return_type="float32",
            source_code="__forceinline__ __device__ float test_word(const unsigned int* from) "
            "{ return __uint_as_float(*from); }",
        )

    return main


@pytest.mark.gpu
def test_access_ptr_of_pointers_and_views(rng):
    values = rng.standard_normal((4, 8)).astype("float32")
    before = poisoned((6, 8), "float32")
    _, after = compiled(bases, "sm_90a").run(values, before)
    expected = before.copy()
    expected[0, 2:5] = values[1, 3:6]
    expected[1, :3] = values[0, 1:4]
    expected[2, :3] = values[1, 1:4]
    expected[3, :3] = values[2, :3]
    expected[4, :3] = values[2, 1:4]
    expected[5] = values[3]
    np.testing.assert_array_equal(after.view(np.uint32), expected.view(np.uint32))


def test_access_ptr_says_what_is_accessed():
    A = tvm.tirx.decl_buffer((4, 8), "float16", "A")

    def parts(call):
        assert call.op.name == "tirx.tvm_access_ptr"
        return tuple(int(one) for one in call.args[2:])

    assert parts(wl.access_ptr(A)) == (0, 32, 1)
    assert parts(wl.access_ptr(A[1, 2])) == (10, 1, 1)
    assert parts(wl.access_ptr(A[1:3, 0:8], "w")) == (8, 16, 2)
    assert parts(wl.access_ptr(A[1, 2], "rw", 2, 4, offset=3)) == (13, 8, 3)
    assert parts(wl.access_ptr(A[1, 2], 3, 2, 4, extent=5, ignore_last_ndim=1)) == (8, 5, 3)


def copies(missing: str = "") -> PrimFunc:
    """Threads copy a row each with ``cp.async``; an mbarrier waits for all of them."""

    @T.prim_func
    def main(A: T.Buffer((THREADS, 8), "float16"), B: T.Buffer((THREADS, 8), "float16")):
        T.device_entry()
        T.cta_id([1])
        t = T.thread_id([THREADS])
        tile = T.alloc_buffer((THREADS, 8), "float16", scope="shared")
        here = wl.mbarrier.alloc()
        if t == 0:
            wl.mbarrier.init(here, THREADS)
        wl.sync_threads()
        T.ptx["cp.async.ca.shared.global"](tile.ptr_to([t, 0]), A.ptr_to([t, 0]), 16)
        if missing == "copies":
            wl.mbarrier_arrive(here)
        else:
            wl.cp_async_barrier_noinc(here)
        wl.mbarrier_wait_parity(here, 0)
        for i in T.serial(8):
            B[t, i] = tile[THREADS - 1 - t, i]

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ARCHS)
def test_cp_async_barrier_noinc(arch, rng):
    kernel = compiled(copies, arch)
    assert kernel.has("cp.async.mbarrier.arrive.noinc.shared::cta.b64")
    values = rng.standard_normal((THREADS, 8)).astype("float16")
    _, after = kernel.run(values, poisoned((THREADS, 8), "float16"))
    np.testing.assert_array_equal(after, values[::-1])


def test_a_plain_arrival_does_not_wait_for_copies(rng):
    values = rng.standard_normal((THREADS, 8)).astype("float16")
    report = report_of(copies("copies"), values, poisoned((THREADS, 8), "float16"))
    assert "wait for the operation" in report or "data race" in report
