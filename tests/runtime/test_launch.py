"""What calls of kernels remember: functions, and tensor maps by every byte that decides them."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm.script import tirx as T

from tests.shared.reference import assert_rounded
from warploom.programs import compile_gemm
from warploom.runtime import launch
from warploom_bench.launch import measure, table

pytestmark = pytest.mark.gpu

_CUDA = 2
_SETS, _WAYS = 512, 4


def _host_encode(dtype: str, rank: int):
    """The encoding as host code of TVM calls it, of (map, address, integers)."""
    count = 4 * rank + 3
    names = [f"x{i}" for i in range(count)]
    params = [tvm.tirx.Var("map", "handle"), tvm.tirx.Var("address", "handle")]
    params += [tvm.tirx.Var(name, "int64") for name in names]
    call = T.call_packed(launch.ENCODE, params[0], dtype, rank, *params[1:])
    func = tvm.tirx.PrimFunc(params, tvm.tirx.Evaluate(call))
    func = func.with_attr("global_symbol", "encode")
    return tvm.compile(tvm.IRModule({"encode": func}), "llvm", tir_pipeline="tirx")["encode"]


@pytest.fixture(scope="module")
def encoders():
    if tvm.cuda(0).exist:
        tvm.cuda(0).sync()  # the driver encodes maps in the context of a device
    return {(d, r): _host_encode(d, r) for d in ("float16", "bfloat16") for r in (1, 2, 5)}


class _Map:
    """Room for a tensor map, full of what no map has."""

    def __init__(self):
        self._bytes = np.full(192, 0xA5, np.uint8)
        self.start = -self._bytes.ctypes.data % 64
        self.pointer = ctypes.c_void_p(self._bytes.ctypes.data + self.start)

    def bytes(self) -> bytes:
        return self._bytes[self.start : self.start + 128].tobytes()


def _arguments(rank, dims, address, swizzle=3, row=64):
    """The integers of a map of 2-byte elements whose rows are 1 KiB apart."""
    strides = [1024 << i for i in range(rank - 1)]
    box = [row] + [2] * (rank - 1)
    return address, [*dims[:rank], *strides, *box, *[1] * rank, 0, swizzle, 2, 0]


def _expected(dtype, rank, address, integers) -> bytes:
    """By TVM's own function: what Python passes as a string is not remembered."""
    room = _Map()
    before = launch.tensor_map_counts()
    tvm_ffi.get_global_func(launch.ENCODE)(
        room.pointer, dtype, rank, ctypes.c_void_p(address), *integers
    )
    assert launch.tensor_map_counts() == before
    return room.bytes()


_MAPS = st.tuples(
    st.sampled_from(["float16", "bfloat16"]),
    st.sampled_from([1, 2, 5]),
    st.lists(st.sampled_from([64, 65, 1 << 20]), min_size=5, max_size=5),
    st.sampled_from([1 << 20, (1 << 20) + 16, 1 << 40]),
    st.sampled_from([0, 3]),
)


@given(maps=st.lists(_MAPS, min_size=2, max_size=12))
def test_maps_that_are_remembered_are_those_of_tvm(encoders, maps):
    for dtype, rank, dims, address, swizzle in maps * 2:
        address, integers = _arguments(rank, dims, address, swizzle)
        room, before = _Map(), launch.tensor_map_counts()
        encoders[dtype, rank](room.pointer, ctypes.c_void_p(address), *integers)
        after = launch.tensor_map_counts()
        assert sum(after) - sum(before) == 1, "the encoding went through the cache"
        assert room.bytes() == _expected(dtype, rank, address, integers)


