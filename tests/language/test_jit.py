"""``warploom.jit``: tile programs that are compiled when they are called with tensors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from tests.shared.paths import ROOT
from warploom import emulator
from warploom import language as wl
from warploom.errors import ArgumentError, TileProgramError
from warploom.language.calls import arguments as call_arguments
from warploom.language.calls import placement
from warploom.language.calls.compiled import ptx_of, typed
from warploom.meta_schedule.cuda_timer import CudaTimer
from warploom.programs import attention

pytestmark = pytest.mark.gpu


def factory(**options):
    """C = alpha A Bᵀ for a float32 C, under ``warploom.jit`` with these options."""

    @warploom.jit(**options)
    def linear(A, B, alpha, *, BM=64, BN=64, BK=32, out_dtype="float32"):
        (M, K), N = A.shape, B.shape[0]

        @T.prim_func
        def program(
            a: T.Buffer((M, K), A.dtype),
            b: T.Buffer((N, K), B.dtype),
            factor: T.float32,
            c: T.Buffer((M, N), out_dtype),
        ):
            T.device_entry()
            i, j = T.cta_id([T.ceildiv(M, BM), -(-N // BN)])
            A_s = T.alloc_buffer((BM, BK), A.dtype, scope="shared")
            B_s = T.alloc_buffer((BN, BK), B.dtype, scope="shared")
            acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
            out = T.alloc_buffer((BM, BN), out_dtype, scope="fragment")
            for k in wl.pipelined(-(-K // BK), stages=2):
                Tx.cta.copy_async(A_s, a[i * BM : i * BM + BM, k * BK : k * BK + BK])
                Tx.cta.copy_async(B_s, b[j * BN : j * BN + BN, k * BK : k * BK + BK])
                Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
            for y, x in T.grid(BM, BN):
                out[y, x] = T.cast(acc[y, x] * factor, out_dtype)
            Tx.cta.copy(c[i * BM : i * BM + BM, j * BN : j * BN + BN], out)

        return program

    return linear


def copy_program(rows=None, columns=32, dtype="float32"):
    """B = A + 1, element by element; symbolic rows if none are given."""

    @T.prim_func
    def add_one(a: T.handle, b: T.handle):
        m = T.int32() if rows is None else T.meta_var(rows)
        A = T.match_buffer(a, (m, columns), dtype)
        B = T.match_buffer(b, (m, columns), dtype)
        T.device_entry()
        i = T.cta_id([T.ceildiv(m, 16)])
        tile = T.alloc_buffer((16, columns), dtype, scope="shared")
        Tx.cta.copy_async(tile, A[i * 16 : i * 16 + 16, :])
        for y, x in T.grid(16, columns):
            B[i * 16 + y, x] = tile[y, x] + T.cast(T.float32(1), dtype)

    return add_one


def operands(rng, m=48, n=64, k=64, dtype="float16"):
    a, b = (rng.standard_normal((rows, k)).astype(dtype) for rows in (m, n))
    return a, b


def exact(a, b, alpha=1.0):
    return alpha * (a.astype("float64") @ b.astype("float64").T)


class OnlyDLPack:
    """A tensor of a framework that nobody knows."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack__(self, **options):
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()


@pytest.fixture
def compilations(monkeypatch):
    """The programs that are compiled, in order."""
    found = []
    stock = tvm.compile

    def compile(module, *args, **options):
        found.append(module)
        return stock(module, *args, **options)

    monkeypatch.setattr(tvm, "compile", compile)
    return found


needs_emulator = pytest.mark.skipif(
    "not __import__('warploom').emulator.is_enabled()", reason="arrays are for the emulator"
)


@needs_emulator
@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_a_factory_is_compiled_once_for_dtypes_and_sizes(dtype, rng, compilations):
    linear = factory(out_idx=3)
    a, b = operands(rng, dtype=dtype)
    for _ in range(3):
        c = np.full((48, 64), np.nan, "float32")
        assert linear(a, b, 2.0, c) is c
        np.testing.assert_allclose(c, exact(a, b, 2.0), rtol=0, atol=1e-3)
    assert len(compilations) == 1
    assert linear.cache_info() == (2, 1, 1, 1)


