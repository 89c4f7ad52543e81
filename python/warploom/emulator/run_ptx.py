"""Runs PTX on the emulator, with numpy arrays for pointers; needs neither TVM nor a driver.

PTX is a text, or in a fat binary.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warploom.emulator import arguments, binding
from warploom.emulator.arguments import Parameter
from warploom.emulator.binding import EmulatorError, Geometry
from warploom.emulator.findings import findings_of, summary

#: Where a cooperative launch has the address of its workspace (``cooperative_groups`` of CUDA).
_WORKSPACE = re.compile(r"%envreg[12]\b")
#: How a fat binary begins: magic number, version, bytes of the header and of what follows.
_HEADER, _FAT_BINARY = struct.Struct("<IHHQ"), 0xBA55ED50
_ELF = b"\x7fELF"
_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+)", re.MULTILINE)


def read_image(file: Path) -> str | bytes:
    """The PTX in a file: as text, or as the bytes of a fat binary.

    Raises
    ------
    EmulatorError
        If the file is a part of a fat binary.
    UnicodeDecodeError
        If it is neither a binary nor a text.
    """
    data = file.read_bytes()
    magic, _, header, size = _HEADER.unpack(data[: _HEADER.size].ljust(_HEADER.size, b"\0"))
    if data.startswith(_ELF):  # the driver says why it executes no machine code
        return data
    if magic != _FAT_BINARY:
        return data.decode()
    if header + size > len(data):
        raise EmulatorError(
            f"{file} is a fat binary of {header + size} bytes, of which {len(data)} are there; "
            "write it anew."
        )
    return data


def arch_of(image: str | bytes) -> str:
    """The emulated architecture that executes PTX with its ``.target``; sm_90a of fat binaries."""
    target = _TARGET.search(image) if isinstance(image, str) else None
    return "sm_100a" if target and int(target[1][3:]) >= 100 else "sm_90a"


def is_cooperative(image: str | bytes) -> bool:
    """Whether PTX uses the barrier of the grid, which only a cooperative launch has.

    What a fat binary uses is not looked for.
    """
    return isinstance(image, str) and _WORKSPACE.search(image) is not None


def run(
    image: str | bytes, args: Sequence[Any], kernel: str | None, arch: str | None,
    geometry: Geometry,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """Launch a kernel; returns the arrays among the arguments with their contents after it."""
    device = binding.call("find_arch", (arch or arch_of(image)).encode())
    with contextlib.ExitStack() as stack:
        module = stack.enter_context(binding.Module(image, device))
        names = module.kernels()
        kernel = kernel or (names[0] if len(names) == 1 else None)
        if kernel not in names:
            raise EmulatorError(
                f"The PTX has no kernel {kernel!r}; name one of {', '.join(names) or 'none'}."
                if kernel
                else f"Name the kernel; the PTX has {', '.join(names) or 'none'}."
            )
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
        try:
            module.launch(kernel, geometry, values)
        except EmulatorError as error:
            found = findings_of(binding.call_json("reports") or ())
            raise EmulatorError(summary(str(error), found), found) from None
        return tuple(array.read() for array in arrays)
