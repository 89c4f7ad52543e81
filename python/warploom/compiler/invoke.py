"""Calls TVM's own CUDA compilation and keeps the compiler's output, which TVM throws away.

The binary is the one of stock TVM. Several threads may compile at a time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warploom.compiler.listen import listen_to_nvcc, listen_to_nvrtc
from warploom.runtime.toolchain import compile_mode

#: Headers that replace slow ones of CUDA, see README.md there.
LEAN_INCLUDE = Path(__file__).parent / "include"

#: Options beyond TVM's own. PTX is for the emulator, whose reports name lines of the source.
_FORMAT_OPTIONS: Mapping[str, tuple[str, ...]] = {"ptx": ("-lineinfo",)}


@dataclass(frozen=True)
class Request:
    """The inputs that decide the binary, apart from the environment and the compiler's version.

    Attributes
    ----------
    source : str
        CUDA C++ as TVM generates it.
    arch : str
        Such as ``"sm_90a"``.
    mode : str
        ``"nvrtc"`` or ``"nvcc"``.
    format : str
        ``"cubin"``, ``"ptx"`` or, with nvcc only, ``"fatbin"``.
    """

    source: str
    arch: str
    mode: str
    format: str


@dataclass(frozen=True)
class Output:
    """A binary, the compiler's output about it, and how many seconds it took."""

    binary: bytes
    log: str
    seconds: float


def current_request(source: str, format: str | None = None) -> Request:
    """The request that stock TVM would serve now: current target, ``TVM_CUDA_COMPILE_MODE``.

    Parameters
    ----------
    source : str
        CUDA source.
    format : str, optional
        By default TVM's format: a cubin from NVRTC, a fatbin from nvcc.

    Raises
    ------
    ValueError
        By TVM, if there is neither a target with an ``arch`` nor a GPU.
    """
    from tvm.support import nvcc
    from tvm.target import Target

    mode = compile_mode()
    version = nvcc.get_target_compute_version(Target.current(allow_none=True))
    format = format or ("fatbin" if mode == "nvcc" else "cubin")
    return Request(source, f"sm_{version.replace('.', '')}", mode, format)


def compile_request(request: Request, environ: Mapping[str, str] = os.environ) -> Output:
    """Compile with stock TVM, under the current target, and return the compiler's log as well.

    NVRTC first gets the lean headers; sources that need more are compiled again as TVM does it.

    Raises
    ------
    RuntimeError
        By TVM, with the compiler's errors.
    """
    if request.mode == "nvrtc" and lean_enabled(environ):
        with contextlib.suppress(RuntimeError):
            return _compile(request, (f"-I{LEAN_INCLUDE}",))
    return _compile(request, ())


def lean_enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether NVRTC may use the lean headers; ``WARPLOOM_LEAN_HEADERS=0`` forbids it."""
    return environ.get("WARPLOOM_LEAN_HEADERS", "1") != "0"


def _compile(request: Request, first_options: tuple[str, ...]) -> Output:
    from tvm.support import nvcc

    listen = listen_to_nvcc() if request.mode == "nvcc" else listen_to_nvrtc(first_options)
    start = time.perf_counter()
    with listen as lines:
        # Not the arch: TVM takes it, and options, from the current target and the environment.
        binary = nvcc.compile_cuda(
            request.source,
            target_format=request.format,
            options=list(_FORMAT_OPTIONS.get(request.format, ())),
            compiler=request.mode,
        )
    return Output(bytes(binary), "".join(lines), time.perf_counter() - start)
