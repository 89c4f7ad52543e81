"""Whether this process has emulated devices, and how it gets them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from warploom import hooks
from warploom.errors import ToolchainError
from warploom.runtime.emulator_libraries import OPT_IN


def is_requested(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``WARPLOOM_EMULATOR=1`` is set.

    Examples
    --------
    >>> emulator.is_requested({"WARPLOOM_EMULATOR": "1"})
    True
    """
    return environ.get(OPT_IN) == "1"


def is_enabled() -> bool:
    """Whether ``tvm.cuda(0)`` of this process is an emulated device.

    Examples
    --------
    >>> emulator.is_enabled() in (True, False)
    True
    """
    runtime = hooks.cuda_runtime()
    return runtime is not None and runtime.driver.kind == "emulator"


def enable() -> None:
    """Make ``tvm.cuda(0)`` an emulated device, in this process and those that it starts.

    The same as ``WARPLOOM_EMULATOR=1``, but after ``import tvm``; the second call does nothing.

    Raises
    ------
    ToolchainError
        If TVM has loaded a CUDA driver before, or has compiled a kernel without the emulator.

    Examples
    --------
    >>> import tvm, warploom.emulator
    >>> warploom.emulator.enable()
    >>> tvm.cuda(0).device_name
    'warploom emulator (sm_90a)'
    """
    runtime = hooks.cuda_runtime()
    if runtime is None:
        raise ToolchainError("The emulator cannot be enabled: TVM has no compiler in it.")
    runtime.enable_emulator()
    os.environ[OPT_IN] = "1"


def enable_without_gpu() -> bool:
    """Enable the emulator where the machine has no CUDA driver.

    ``WARPLOOM_EMULATOR`` decides if it is set: 0 forbids it.

    Returns
    -------
    bool
        Whether ``tvm.cuda(0)`` is an emulated device now.

    Examples
    --------
    >>> if emulator.enable_without_gpu():  # doctest: +SKIP
    ...     print("times mean nothing")
    """
    runtime = hooks.cuda_runtime()
    if OPT_IN not in os.environ and runtime is not None and runtime.driver.kind == "no-device":
        with contextlib.suppress(ToolchainError):  # it has not been built
            enable()
    return is_enabled()
