"""Device memory that has been freed: its use and its second free are errors that say so."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

from tests.emulator.checks import checks
from tests.emulator.ptx_driver import LaunchConfig
from tests.emulator.run_ptx import HEADER, kernel, library, load

BODY = "ld.global.b32 %r1, [%p0+8]; st.global.b32 [%p1], %r1;"


@pytest.fixture
def driver():
    """The driver, while launches are checked."""
    load(kernel(1, ""))  # allocations belong to its device
    with checks():
        yield library()


def allocate(driver: ctypes.CDLL, count: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(driver.warploom_emulator_allocate(ctypes.c_size_t(count)))


def error(driver: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorName(code, ctypes.byref(text))
    return text.value.decode()


def launch(
    driver: ctypes.CDLL, source: ctypes.c_void_p, result: ctypes.c_void_p, body: str = BODY
) -> str:
    """The error of a launch that copies a word; empty if it succeeds."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    text = HEADER.format(arch="sm_90a") + kernel(2, body)
    assert driver.cuModuleLoadData(ctypes.byref(module), text.encode()) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"kernel") == 0
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(source), ctypes.addressof(result))
    config = LaunchConfig((1, 1, 1), (1, 1, 1), 0, None, None, 0)
    code = driver.cuLaunchKernelEx(ctypes.byref(config), function, arguments, None)
    driver.cuModuleUnload(module)
    return "" if code == 0 else error(driver, code)


def test_a_kernel_that_reads_freed_memory_is_told_so(driver):
    source, result = allocate(driver, 128), allocate(driver, 128)
    assert driver.warploom_emulator_release(source) == 0
    others = [allocate(driver, 128) for _ in range(20)]  # none of them takes its place
    message = launch(driver, source, result)
    assert re.search(
        rf"4 bytes at global address 0x\w+ lie in no allocation: use after free: they begin at "
        rf"offset 8 of the 128 bytes at {source.value:#x}, parameter 0, which were freed before "
        r"the launch. Fix: ",
        message,
    )
    for pointer in (result, *others):
        assert driver.warploom_emulator_release(pointer) == 0


def test_an_access_beyond_an_allocation_is_no_use_of_what_was_freed_behind_it(driver):
    """Whatever lay there before, the message names the parameter that was left."""
    blocks = [allocate(driver, 128) for _ in range(200)]
    inside = sorted(blocks, key=lambda pointer: pointer.value)
    # Two blocks next to each other: nothing that another test has left lies between.
    first = min(range(199), key=lambda i: inside[i + 1].value - inside[i].value)
    result, freed = inside[first : first + 2]
    source, *others = [one for one in blocks if one not in (result, freed)]
    assert driver.warploom_emulator_release(freed) == 0
    distance = freed.value - result.value
    body = f"ld.global.b32 %r1, [%p0+{distance}]; st.global.b32 [%p1], %r1;"
    message = launch(driver, result, source, body)
    assert f"parameter 0, and the access starts at its offset {distance}" in message
    assert "lie in no allocation; the nearest below has 128 bytes" in message
    for pointer in (source, result, *others):
        assert driver.warploom_emulator_release(pointer) == 0


def test_memory_that_is_allocated_again_is_no_freed_memory(driver, rng):
    # More than is kept: the host's memory comes back.
    sizes = rng.integers(1 << 20, 24 << 20, 12)
    result = allocate(driver, 128)
    for size in sizes:
        source = allocate(driver, int(size))
        words = rng.integers(0, 1 << 32, 4, np.uint32)
        ctypes.memmove(source, words.ctypes.data, words.nbytes)
        assert launch(driver, source, result) == ""
        assert np.frombuffer(ctypes.string_at(result, 4), np.uint32)[0] == words[2]
        assert driver.warploom_emulator_release(source) == 0
    assert driver.warploom_emulator_release(result) == 0


def test_a_double_free_is_an_error(driver):
    pointer = allocate(driver, 640)
    assert driver.warploom_emulator_release(pointer) == 0
    code = driver.warploom_emulator_release(pointer)
    assert code != 0
    assert f"double free: the 640 bytes at {pointer.value:#x} were freed before" in error(
        driver, code
    )


def test_a_free_of_something_else_is_an_error(driver):
    pointer = allocate(driver, 640)
    inside = ctypes.c_void_p(pointer.value + 256)
    code = driver.warploom_emulator_release(inside)
    assert code != 0
    assert f"free of {inside.value:#x}, where no allocation" in error(driver, code)
    assert driver.warploom_emulator_release(pointer) == 0
    assert driver.warploom_emulator_release(ctypes.c_void_p()) == 0
