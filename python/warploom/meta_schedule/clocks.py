"""The clock that a GPU runs at, by NVIDIA's management library."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable

_LIBRARY = "libnvidia-ml.so.1"
#: NVML_CLOCK_SM
_SM = 1


@functools.cache
def sm_clock() -> Callable[[], int | None]:
    """A function that returns the MHz of the multiprocessors of this process's first GPU.

    It returns None where there is no GPU, or the library does not say.
    """
    try:
        library = ctypes.CDLL(_LIBRARY)
        handle = ctypes.c_void_p()
        if library.nvmlInit_v2() != 0 or _open(library, handle) != 0:
            return lambda: None
    except (OSError, AttributeError):
        return lambda: None

    def read() -> int | None:
        value = ctypes.c_uint()
        status = library.nvmlDeviceGetClockInfo(handle, _SM, ctypes.byref(value))
        return value.value if status == 0 else None

    return read


def _open(library: ctypes.CDLL, handle: ctypes.c_void_p) -> int:
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    if first.isdecimal():
        return library.nvmlDeviceGetHandleByIndex_v2(int(first), ctypes.byref(handle))
    return library.nvmlDeviceGetHandleByUUID(first.encode(), ctypes.byref(handle))