def test_any_integer_that_differs_makes_another_map(encoders, rng):
    address, integers = _arguments(
        5, rng.integers(100, 200, 5).tolist(), 1 << 30, swizzle=0, row=16
    )
    encode, room = encoders["float16", 5], _Map()

    def misses(values, where=address) -> int:
        before = launch.tensor_map_counts()[1]
        encode(room.pointer, ctypes.c_void_p(where), *values)
        return launch.tensor_map_counts()[1] - before

    misses(integers)
    assert misses(integers) == 0
    # Strides are multiples of 16 bytes, the box's row too; the first step must be 1, and another
    # interleaving needs another box.
    steps = dict.fromkeys(range(5, 9), 16) | {9: -8, 14: 0, 19: 0}
    for i in range(len(integers)):
        changed = list(integers)
        changed[i] += steps.get(i, 1)
        if changed == integers:
            continue
        assert misses(changed) == 1 and misses(changed) == 0
        assert room.bytes() == _expected("float16", 5, address, changed)
    assert misses(integers, where=address + 64) == 1
    assert misses(integers) == 0


def test_a_device_has_maps_of_its_own(encoders):
    if not tvm.cuda(1).exist:
        pytest.skip("there is one device")
    set_device = tvm_ffi.get_global_func(launch.SET_DEVICE)
    address, integers = _arguments(2, [640, 480], 3 << 20)
    found = []
    for device in (0, 1, 0, 1):
        set_device(_CUDA, device)
        before = launch.tensor_map_counts()
        encoders["float16", 2](_Map().pointer, ctypes.c_void_p(address), *integers)
        found.append(launch.tensor_map_counts()[0] - before[0])
    set_device(_CUDA, 0)
    # What one GPU has encoded is right for another of its architecture.
    equal = tvm.cuda(0).compute_version == tvm.cuda(1).compute_version
    assert found == [0, equal, 1, 1]


def _current_device() -> int:
    device = ctypes.c_int(-1)
    assert ctypes.CDLL("libcudart.so.13").cudaGetDevice(ctypes.byref(device)) == 0
    return device.value


@given(steps=st.lists(st.tuples(st.booleans(), st.sampled_from([0, 1, 99])), max_size=12))
def test_a_device_is_current_whoever_changed_it_before(steps):
    if not tvm.cuda(1).exist:
        pytest.skip("there is one device")
    set_device = tvm_ffi.get_global_func(launch.SET_DEVICE)
    runtime, wanted = ctypes.CDLL("libcudart.so.13"), 0
    assert runtime.cudaSetDevice(0) == 0
    for by_tvm, device in steps:
        if device == 99:  # there is none such
            with pytest.raises(Exception, match="device"):
                set_device(_CUDA, device)
        elif by_tvm:
            set_device(_CUDA, device)
            wanted = device
        else:
            assert runtime.cudaSetDevice(device) == 0
            wanted = device
        assert _current_device() == wanted
    set_device(_CUDA, 0)
    assert _current_device() == 0


def test_each_thread_has_its_own_device():
    if not tvm.cuda(1).exist:
        pytest.skip("there is one device")
    set_device = tvm_ffi.get_global_func(launch.SET_DEVICE)
    set_device(_CUDA, 1)
    found = []

    def work() -> None:
        for device in (0, 1, 1, 0):
            set_device(_CUDA, device)
            found.append(_current_device())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [0, 1, 1, 0]
    assert _current_device() == 1
    set_device(_CUDA, 0)


