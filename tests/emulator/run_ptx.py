"""Runs hand-written PTX on the emulator, without TVM: through the driver API, as TVM does."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator

import numpy as np

from tests.emulator.ptx_driver import CLUSTER_DIMENSION, LaunchAttribute, LaunchConfig
from warploom.runtime.emulator_libraries import find_libraries

HEADER = ".version 9.0\n.target {arch}\n.address_size 64\n"
#: Numbers of the emulated devices.
DEVICES = {"sm_90a": 0, "sm_100a": 1}
#: Instructions of a launch, unless WARPLOOM_EMULATOR_INSTRUCTIONS says otherwise.
DEFAULT_LIMIT = 4 << 30


class EmulatorError(RuntimeError):
    """What the emulator says is wrong with the PTX or with the launch."""


_COOPERATIVE = 2


@functools.cache
def library() -> ctypes.CDLL:
    """The emulated driver; its symbols stay local, so that TVM's driver is not replaced."""
    loaded = ctypes.CDLL(str(find_libraries()[0]))
    loaded.warploom_emulator_allocate.restype = ctypes.c_void_p
    return loaded


def _check(code: int) -> None:
    if code != 0:
        text = ctypes.c_char_p()
        library().cuGetErrorName(code, ctypes.byref(text))
        raise EmulatorError(text.value.decode())


def load(ptx: str, arch: str = "sm_90a") -> ctypes.c_void_p:
    """Load a module; raises :class:`EmulatorError` if the emulator cannot execute it.

    Later allocations and loads of this thread belong to the device of ``arch``, too.
    """
    module = ctypes.c_void_p()
    _check(library().warploom_emulator_set_device(DEVICES[arch]))
    text = HEADER.format(arch=arch) + ptx
    _check(library().cuModuleLoadData(ctypes.byref(module), text.encode()))
    return module


@contextlib.contextmanager
def limited(seed: int, limit: int) -> Iterator[None]:
    """Launches in this block have a seed and a limit of instructions.

    Later ones have what the process began with, as those of TVM's tests expect.
    """
    driver = library()
    driver.warploom_emulator_set_seed(ctypes.c_uint64(seed))
    driver.warploom_emulator_set_instruction_limit(ctypes.c_uint64(limit))
    try:
        yield
    finally:
        seed = int(os.environ.get("WARPLOOM_EMULATOR_SEED", "1"), 0)
        limit = int(os.environ.get("WARPLOOM_EMULATOR_INSTRUCTIONS", DEFAULT_LIMIT))
        driver.warploom_emulator_set_seed(ctypes.c_uint64(seed))
        driver.warploom_emulator_set_instruction_limit(ctypes.c_uint64(limit))


def launch(
    ptx: str,
    arrays: list[np.ndarray],
    *,
    name: str = "kernel",
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (32, 1, 1),
    cluster: tuple[int, int, int] = (1, 1, 1),
    shared: int = 0,
    seed: int = 1,
    limit: int = 1 << 24,
    arch: str = "sm_90a",
    cooperative: bool = False,
) -> list[np.ndarray]:
    """Run a kernel whose parameters are pointers to ``arrays``; returns their contents after it."""
    module = load(ptx, arch)
    function = ctypes.c_void_p()
    pointers = []
    try:
        _check(library().cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        for array in arrays:
            size = ctypes.c_size_t(array.nbytes)
            pointers.append(ctypes.c_void_p(library().warploom_emulator_allocate(size)))
            ctypes.memmove(pointers[-1], array.ctypes.data, array.nbytes)
        arguments = (ctypes.c_void_p * max(len(pointers), 1))(
            *[ctypes.addressof(pointer) for pointer in pointers]
        )
        attributes = (LaunchAttribute * 2)(
            LaunchAttribute(id=_COOPERATIVE, value=(ctypes.c_uint * 16)(int(cooperative))),
            LaunchAttribute(id=CLUSTER_DIMENSION, value=(ctypes.c_uint * 16)(*cluster)),
        )
        count = 1 + int(cluster != (1, 1, 1))
        config = LaunchConfig(grid, block, shared, None, ctypes.addressof(attributes), count)
        with limited(seed, limit):
            _check(library().cuLaunchKernelEx(ctypes.byref(config), function, arguments, None))
        results = [np.empty_like(array) for array in arrays]
        for result, pointer in zip(results, pointers, strict=True):
            ctypes.memmove(result.ctypes.data, pointer, result.nbytes)
        return results
    finally:
        for pointer in pointers:
            library().warploom_emulator_release(pointer)
        library().cuModuleUnload(module)


def kernel(parameters: int, body: str, declarations: str = "") -> str:
    """A kernel with pointer parameters in ``%p0``, ``%p1``, ... and ``%tid`` in ``%t``."""
    names = [f"kernel_param_{i}" for i in range(parameters)]
    lines = [f"ld.param.u64 %p{i}, [{name}];" for i, name in enumerate(names)]
    return (
        f".visible .entry kernel({', '.join(f'.param .u64 {name}' for name in names)})\n{{\n"
        f".reg .b64 %p<{max(parameters, 1)}>;\n.reg .b32 %t;\n.reg .pred %q<8>;\n"
        ".reg .b16 %h<16>;\n.reg .b32 %r<32>;\n.reg .b64 %d<32>;\n"
        f"{declarations}\nmov.u32 %t, %tid.x;\n" + "\n".join(lines) + f"\n{body}\nret;\n}}\n"
    )


def register(dtype: np.dtype, index: int) -> str:
    """A register of :func:`kernel` for values of ``dtype``."""
    return f"%{ {1: 'h', 2: 'h', 4: 'r', 8: 'd'}[np.dtype(dtype).itemsize] }{index}"


def elementwise(
    instruction: str, result: np.dtype, *operands: np.ndarray, arch: str = "sm_90a"
) -> np.ndarray:
    """Apply ``"add.s32 {d}, {0}, {1}"`` to arrays, element by element.

    Registers are named for 2, 4 and 8 bytes by the dtypes; the instruction may also use the
    predicates ``%q0`` to ``%q7``.
    """
    count = operands[0].size
    loads, names = [], []
    for i, operand in enumerate(operands):
        name = register(operand.dtype, i + 1)
        names.append(name)
        bits = 8 * operand.itemsize
        loads.append(
            f"mul.wide.u32 %d{10 + i}, %t, {operand.itemsize};\nadd.u64 %d{10 + i}, %d{10 + i}, "
            f"%p{i};\nld.global.b{bits} {name}, [%d{10 + i}];"
        )
    d = register(result, 9)
    size = np.dtype(result).itemsize
    body = "\n".join(loads) + "\n" + instruction.format(*names, d=d) + ";\n"
    body += (
        f"mul.wide.u32 %d20, %t, {size};\nadd.u64 %d20, %d20, %p{len(operands)};\n"
        f"st.global.b{8 * size} [%d20], {d};"
    )
    output = np.zeros(count, result)
    ptx = kernel(len(operands) + 1, body)
    return launch(ptx, [*operands, output], block=(count, 1, 1), arch=arch)[-1]
