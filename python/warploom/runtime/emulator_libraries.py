"""The two shared libraries that stand in for the CUDA driver and the CUDA runtime."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from warploom.errors import ToolchainError
from warploom.runtime import native

#: Environment variable that puts the emulator in the place of the CUDA driver.
OPT_IN = "WARPLOOM_EMULATOR"
#: Environment variable that names the architecture of ``tvm.cuda(0)``.
FIRST_ARCH = "WARPLOOM_EMULATOR_ARCH"
#: Environment variable that says how many multiprocessors (SMs) emulated devices have.
SMS = "WARPLOOM_EMULATOR_SMS"
#: Most that they can have.
MOST_SMS = 1024
#: Architectures of the emulated devices, in the order of their numbers.
ARCHS = ("sm_90a", "sm_100a")


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


def has_system_driver() -> bool:
    """Whether TVM finds a CUDA driver by itself; loads it if so."""
    try:
        ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def first_arch(environ: Mapping[str, str] = os.environ) -> str:
    """The architecture of ``tvm.cuda(0)`` that the environment asks for.

    Raises
    ------
    ToolchainError
        If there is no such emulated device.
    """
    arch = environ.get(FIRST_ARCH, ARCHS[0])
    if arch not in ARCHS:
        raise ToolchainError(f"{FIRST_ARCH} is {arch!r}; allowed are {' and '.join(ARCHS)}.")
    return arch


def check_sms(environ: Mapping[str, str] = os.environ) -> None:
    """Check how many multiprocessors the environment asks for.

    Raises
    ------
    ToolchainError
        If an emulated device cannot have so many.
    """
    text = environ.get(SMS, "1")
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_SMS):
        raise ToolchainError(f"{SMS} is {text!r}; allowed are whole numbers from 1 to {MOST_SMS}.")


def open_libraries(environ: Mapping[str, str] = os.environ) -> Path:
    """Load both, so that later loads of their SONAMEs find them, and say so once.

    Returns
    -------
    Path
        The library with the emulator.

    Raises
    ------
    ToolchainError, OSError
        If they are missing or do not load, or another device is asked for than there are.
    """
    first_arch(environ)
    check_sms(environ)
    cuda, cudart = find_libraries()
    ctypes.CDLL(str(cuda), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(cudart), ctypes.RTLD_GLOBAL)
    print(
        "warploom: CUDA kernels run on an emulated device (WARPLOOM_EMULATOR=1); times mean "
        "nothing.",
        file=sys.stderr,
    )
    return cuda
