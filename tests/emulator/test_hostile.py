"""Wrong or hostile PTX, maps, pointers and handles are refused with a sentence, and never crash.

``tests/emulator/corpus`` has one input a file. A file of PTX says in its first lines how it is
launched, and what the emulator has to answer: ``//launch GRID BLOCK SHARED CLUSTER`` and
``//expect TEXT``. Without the latter it may run. The same files are executed under sanitizers by
``test_sanitizers.py``.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.ptx_driver import CLUSTER_DIMENSION, LaunchAttribute, LaunchConfig, TensorMap
from tests.emulator.ptx_driver import emulator as driver
from tests.emulator.run_ptx import HEADER, EmulatorError, kernel, launch, library, limited, load
from warploom.runtime.emulator_libraries import find_libraries

CORPUS = Path(__file__).with_name("corpus")
#: Of the buffer that pointers of a kernel get.
BUFFER_BYTES = 4096


def _error() -> str:
    """The reason of the last error of this thread, whatever its number."""
    reason = library().warploom_emulator_error
    reason.restype = ctypes.c_char_p
    return reason().decode()


def _check(code: int) -> None:
    if code != 0:
        raise EmulatorError(_error())


def _tensor_map(address: int) -> ctypes.Array:
    tensor = TensorMap(0, 0, (64, 64), (64,), (32, 8), (1, 1))
    return driver(str(find_libraries()[0])).encode(tensor, address)


def _arguments(function: ctypes.c_void_p, buffer: int) -> list:
    values = []
    size = library().warploom_emulator_parameter_bytes
    size.restype = ctypes.c_int64
    while (count := size(function, len(values))) >= 0:
        if count == 8:
            values.append(ctypes.c_uint64(buffer))
        elif count == 128:
            values.append(_tensor_map(buffer))
        else:
            values.append((ctypes.c_uint8 * count)())
    return values


def _run(text: bytes, shape: list[int]) -> None:
    """Load PTX and launch its kernel named ``kernel``, as the fuzzer does."""
    grid, block, shared, cluster = shape
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(library().warploom_emulator_set_device(0))
    _check(library().cuModuleLoadData(ctypes.byref(module), text))
    buffer = library().warploom_emulator_allocate(ctypes.c_size_t(BUFFER_BYTES))
    try:
        ctypes.memset(buffer, 0, BUFFER_BYTES)
        _check(library().cuModuleGetFunction(ctypes.byref(function), module, b"kernel"))
        values = _arguments(function, buffer)
        pointers = (ctypes.c_void_p * (len(values) + 1))(*map(ctypes.addressof, values))
        dimension = (ctypes.c_uint * 16)(cluster, 1, 1)
        attribute = LaunchAttribute(id=CLUSTER_DIMENSION, value=dimension)
        config = LaunchConfig(
            (grid, 1, 1), (block, 1, 1), shared, None, ctypes.addressof(attribute), cluster != 1
        )
        with limited(seed=1, limit=100_000):
            _check(library().cuLaunchKernelEx(ctypes.byref(config), function, pointers, None))
    finally:
        library().warploom_emulator_release(ctypes.c_void_p(buffer))
        library().cuModuleUnload(module)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.ptx")), ids=lambda path: path.stem)
def test_answer_to_hostile_ptx(path):
    text = path.read_bytes()
    shape = re.match(rb"//launch (\d+) (\d+) (\d+) (\d+)\n", text)
    expected = re.search(rb"^//expect (.*)$", text, re.MULTILINE)
    try:
        _run(text, [int(number) for number in shape.groups()] if shape else [1, 32, 0, 1])
    except EmulatorError as error:
        if expected:
            assert expected[1].decode() in str(error)
    else:
        assert expected is None, "it ran"


def test_corpus_stays_small():
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 300_000


def _functions(count: int, calls: Callable[[int], list[int]]) -> str:
    """A kernel that calls the first of ``count`` functions, each of which calls some others."""
    text = [f".func f{i}();\n" for i in range(count)]
    for i in range(count):
        text.append(f".func f{i}()\n{{\n{''.join(f'call f{j};' for j in calls(i))}\nret;\n}}\n")
    return "".join(text) + kernel(0, "call f0;")


def _call_chain(count: int) -> str:
    return _functions(count, lambda i: [i + 1][: i + 1 < count])


def _call_cycle(count: int) -> str:
    return _functions(count, lambda i: [(i + 1) % count])


def _call_fan(count: int) -> str:
    return _functions(count, lambda i: [i + 1, count - 1][: 2 * (i + 1 < count)])


def _variables(count: int) -> str:
    one = ".global .b32 g{0};\n.func f{0}()\n{{\nret;\n}}\n"
    return "".join(one.format(i) for i in range(count)) + kernel(0, "")


def _branches(count: int) -> str:
    one = "L{}:\n@%q0 bra L{};\n@%q1 bra E;\n"
    return kernel(0, "".join(one.format(i, i + 1) for i in range(count)) + f"L{count}:\nE:\n")


def _long_way_to_the_end(count: int) -> str:
    """Half of the branches go to the start of a long chain of blocks, half behind it."""
    branches = "".join(f"@%q0 bra S{i % 2};\n" for i in range(count))
    chain = "".join(f"bra L{i};\nL{i}:\n" for i in range(count))
    return kernel(0, f"{branches}S0:\n{chain}S1:\n")


def _blocks(count: int) -> str:
    return kernel(0, "{\n" * 200 + "mov.u32 %r0, %r1;\n" * count + "}\n" * 200)


def _copies_of_an_accumulator(count: int) -> str:
    """Each register is copied before the register that it comes from is written."""
    copies = "".join(f"mov.b32 %c{i}, %c{i + 1};\n" for i in range(count))
    product = (
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
        f"{{%c{count}, %f1, %f2, %f3}}, %d0, %d1, 1, 1, 1, 0, 0;"
    )
    declarations = f".reg .f32 %c<{count + 1}>;\n.reg .f32 %f<4>;"
    return kernel(0, copies + product, declarations)


def _kernels(count: int) -> str:
    return "".join(f".visible .entry e{i}()\n{{\nret;\n}}\n" for i in range(count))


@pytest.mark.parametrize(
    "text",
    [
        _call_chain,
        _call_cycle,
        _call_fan,
        _variables,
        _branches,
        _long_way_to_the_end,
        _blocks,
        _copies_of_an_accumulator,
        _kernels,
    ],
)
def test_time_to_load_is_in_proportion_to_the_size(text):
    """The time of the process, not of the clock: 4 times the text takes less than 10 times as long.

    A quadratic step of note would take 16 times as long.
    """

    def seconds(count: int) -> float:
        ptx = text(count)
        begin = time.process_time()
        module = load(ptx)
        taken = time.process_time() - begin
        library().cuModuleUnload(module)
        return taken

    seconds(100)
    small = min(seconds(3000), seconds(3001))
    assert seconds(12_000) < 10 * small + 0.2


def test_many_instructions_in_many_kernels():
    """Functions are decoded once for every kernel that reaches them."""
    body = "add.u32 %r, %r, 1;\n" * 5000
    text = f".func f()\n{{\n.reg .b32 %r;\n{body}ret;\n}}\n"
    text += "".join(f".visible .entry e{i}()\n{{\ncall f;\nret;\n}}\n" for i in range(900))
    with pytest.raises(
        EmulatorError, match=r"line \d+: with e\d+ the kernels .* 4194304 are allowed"
    ):
        load(text)


def test_modules_and_functions_have_handles_that_are_given_once():
    ptx = kernel(1, "st.global.u32 [%p0], 7;")
    first = load(ptx)
    function = ctypes.c_void_p()
    _check(library().cuModuleGetFunction(ctypes.byref(function), first, b"kernel"))
    again = ctypes.c_void_p()
    _check(library().cuModuleGetFunction(ctypes.byref(again), first, b"kernel"))
    assert again.value == function.value
    _check(library().cuModuleUnload(first))
    second = load(ptx)
    assert second.value != first.value
    assert library().cuModuleUnload(first) != 0
    assert "is not loaded, or was unloaded before" in _error()
    assert library().cuModuleGetFunction(ctypes.byref(again), first, b"kernel") != 0
    config = LaunchConfig((1, 1, 1), (1, 1, 1), 0, None, None, 0)
    assert library().cuLaunchKernelEx(ctypes.byref(config), function, None, None) != 0
    assert "the kernel's module is not loaded, or was unloaded before" in _error()
    assert library().warploom_emulator_parameter_bytes(function, 0) == -1
    for handle in (0, 1 << 40, ctypes.addressof(config)):
        assert library().cuModuleUnload(ctypes.c_void_p(handle)) != 0
    _check(library().cuModuleUnload(second))


def test_a_launch_without_arguments_is_refused():
    module = load(kernel(2, "st.global.u32 [%p0], 7;"))
    function = ctypes.c_void_p()
    _check(library().cuModuleGetFunction(ctypes.byref(function), module, b"kernel"))
    config = LaunchConfig((1, 1, 1), (1, 1, 1), 0, None, None, 0)
    value = ctypes.c_uint64(0)
    for arguments, missing in (
        (None, 0),
        ((ctypes.c_void_p * 2)(ctypes.addressof(value), None), 1),
    ):
        assert library().cuLaunchKernelEx(ctypes.byref(config), function, arguments, None) != 0
        assert f"kernel is launched without argument {missing} of its 2" in _error()
    library().cuModuleUnload(module)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_modules_that_are_unloaded_leave_nothing():
    """The texts differ, and the cache of decoded modules is full after some of them."""
    filler = "// " + "x" * 200_000 + "\n"

    def load_and_launch(number: int) -> None:
        module, function = load(f"// {number}\n{filler}{kernel(0, '')}"), ctypes.c_void_p()
        _check(library().cuModuleGetFunction(ctypes.byref(function), module, b"kernel"))
        config = LaunchConfig((1, 1, 1), (1, 1, 1), 0, None, None, 0)
        _check(library().cuLaunchKernelEx(ctypes.byref(config), function, None, None))
        _check(library().cuModuleUnload(module))

    for number in range(200):
        load_and_launch(number)
    before = _resident()
    for number in range(200, 1200):
        load_and_launch(number)
    assert _resident() - before < 8 << 20


@pytest.mark.parametrize("size", [2**64 - 1, 2**64 - 10, 2**64 - 256, 2**63, 2**40])
def test_memory_that_the_device_has_not_is_not_allocated(size):
    assert library().warploom_emulator_allocate(ctypes.c_size_t(size)) is None
    assert f"{size} bytes are asked for" in _error()


def test_copies_stay_within_an_allocation():
    host = np.arange(64, dtype="uint8")
    device = library().warploom_emulator_allocate(ctypes.c_size_t(64))
    to, source = ctypes.c_uint64(device), ctypes.c_void_p(host.ctypes.data)
    _check(library().cuMemcpyHtoD_v2(to, source, ctypes.c_size_t(64)))
    result = np.zeros(64, "uint8")
    target = ctypes.c_void_p(result.ctypes.data)
    _check(library().cuMemcpyDtoH_v2(target, to, ctypes.c_size_t(64)))
    np.testing.assert_array_equal(result, host)
    for count in (65, 2**63, 2**64 - 1):
        assert library().cuMemcpyHtoD_v2(to, source, ctypes.c_size_t(count)) != 0
        assert f"a copy of {count} bytes" in _error() and "goes beyond its end" in _error()
        assert library().cuMemcpyDtoH_v2(target, to, ctypes.c_size_t(count)) != 0
    inside = ctypes.c_uint64(device + 60)
    assert library().cuMemcpyHtoD_v2(inside, source, ctypes.c_size_t(8)) != 0
    assert "begins at offset 60 of an allocation of 64 bytes" in _error()
    library().warploom_emulator_release(ctypes.c_void_p(device))
    assert library().cuMemcpyHtoD_v2(to, source, ctypes.c_size_t(8)) != 0
    assert "which was freed before" in _error()


def test_names_of_devices_stay_within_the_buffer():
    name = ctypes.create_string_buffer(b"unchanged", 64)
    for length in (0, -1, -(2**31)):
        assert library().cuDeviceGetName(name, length, 0) != 0
    assert name.value == b"unchanged"
    _check(library().cuDeviceGetName(name, 9, 0))
    assert name.value == b"warploom"


def test_a_box_that_no_shared_memory_holds_is_not_encoded():
    tensor = driver(str(find_libraries()[0]))
    box = (16, 256, 256, 256, 256)
    with pytest.raises(RuntimeError, match="a box of 16 x 256 x 256 x 256 x 256 elements takes 6"):
        tensor.encode(TensorMap(0, 0, box, (16, 4096, 1 << 20, 1 << 28), box, (1,) * 5), 1 << 20)
    full = (128, 227 * 1024 // 128 // 8, 8)
    for extra, fits in ((0, True), (1, False)):
        shape = (full[0], full[1] + extra, full[2])
        arguments = TensorMap(0, 0, shape, (128, 1 << 16), shape, (1,) * 3)
        if fits:
            tensor.encode(arguments, 1 << 20)
            continue
        with pytest.raises(RuntimeError, match="a CTA has 232448 at most"):
            tensor.encode(arguments, 1 << 20)


def _printf(text: bytes, values: int) -> str:
    """A kernel that prints with the arguments 0, 1, 2, ... of 4 bytes."""
    characters = ", ".join(str(byte) for byte in text + b"\0")
    stores = "".join(f"st.local.u32 [a+{4 * i}], {i};\n" for i in range(values))
    return (
        ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
        f".global .align 1 .b8 fmt[{len(text) + 1}] = {{{characters}}};\n"
    ) + kernel(
        0,
        f"{stores}mov.u64 %d0, a;\ncvta.local.u64 %d1, %d0;\nmov.u64 %d2, fmt;\n{{\n"
        ".param .b64 f;\n.param .b64 b;\n.param .b32 r;\nst.param.b64 [f], %d2;\n"
        "st.param.b64 [b], %d1;\ncall (r), vprintf, (f, b);\n}\n",
        f".local .align 8 .b8 a[{4 * values}];",
    )


def test_what_a_launch_prints_is_bounded(capfd):
    launch(_printf(b"%4096d\n", 1), [], grid=(5, 1, 1), block=(128, 1, 1))
    printed = capfd.readouterr().out
    notice = "\n[warploom emulator: what the launch prints beyond 1 MiB is left out]\n"
    assert printed.endswith(notice)
    assert len(printed) == (1 << 20) + len(notice)


def test_printf_takes_32_arguments(capfd):
    launch(_printf(b"%d," * 40 + b"%%\n", 40), [], block=(1, 1, 1))
    expected = "".join(f"{i}," for i in range(32)) + "%d," * 8 + "%\n"
    assert capfd.readouterr().out == expected


def test_errors_belong_to_their_thread():
    assert library().cuModuleLoadData(
        ctypes.byref(ctypes.c_void_p()), (HEADER.format(arch="sm_90a") + "first").encode()
    )
    mine = _error()

    def other() -> None:
        library().cuModuleLoadData(ctypes.byref(ctypes.c_void_p()), b"second")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert _error() == mine and "'first'" in mine
