"""Runs PTX on the emulator, with numpy arrays for pointers; needs neither TVM nor a driver."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from warploom.emulator import binding
from warploom.emulator.binding import EmulatorError, Geometry

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+)", re.MULTILINE)


def kernels(ptx: str) -> list[str]:
    """Names of the kernels in PTX."""
    return _ENTRY.findall(ptx)


def arch_of(ptx: str) -> str:
    """The emulated architecture that executes PTX with its ``.target``."""
    target = _TARGET.search(ptx)
    return "sm_100a" if target and int(target[1][3:]) >= 100 else "sm_90a"


def run(
    ptx: str, args: Sequence[Any], kernel: str | None, arch: str | None, geometry: Geometry
) -> tuple[np.ndarray, ...]:
    """Launch a kernel; returns the arrays among the arguments with their contents after it."""
    names = kernels(ptx)
    kernel = kernel or (names[0] if len(names) == 1 else None)
    if kernel not in names:
        raise EmulatorError(
            f"The PTX has no kernel {kernel!r}; name one of {', '.join(names) or 'none'}."
            if kernel
            else f"Name the kernel; the PTX has {', '.join(names) or 'none'}."
        )
    device = binding.call("find_arch", (arch or arch_of(ptx)).encode())
    with contextlib.ExitStack() as stack:
        module = stack.enter_context(binding.Module(ptx, device))
        sizes = module.parameter_bytes(kernel)
        if len(args) != len(sizes):
            raise EmulatorError(
                f"{kernel} has {len(sizes)} parameters, and {len(args)} arguments were given."
            )
        arrays: list[binding.DeviceArray] = []
        parameters = []
        for index, (value, size) in enumerate(zip(args, sizes, strict=True)):
            if isinstance(value, np.ndarray):
                arrays.append(stack.enter_context(binding.DeviceArray(value)))
                value = np.frombuffer(arrays[-1].parameter, "uint64")[0]
            parameters.append(_scalar_bytes(kernel, index, value, size))
        module.launch(kernel, geometry, parameters)
        return tuple(array.read() for array in arrays)


def _scalar_bytes(kernel: str, index: int, value: Any, size: int) -> bytes:
    """A parameter as it lies in memory; Python's numbers take the size of the parameter."""
    if isinstance(value, bytes):
        result = value
    elif isinstance(value, float):
        result = np.dtype(f"float{8 * size}").type(value).tobytes() if size in (2, 4, 8) else b""
    elif isinstance(value, int):
        result = (value % (1 << 8 * size)).to_bytes(size, "little")
    else:
        result = np.asarray(value).tobytes()
    if len(result) != size:
        raise EmulatorError(
            f"Parameter {index} of {kernel} has {size} bytes, and {value!r} has {len(result)}; "
            "give a number of that size, an array, or bytes."
        )
    return result
