"""The parts of the emulator one by one, with numpy arrays in place of registers and memory."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tvm_ffi

#: Offset of the first byte of shared memory that a program may use.
SHARED_START = 1024


@functools.cache
def emulator_function(name: str) -> Callable:
    """``warploom.emulator.<name>`` of the native library."""
    from warploom.runtime import native

    native.library()
    return tvm_ffi.get_global_func(f"warploom.emulator.{name}")


def int64(value: int) -> int:
    """The signed 64-bit integer with the bits of ``value``."""
    return int(np.uint64(int(value) & 0xFFFF_FFFF_FFFF_FFFF).astype("int64"))


def cvt(to: str, source: str, operands, low=(), rounding: str = "", modifiers: str = ""):
    """``cvt`` of an array of bit patterns, or of pairs of them, as uint64 patterns."""
    operands, low = (np.asarray(x, "uint64").ravel() for x in (operands, low))
    result = emulator_function("cvt")(
        to, source, rounding, modifiers, operands.tobytes(), low.tobytes()
    )
    return np.frombuffer(bytes(result), "uint64")