@needs_emulator
def test_other_sizes_static_values_and_dtypes_are_other_kernels(rng, compilations):
    linear = factory(out_idx=-1)
    a, b = operands(rng)
    calls = [
        ((a, b), {}),
        ((a[:32], b), {}),
        ((a, b), {"BN": 32}),
        ((a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)), {}),
        ((a, b), {"out_dtype": "float16"}),
    ]
    for number, (arrays, static) in enumerate(calls, 1):
        found = linear(*arrays, 1.0, **static)
        assert found.dtype == static.get("out_dtype", "float32")
        np.testing.assert_allclose(found.astype(float), exact(*arrays), rtol=0, atol=0.05)
        assert len(compilations) == number
    linear(a, b, 1.0, BM=64)  # what it is by default
    assert len(compilations) == len(calls)
    assert linear.cache_info().compilations == len(calls)


@needs_emulator
def test_dynamic_sizes_are_no_constants(rng, compilations):
    linear = factory(out_idx=[-1], dynamic={"A": {0: "m"}})
    for m in (0, 1, 48, 65):
        a, b = operands(rng, m=m)
        np.testing.assert_allclose(linear(a, b, 1.0), exact(a, b), rtol=0, atol=1e-3)
    assert len(compilations) == 1
    assert linear.cache_info() == (3, 1, 1, 1)
    with pytest.raises(ArgumentError, match=r"dimension 0 must be 65, as in A"):
        linear(a, b, 1.0, np.zeros((64, 64), "float32"))


@needs_emulator
def test_a_finished_program_has_its_own_variables(rng, compilations):
    kernel = warploom.jit(copy_program(), out_idx=1)
    for rows in (5, 33):
        a = rng.standard_normal((rows, 32)).astype("float32")
        np.testing.assert_array_equal(kernel(a), a + 1)
        b = np.full_like(a, np.nan)
        assert kernel(a, b) is b
        np.testing.assert_array_equal(b, a + 1)
    assert len(compilations) == 1


