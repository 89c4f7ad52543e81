"""The host's cost of a call of a compiled function beside the launch, and how it is saved.

TVM's host code makes the device current and encodes every tensor map of a kernel at each call
(about half a microsecond a map), and ``executable["main"]`` looks the function up in the compiled
module each time that it is written (tens of microseconds). All give the same result each time; so
all are remembered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

#: The function of TVM's runtime that encodes a tensor map.
ENCODE = "runtime.cuTensorMapEncodeTiled"
#: The function of TVM's runtime that makes a device current.
SET_DEVICE = "__tvm_set_device"
#: Environment variable that keeps TVM's own functions.
OPT_OUT = "WARPLOOM_LAUNCH_CACHE"


def is_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether anything is remembered; ``WARPLOOM_LAUNCH_CACHE=0`` forbids it."""
    return environ.get(OPT_OUT) != "0"


#: Function of TVM's runtime -> the native one that makes of it a function that remembers.
REMEMBERING = {
    ENCODE: "warploom.launch.cached_encode",
    SET_DEVICE: "warploom.launch.lazy_set_device",
}


def remembering(name: str, stock: Any) -> Any | None:
    """Return a function of :data:`REMEMBERING` that does no work twice in a thread.

    Parameters
    ----------
    name : str
        Its name.
    stock : Function
        The one of TVM.

    Returns
    -------
    Function or None
        None if the native library was built before there was this function.

    Raises
    ------
    ToolchainError
        If the native library is missing.
    """
    from warploom.runtime import native

    make = native.function(REMEMBERING[name])
    return None if make is None else make(stock)


def remembering_lookup(stock: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """``Executable.__getitem__`` that asks the module for each function once.

    Parameters
    ----------
    stock : callable
        The one of TVM.
    """

    def lookup(executable: Any, name: str) -> Any:
        known = vars(executable).setdefault("_warploom_functions", {})
        kernel = known.get(name)
        if kernel is None or kernel[0] is not _module_of(executable):
            function = stock(executable, name)  # may compile a module that is not runnable yet
            kernel = known[name] = (_module_of(executable), function)
        return kernel[1]

    return lookup


def _module_of(executable: Any) -> Any:
    """Return the module that has the functions; ``jit(force_recompile=True)`` replaces it."""
    jitted = executable._jitted_mod
    return executable.mod if jitted is None else jitted


def tensor_map_counts() -> tuple[int, int]:
    """How often this thread has found a tensor map, and how often it had to encode one."""
    import tvm_ffi

    hits, misses = tvm_ffi.get_global_func("warploom.launch.tensor_map_counts")()
    return int(hits), int(misses)
