"""The two shared libraries that stand in for the CUDA driver and the CUDA runtime."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from warploom import native


def find_libraries() -> tuple[Path, Path]:
    """Paths of the emulated ``libcuda.so.1`` and ``libcudart.so.13``.

    Raises
    ------
    ToolchainError
        If they have not been built.
    """
    return (
        native.find_library("warploom_emulator"),
        native.find_library("warploom_emulator_cudart"),
    )


def open_libraries() -> Path:
    """Load both, so that later loads of their SONAMEs find them, and say so once.

    Returns
    -------
    Path
        The library with the emulator.

    Raises
    ------
    ToolchainError, OSError
        If they are missing or do not load.
    """
    cuda, cudart = find_libraries()
    ctypes.CDLL(str(cuda), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(cudart), ctypes.RTLD_GLOBAL)
    print(
        "warploom: CUDA kernels run on an emulated device (WARPLOOM_EMULATOR=1); times mean "
        "nothing.",
        file=sys.stderr,
    )
    return cuda
