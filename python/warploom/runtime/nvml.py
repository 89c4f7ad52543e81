"""Clock and power of a GPU, by NVIDIA's management library."""

from __future__ import annotations

import ctypes
import functools
import os

_LIBRARY = "libnvidia-ml.so.1"
#: NVML_CLOCK_SM
_SM = 1


def sm_clock() -> int | None:
    """MHz of the multiprocessors of this process's first GPU.

    None where there is no GPU, or the library does not say.
    """
    return _read("nvmlDeviceGetClockInfo", ctypes.c_int(_SM))


def power() -> float | None:
    """Watts that it draws; None as in :func:`sm_clock`."""
    milliwatts = _read("nvmlDeviceGetPowerUsage")
    return None if milliwatts is None else milliwatts / 1e3


def _read(function: str, *arguments: ctypes.c_int) -> int | None:
    library, handle = _device()
    if library is None:
        return None
    value = ctypes.c_uint()
    status = getattr(library, function)(handle, *arguments, ctypes.byref(value))
    return value.value if status == 0 else None


@functools.cache
def _device() -> tuple[ctypes.CDLL | None, ctypes.c_void_p]:
    handle = ctypes.c_void_p()
    try:
        library = ctypes.CDLL(_LIBRARY)
        if library.nvmlInit_v2() != 0 or _open(library, handle) != 0:
            return None, handle
    except (OSError, AttributeError):
        return None, handle
    return library, handle


def _open(library: ctypes.CDLL, handle: ctypes.c_void_p) -> int:
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    if first.isdecimal():
        return library.nvmlDeviceGetHandleByIndex_v2(int(first), ctypes.byref(handle))
    return library.nvmlDeviceGetHandleByUUID(first.encode(), ctypes.byref(handle))