def halves(columns=64):
    """Both halves of each row, one after the other."""

    @T.prim_func
    def left(a: T.handle, b: T.handle):
        m = T.int32()
        A = T.match_buffer(a, (m, columns), "float32")
        B = T.match_buffer(b, (m * 2, columns // 2), "float32")
        T.device_entry()
        i = T.cta_id([T.ceildiv(m, 16)])
        tile = T.alloc_buffer((16, columns), "float32", scope="shared")
        Tx.cta.copy_async(tile, A[i * 16 : i * 16 + 16, :])
        for y, h, x in T.grid(16, 2, columns // 2):
            B[i * 32 + y * 2 + h, x] = tile[y, h * (columns // 2) + x]

    return left


@needs_emulator
def test_sizes_of_results_may_be_expressions(rng):
    kernel = warploom.jit(halves(), out_idx=1)
    for rows in (16, 21):
        a = rng.standard_normal((rows, 64)).astype("float32")
        np.testing.assert_array_equal(kernel(a), a.reshape(2 * rows, 32))


@needs_emulator
def test_a_result_whose_size_no_argument_gives_is_passed(rng):
    @T.prim_func
    def spread(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (32,), "float32")
        B = T.match_buffer(b, (n, 32), "float32")
        T.device_entry()
        i = T.cta_id([n])
        tile = T.alloc_buffer((32,), "float32", scope="shared")
        Tx.cta.copy_async(tile, A[:])
        for x in T.serial(32):
            B[i, x] = tile[x]

    kernel = warploom.jit(spread, out_idx=1)
    a, b = rng.standard_normal(32).astype("float32"), np.full((3, 32), np.nan, "float32")
    with pytest.raises(ArgumentError, match=r"The size n of B: float32\[n, 32\] is that of no"):
        kernel(a)
    kernel(a, b)
    np.testing.assert_array_equal(b, np.tile(a, (3, 1)))


@needs_emulator
def test_jit_stands_above_prim_func(rng):
    @warploom.jit
    @T.prim_func
    def double(A: T.Buffer((8, 32), "float32"), B: T.Buffer((8, 32), "float32")):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((8, 32), "float32", scope="shared")
        Tx.cta.copy_async(tile, A[:, :])
        for y, x in T.grid(8, 32):
            B[y, x] = tile[y, x] * T.float32(2)

    a = rng.standard_normal((8, 32)).astype("float32")
    b = np.full_like(a, np.nan)
    double(a, b)
    np.testing.assert_array_equal(b, 2 * a)
    assert double.__name__ == "double"


@needs_emulator
def test_a_kernel_by_hand(rng):
    @warploom.jit(out_idx=-1)
    @T.prim_func
    def halve(A: T.Buffer((4, 64), "float32"), B: T.Buffer((4, 64), "float32")):
        T.device_entry()
        row = T.cta_id([4])
        thread = T.thread_id([64])
        B[row, thread] = A[row, thread] * T.float32(0.5)

    a = rng.standard_normal((4, 64)).astype("float32")
    np.testing.assert_array_equal(halve(a), a / 2)


@needs_emulator
def test_equal_programs_of_two_shapes_are_compiled_once(rng, compilations):
    @warploom.jit(out_idx=1)
    def add_one(A):
        return copy_program(None, A.shape[1], A.dtype)

    for rows in (3, 20):
        a = rng.standard_normal((rows, 32)).astype("float32")
        np.testing.assert_array_equal(add_one(a), a + 1)
    assert len(compilations) == 1
    assert add_one.cache_info() == (0, 2, 2, 1)
    add_one.cache_clear()
    assert add_one.cache_info() == (0, 0, 0, 0)


@needs_emulator
def test_a_factory_may_have_all_tensors(rng):
    @warploom.jit(dynamic={"A": {0: "m"}, "B": {0: "m"}})
    def add_one(A, B):
        assert A.shape[0].same_as(B.shape[0])
        return copy_program(None, A.shape[1], B.dtype)

    a = rng.standard_normal((7, 32)).astype("float32")
    b = np.full_like(a, np.nan)
    assert add_one(a, b) is None
    np.testing.assert_array_equal(b, a + 1)


@needs_emulator
def test_one_array_may_be_argument_and_result(rng):
    kernel = warploom.jit(copy_program(16))
    a = rng.standard_normal((16, 32)).astype("float32")
    before = a.copy()
    kernel(a, a)
    np.testing.assert_array_equal(a, before + 1)


@needs_emulator
def test_read_only_arrays_are_arguments_and_no_results(rng):
    kernel = warploom.jit(copy_program(16))
    a, b = (rng.standard_normal((16, 32)).astype("float32") for _ in range(2))
    a.flags.writeable = False
    kernel(a, b)
    np.testing.assert_array_equal(b, a + 1)
    b[:], b.flags.writeable = 0, False
    with pytest.raises(ArgumentError, match=r"B is a float32 tensor.*read-only"):
        kernel(a, b)


def on_gpu(array):
    return tvm.runtime.tensor(array, tvm.cuda(0))


@pytest.mark.parametrize("wrap", [lambda tensor: tensor, OnlyDLPack], ids=["tvm", "dlpack"])
def test_tensors_of_a_device(wrap, rng):
    linear = factory(out_idx=-1)
    a, b = operands(rng)
    found = linear(wrap(on_gpu(a)), wrap(on_gpu(b)), 1.0)
    assert isinstance(found, tvm.runtime.Tensor) and found.device == tvm.cuda(0)
    np.testing.assert_allclose(found.numpy(), exact(a, b), rtol=0, atol=1e-3)
    poison = on_gpu(np.full((48, 64), np.nan, "float32"))
    linear(wrap(on_gpu(a)), wrap(on_gpu(b)), 1.0, wrap(poison))
    np.testing.assert_allclose(poison.numpy(), exact(a, b), rtol=0, atol=1e-3)


@needs_emulator
def test_tensors_of_the_cpu_are_written_in_place(rng):
    kernel = warploom.jit(copy_program(16))
    a = rng.standard_normal((16, 32)).astype("float32")
    b, c = np.full_like(a, np.nan), tvm.runtime.tensor(np.full_like(a, np.nan))
    kernel(OnlyDLPack(a), OnlyDLPack(b))
    kernel(a, c)
    for found in (b, c.numpy()):
        np.testing.assert_array_equal(found, a + 1)


def test_a_call_runs_on_the_current_stream(rng):
    """What a stream captures is not executed before its replay."""
    kernel = warploom.jit(copy_program(16))
    array = rng.standard_normal((16, 32)).astype("float32")
    a, b = on_gpu(array), on_gpu(np.full_like(array, np.nan))
    kernel(a, on_gpu(array))  # loads the module, which no capture survives
    timer = CudaTimer(tvm.cuda(0))
    with timer.on_stream():
        replay = timer.capture(lambda _: kernel(a, b), 1, 1)
        assert np.isnan(b.numpy()).all()
        replay()
        timer.idle(0.0)
    np.testing.assert_array_equal(b.numpy(), array + 1)


@needs_emulator
def test_devices_of_two_architectures(rng, compilations):
    linear = factory(out_idx=-1)
    a, b = operands(rng, m=128, n=128)
    for index in (0, 1, 0, 1):
        tensors = (tvm.runtime.tensor(array, tvm.cuda(index)) for array in (a, b))
        found = linear(*tensors, 1.0, BM=128)
        assert found.device == tvm.cuda(index)
        np.testing.assert_allclose(found.numpy(), exact(a, b), rtol=0, atol=1e-3)
    assert len(compilations) == 2
    with pytest.raises(ArgumentError, match=r"A is on cuda:0, B on cuda:1; all tensors"):
        linear(on_gpu(a), tvm.runtime.tensor(b, tvm.cuda(1)), 1.0)
    with pytest.raises(ArgumentError, match=r"A is on cuda:0, B on the CPU"):
        linear(on_gpu(a), b, 1.0)


@needs_emulator
def test_a_target_chooses_the_emulated_device(rng):
    target = warploom.cuda_target("sm_100a")
    linear = factory(out_idx=-1, target=target)
    a, b = operands(rng, m=128, n=128)
    np.testing.assert_allclose(linear(a, b, 1.0, BM=128), exact(a, b), rtol=0, atol=1e-3)
    assert "tcgen05.mma" in linear.source("ptx")
    hopper = tvm.cuda([str(tvm.cuda(i).compute_version) for i in range(2)].index("9.0"))
    with pytest.raises(ArgumentError, match=r"architecture sm_90a, and the kernel is for sm_100a"):
        linear(tvm.runtime.tensor(a, hopper), tvm.runtime.tensor(b, hopper), 1.0)


@needs_emulator
def test_threads_share_one_compilation(rng, compilations):
    linear = factory(out_idx=-1)
    a, b = operands(rng)
    found, begin = [], threading.Barrier(6)

    def call():
        begin.wait()
        found.append(linear(a, b, 1.0))

    threads = [threading.Thread(target=call) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 6 and len(compilations) == 1
    for each in found:
        np.testing.assert_allclose(each, exact(a, b), rtol=0, atol=1e-3)
    info = linear.cache_info()
    assert (info.hits, info.misses, info.currsize) == (5, 1, 1)


def test_one_is_another_static_value_than_true():
    assert typed({"flag": 1, "size": 2}) == typed({"size": 2, "flag": 1})
    assert len({typed({"flag": value}) for value in (1, True, 1.0, "1")}) == 4


@needs_emulator
def test_hints_of_a_pass_context_make_another_kernel(rng, compilations):
    linear = factory(out_idx=-1)
    a, b = operands(rng)
    first = linear(a, b, 1.0)
    with tvm.transform.PassContext(config={"warploom.stages": 3}):
        second = linear(a, b, 1.0)
    assert len(compilations) == 2
    np.testing.assert_array_equal(first, second)


@needs_emulator
def test_attention(rng):
    @warploom.jit(out_idx=-1)
    def attend(Q, K, V, *, causal=False):
        batch, heads, tokens, dim = Q.shape
        return attention(tokens, dim, heads, batch=batch, causal=causal, dtype=Q.dtype)

    q, k, v = (rng.standard_normal((1, 2, 80, 64)).astype("float16") for _ in range(3))
    logits = np.einsum("bhqd,bhkd->bhqk", q.astype(float), k.astype(float)) / 8
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    right = np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), v.astype(float))
    found = attend(q, k, v)
    assert found.dtype == np.float16 and np.abs(found - right).max() < 5e-3


A, B = np.ones((48, 64), "float16"), np.ones((64, 64), "float16")


@needs_emulator
@pytest.mark.parametrize(
    ("arguments", "static", "message"),
    [
        ((A,), {}, r"linear takes 3 arguments by position \(A, B, alpha\), or with its results: 4"),
        ((A, B, 1.0, A, A), {}, "5 were given"),
        ((A, B.astype("int8"), 1.0), {}, None),
        ((A, B[:, :32], 1.0), {}, r"B is a float16 tensor of shape \(64, 32\), the parameter is b: "
         r"float16\[64, 64\]: dimension 1 must be 64"),
        ((A, B.T, 1.0), {}, "it must be contiguous; give its contiguous copy"),
        ((A, np.ones((64, 32), "float16"), 1.0), {}, "dimension 1 must be 64"),
        ((A, np.ones((64, 64, 2), "float16"), 1.0), {}, "it must have 2 dimensions"),
        ((A, B, A), {}, r"alpha is a float16 tensor .*: give a number"),
        ((A, B, 1.0, 2.0), {}, r"result 3 is the float32 number 2.0.*give a tensor"),
        ((A, B, 1.0, np.ones((48, 64), "float16")), {}, "its dtype must be float32"),
        ((A, B, 1.0, np.ones((64, 48), "float32").T), {}, "it must be contiguous"),
        ((A, B, 1.0, np.ones((47, 64), "float32")), {}, "dimension 0 must be 48"),
        ((A, None, 1.0), {}, "B is a NoneType; give a tensor"),
        ((A, "B", 1.0), {}, "B is a str; give a tensor"),
        ((A, np.ones((64, 64), "complex64"), 1.0), {}, "The dtype of B is .*complex64"),
        ((A, B, 1.0), {"BQ": 3}, r"linear has no static 'BQ'; it has: BM, BN, BK, out_dtype"),
        ((A, B, 1.0), {"BM": [64]}, r"BM=\[64\] is static and must be hashable"),
        ((A, B, 1.0), {"A": A}, "A is a tensor; give it by position"),
        ((np.ones(48 * 64 + 1, "float16")[1:].reshape(48, 64), B, 1.0), {}, "multiple of 16 bytes"),
    ],
)  # fmt: skip
def test_errors_come_before_compilation(arguments, static, message, compilations):
    linear = factory(out_idx=-1)
    if message is None:  # two dtypes: a rule of the language, and the program's own error
        with pytest.raises((TileProgramError, RuntimeError)):
            linear(*arguments, **static)
        return
    with pytest.raises(ArgumentError, match=message):
        linear(*arguments, **static)
    assert not compilations
    assert isinstance(ArgumentError(), TypeError)


@needs_emulator
def test_errors_of_later_calls_are_the_same(rng):
    kernel = warploom.jit(copy_program())
    a = rng.standard_normal((16, 32)).astype("float32")
    kernel(a, np.empty_like(a))
    with pytest.raises(ArgumentError, match=r"add_one: B is .*\(15, 32\).* must be 16, as in A"):
        kernel(a, np.empty((15, 32), "float32"))
    with pytest.raises(ArgumentError, match="its dtype must be float32"):
        kernel(a, np.empty((16, 32), "float64"))


def test_what_cannot_be_a_kernel_is_refused():
    with pytest.raises(ArgumentError, match="int is neither"):
        warploom.jit(3)
    with pytest.raises(ArgumentError, match=r"give warploom\.jit what its specialize"):
        warploom.jit(T.jit(lambda A: None))
    with pytest.raises(ArgumentError, match=r"\*arrays is no list of tensors"):
        warploom.jit(lambda *arrays: None)
    with pytest.raises(ArgumentError, match=r"BM has a default.*write \* in front"):
        warploom.jit(lambda A, BM=64: None)
    with pytest.raises(ArgumentError, match="no parameter may be called target"):
        warploom.jit(lambda A, *, target: None)
    with pytest.raises(ArgumentError, match=r"out_idx is \(2,\); allowed .* -2 to 1"):
        warploom.jit(copy_program(), out_idx=2)
    with pytest.raises(ArgumentError, match=r"out_idx is \(0, -2\)"):
        warploom.jit(copy_program(), out_idx=(0, -2))
    with pytest.raises(ArgumentError, match=r"dynamic= names 'C'; its tensors are A, B"):
        warploom.jit(lambda A, B: None, dynamic={"C": {0: "m"}})
    with pytest.raises(ArgumentError, match=r'such as \{0: "m"\}'):
        warploom.jit(lambda A, B: None, dynamic={"A": [0]})
    with pytest.raises(ArgumentError, match="leave dynamic= out"):
        warploom.jit(copy_program(), dynamic={"a": {0: "m"}})


def test_what_a_factory_returns_is_checked():
    specs = [((48, 64), "float16")]
    with pytest.raises(ArgumentError, match="returns a NoneType; it must return a tile program"):
        warploom.jit(lambda A: None).compile(*specs)
    with pytest.raises(ArgumentError, match=r"1 inputs and 0 results .* its program 2 parameters"):
        warploom.jit(lambda A: copy_program()).compile(*specs)
    with pytest.raises(IndexError) as caught:
        warploom.jit(lambda A: A.shape[2]).compile(*specs)
    assert caught.value.__notes__ == ["<lambda> was called with A: float16[48, 64]"]
    with pytest.raises(ArgumentError, match=r"dimension 2 of A is dynamic, and A has shape"):
        warploom.jit(lambda A: None, dynamic={"A": {2: "m"}}).compile(*specs)


def test_without_an_emulator_arrays_are_refused(monkeypatch):
    monkeypatch.setattr("warploom.language.calls.placement.is_enabled", lambda: False)
    with pytest.raises(ArgumentError, match="A is on the CPU; give a tensor on a CUDA device"):
        factory(out_idx=-1)(A, B, 1.0)


def test_ahead_of_time(tmp_path):
    linear = factory(out_idx=-1, dynamic={"A": {0: "m"}})
    specs = (wl.TensorSpec((1, 64), np.float16), ((64, 64), "float16"), 1.0)
    executable = linear.compile(*specs, target=warploom.cuda_target("h200"), BN=32)
    assert linear.compile(A, B, 1.0, target=warploom.cuda_target("h200"), BN=32) is executable
    executable.export_library(str(tmp_path / "linear.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "linear.so"))
    rng = np.random.default_rng(0)
    a, b = operands(rng, m=70)
    c = on_gpu(np.full((70, 64), np.nan, "float32"))
    loaded["main"](on_gpu(a), on_gpu(b), 1.0, c)
    np.testing.assert_allclose(c.numpy(), exact(a, b), rtol=0, atol=1e-3)


def test_sources():
    linear = factory(out_idx=-1)
    with pytest.raises(ArgumentError, match="linear has 0 compiled kernels; give the shapes"):
        linear.source()
    assert "T.prim_func" in linear.source("tile", A, B, 1.0)
    assert "wgmma" in linear.source("ptx") or "tcgen05" in linear.source("ptx")
    assert "__global__" in linear.source() == linear.source("cuda", A, B, 1.0, BM=64)
    with pytest.raises(ArgumentError, match="source has no 'sass'; allowed are tile, cuda, ptx"):
        linear.source("sass")
    assert "add_one" in warploom.jit(copy_program(16)).source("tile")


def test_ptx_of_machine_code():
    compiled = factory(out_idx=-1)._of_specs((A, B, 1.0), None, {})
    assert "wgmma.mma_async" in ptx_of(compiled.source("cuda"), compiled.target)


def test_the_program_can_be_interpreted(rng):
    linear = factory(out_idx=-1, dynamic={"A": {0: "m"}})
    a, b = operands(rng, m=20)
    c = np.full((20, 64), np.nan, "float32")
    wl.interpret(linear.program(a, b, 1.0), [a, b, 1.0, c])
    np.testing.assert_allclose(c, exact(a, b), rtol=0, atol=1e-3)
    assert linear.cache_info().compilations == 0


_AGAIN = """
import numpy as np, tvm
from tests.language import test_jit
calls = []
from warploom.compiler import module_cache
build = module_cache._build
module_cache._build = lambda *args: calls.append(1) or build(*args)
kernel = test_jit.warploom.jit(test_jit.copy_program(), out_idx=1)
print(kernel(np.ones((3, 32), "float32")).sum(), len(calls))
"""


@needs_emulator
@pytest.mark.in_turn(3)
def test_a_second_process_compiles_nothing(tmp_path):
    environ = {
        **os.environ, "WARPLOOM_CACHE_DIR": str(tmp_path), "WARPLOOM_MODULE_CACHE": "1",
        "WARPLOOM_EMULATOR": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    outputs = [
        subprocess.run(
            [sys.executable, "-c", _AGAIN], env=environ, check=True, capture_output=True, text=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert outputs == [["192.0", "1"], ["192.0", "0"]]


class LikeDtype:
    """A stand-in for a dtype of PyTorch."""

    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


class LikePyTorch:
    """A stand-in for a tensor of PyTorch on the CPU."""

    layout, requires_grad = "strided", False
    device = SimpleNamespace(type="cpu", index=None)

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, LikeDtype(array.dtype)

    def is_contiguous(self):
        return self.array.flags.c_contiguous

    def data_ptr(self):
        return self.array.ctypes.data

    def detach(self):
        return LikePyTorch(self.array)

    def __dlpack__(self, **options):
        assert not self.requires_grad, "PyTorch does not export such a tensor"
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@needs_emulator
def test_what_is_like_pytorch(rng, monkeypatch):
    torch = SimpleNamespace(
        Tensor=LikePyTorch, strided="strided", float32="float32",
        empty=lambda shape, dtype, device: LikePyTorch(np.full(shape, np.nan, dtype)),
    )  # fmt: skip
    for module in (call_arguments, placement):
        monkeypatch.setattr(module, "torch_module", lambda: torch)
    linear = factory(out_idx=-1)
    a, b = map(LikePyTorch, operands(rng))
    b.requires_grad = True
    found = linear(a, b, 1.0)
    assert isinstance(found, LikePyTorch)
    np.testing.assert_allclose(found.array, exact(a.array, b.array), rtol=0, atol=1e-3)
    a.layout = "sparse"
    with pytest.raises(ArgumentError, match="A is a tensor of layout sparse on"):
        linear(a, b, 1.0)


@needs_emulator
def test_tensors_of_pytorch_on_the_cpu(rng):
    torch = pytest.importorskip("torch")
    linear = factory(out_idx=-1)
    a, b = (torch.from_numpy(each) for each in operands(rng))
    found = linear(a, torch.nn.Parameter(b), 1.0)
    assert isinstance(found, torch.Tensor) and found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), exact(a.numpy(), b.numpy()), rtol=0, atol=1e-3)


@pytest.mark.hardware
def test_tensors_of_pytorch_on_a_stream_of_their_own(rng):
    torch = pytest.importorskip("torch")
    linear = factory(out_idx=-1)
    a, b = (torch.from_numpy(each).cuda() for each in operands(rng))
    stream = torch.cuda.Stream()
    linear(a, b, 1.0)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # what is launched on another stream would not see the copy
        late = torch.zeros_like(a).copy_(a, non_blocking=True)
        found = linear(late, torch.nn.Parameter(b), 1.0)
    stream.synchronize()
    right = exact(a.cpu().numpy(), b.cpu().numpy())
    np.testing.assert_allclose(found.cpu().numpy(), right, rtol=0, atol=1e-3)


def test_names_are_exported():
    assert wl.jit is warploom.jit and wl.TensorSpec is warploom.TensorSpec
    assert emulator.is_enabled() in (True, False)
    assert repr(factory()) == "<warploom.jit kernel linear>"
