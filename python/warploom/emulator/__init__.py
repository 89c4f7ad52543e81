"""A CPU that executes the PTX of TVM's CUDA kernels, for machines without a GPU.

With ``WARPLOOM_EMULATOR=1`` in the environment before ``import tvm``, ``tvm.cuda(0)`` is an
emulated device of compute capability 9.0 and ``tvm.cuda(1)`` one of 10.0
(``WARPLOOM_EMULATOR_ARCH=sm_100a`` exchanges the two). Stock TVM compiles, loads and launches
kernels on them as on a GPU. It is functional: results are those of the PTX, times are those of the
CPU and say nothing about a GPU.

What the emulator does not know is an error when a kernel is loaded, and names instruction and line.
Deadlocks, accesses out of bounds and misaligned accesses are errors of the launch.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

from warploom.errors import ToolchainError

#: Environment variable that puts the emulator in the place of the CUDA driver.
OPT_IN = "WARPLOOM_EMULATOR"


def is_requested(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``WARPLOOM_EMULATOR=1`` is set."""
    return environ.get(OPT_IN) == "1"


def is_enabled() -> bool:
    """Whether ``tvm.cuda(0)`` of this process is the emulated device."""
    from warploom import plugin

    driver = plugin.register()
    return driver is not None and driver.kind == "emulator"


def set_seed(seed: int) -> None:
    """Choose the schedule of all later launches: which warp runs, when a copy completes.

    Parameters
    ----------
    seed : int
        From 0 to 2**64 - 1. Equal seeds give equal schedules; ``WARPLOOM_EMULATOR_SEED``, or else
        1, is what a process starts with.
    """
    _library().warploom_emulator_set_seed(ctypes.c_uint64(seed))


def set_instruction_limit(limit: int) -> None:
    """Bound the instructions that the warps of one launch execute, so that endless loops end.

    ``WARPLOOM_EMULATOR_INSTRUCTIONS`` sets the bound that a process starts with.
    """
    _library().warploom_emulator_set_instruction_limit(ctypes.c_uint64(limit))


def executed_instructions() -> int:
    """Instructions that the warps of all launches of this process have executed."""
    function = _library().warploom_emulator_instructions
    function.restype = ctypes.c_uint64
    return int(function())


def _library() -> ctypes.CDLL:
    if not is_enabled():
        raise ToolchainError(
            "The emulator is not in use; set WARPLOOM_EMULATOR=1 before `import tvm`."
        )
    from warploom.emulator.libraries import find_libraries

    return ctypes.CDLL(str(find_libraries()[0]))
