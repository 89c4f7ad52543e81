"""Runs PTX on the emulator, with numpy arrays for pointers; needs neither TVM nor a driver."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from warploom.emulator import arguments, binding
from warploom.emulator.arguments import Parameter
from warploom.emulator.binding import EmulatorError, Geometry

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
#: Where a cooperative launch has the address of its workspace (``cooperative_groups`` of CUDA).
_WORKSPACE = re.compile(r"%envreg[12]\b")
_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+)", re.MULTILINE)


def kernels(ptx: str) -> list[str]:
    """Names of the kernels in PTX."""
    return _ENTRY.findall(ptx)


def arch_of(ptx: str) -> str:
    """The emulated architecture that executes PTX with its ``.target``."""
    target = _TARGET.search(ptx)
    return "sm_100a" if target and int(target[1][3:]) >= 100 else "sm_90a"


def is_cooperative(ptx: str) -> bool:
    """Whether PTX uses the barrier of the grid, which only a cooperative launch has."""
    return _WORKSPACE.search(ptx) is not None


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
        signature = module.parameters(kernel)
        if len(args) != len(signature):
            raise EmulatorError(
                f"{kernel} has {len(signature)} parameters, and {len(args)} arguments were given."
            )
        arrays: list[binding.DeviceArray] = []
        values = []
        for (size, type_name), value in zip(signature, args, strict=True):
            parameter = Parameter(kernel, len(values), size, type_name)
            if isinstance(value, np.ndarray):
                arguments.check_pointer(parameter, value)
                arrays.append(stack.enter_context(binding.DeviceArray(value)))
                values.append(arrays[-1].parameter)
            else:
                values.append(arguments.scalar_bytes(parameter, value))
        module.launch(kernel, geometry, values)
        return tuple(array.read() for array in arrays)