@given(order=st.lists(st.integers(0, 5), min_size=20, max_size=60))
def test_maps_are_right_in_whatever_order_they_are_asked_for(encoders, order):
    maps = [_arguments(2, [64 + i % 3, 128], (11 << 20) + 64 * (i // 3)) for i in range(6)]
    wanted = [_expected("float16", 2, *one) for one in maps]
    for i in order * 2:
        room = _Map()
        address, integers = maps[i]
        encoders["float16", 2](room.pointer, ctypes.c_void_p(address), *integers)
        assert room.bytes() == wanted[i]


def test_memory_is_bounded_and_what_was_forgotten_is_encoded_again(encoders):
    count, encode = 2 * _SETS * _WAYS, encoders["float16", 1]
    for _ in range(2):
        before = launch.tensor_map_counts()
        for i in range(count):
            address, integers = _arguments(1, [64 + i], (5 << 20) + 16 * i, swizzle=0)
            room = _Map()
            encode(room.pointer, ctypes.c_void_p(address), *integers)
            if i % 97 == 0:
                assert room.bytes() == _expected("float16", 1, address, integers)
        hits, misses = (b - a for a, b in zip(before, launch.tensor_map_counts(), strict=True))
        assert hits + misses == count and misses >= count - _SETS * _WAYS


def test_a_map_that_the_driver_refuses_is_refused_again(encoders):
    address, integers = _arguments(2, [64, 64], 7 << 20)
    integers[3] = 0  # the box
    for _ in range(2):
        with pytest.raises(Exception, match="boxDim"):
            encoders["float16", 2](_Map().pointer, ctypes.c_void_p(address), *integers)
    address, integers = _arguments(2, [64, 64], 7 << 20)
    room = _Map()
    encoders["float16", 2](room.pointer, ctypes.c_void_p(address), *integers)
    with pytest.raises(Exception, match="tensor_map"):  # its alignment, also when it is known
        askew = ctypes.c_void_p(room.pointer.value + 8)
        encoders["float16", 2](askew, ctypes.c_void_p(address), *integers)


def test_threads_do_not_disturb_each_other(encoders, rng):
    wrong: list[str] = []
    done: list[int] = []
    choices = rng.integers(64, 200, (4, 300, 2)).tolist()

    def work(sizes) -> None:
        tvm.cuda(0).sync()  # each thread has a context of its own, or none
        for dims in sizes:
            address, integers = _arguments(2, dims, 9 << 20)
            room = _Map()
            encoders["float16", 2](room.pointer, ctypes.c_void_p(address), *integers)
            if room.bytes() != _expected("float16", 2, address, integers):
                wrong.append(f"{dims}")
        if sum(launch.tensor_map_counts()) != len(sizes):
            wrong.append("counts of another thread")
        done.append(len(sizes))

    threads = [threading.Thread(target=work, args=(sizes,)) for sizes in choices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(done) == len(choices)


def test_a_gemm_whose_tensors_come_and_go(rng):
    device, executable = tvm.cuda(0), compile_gemm(None, 64, 64)
    b = rng.standard_normal((64, 64)).astype("float16")
    b_device = tvm.runtime.tensor(b, device)
    fresh = []
    for m in (64, 64, 8, 64, 200, 8):
        a = rng.standard_normal((m, 64)).astype("float16")
        tensors = [tvm.runtime.tensor(x, device) for x in (a, np.full_like(a, np.nan))]
        before = launch.tensor_map_counts()[1]
        executable["main"](tensors[0], b_device, tensors[1])
        fresh.append(launch.tensor_map_counts()[1] - before)
        wanted = a.astype("float64") @ b.astype("float64").T
        assert_rounded(tensors[1].numpy(), wanted)
        executable["main"](tensors[0], b_device, tensors[1])
        assert launch.tensor_map_counts()[1] - before == fresh[-1], "nothing is encoded twice"
        del tensors  # its memory may be another tensor's in the next round
    assert fresh[0] == 3 and all(count <= 2 for count in fresh[1:])


def test_functions_are_looked_up_once_and_again_after_a_compilation():
    func = tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(0)).with_attr("global_symbol", "main")
    executable = tvm.compile(tvm.IRModule({"main": func}), {"kind": "c"}, tir_pipeline="tirx")
    first = executable["main"]
    assert executable["main"] is first
    executable.jit(force_recompile=True)
    assert executable["main"] is not first
    with pytest.raises(AttributeError, match="no function 'other'"):
        executable["other"]


def test_the_benchmark_reports_every_call_after_one_that_is_not_counted():
    counts = dict.fromkeys(("first", "second"), 0)

    def call(name):
        counts[name] += 1

    calls = {name: lambda name=name: call(name) for name in counts}
    costs = measure(calls, lambda: None, rounds=3)
    assert set(counts.values()) == {1 + 3 * 200}
    assert all(0 < cost < 0.1 for cost in costs.values())
    assert [row.split("|")[1].strip() for row in table(costs).splitlines()[2:]] == list(counts)
