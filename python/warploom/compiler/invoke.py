"""Calls TVM's own CUDA compilation and keeps the compiler's output, which TVM throws away.

``tvm.support.nvcc`` asks ptxas for a verbose log but reads it only when compilation fails. Its two
ways to a compiler, the ``cuda.bindings.nvrtc`` module and ``subprocess``, are therefore replaced
for the duration of one call by versions that listen; the binary is the one of stock TVM.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warploom.runtime.toolchain import compile_mode

#: Headers that replace slow ones of CUDA, see README.md there.
LEAN_INCLUDE = Path(__file__).parent / "include"

#: First version of NVRTC that knows the option ``--no-cache``.
_NO_CACHE_SINCE = (12, 9)

#: Options beyond TVM's own. PTX is for the emulator, whose reports name lines of the source.
_FORMAT_OPTIONS: Mapping[str, tuple[str, ...]] = {"ptx": ("-lineinfo",)}

_LOCK = threading.RLock()


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

    listen = _listen_to_nvcc() if request.mode == "nvcc" else _listen_to_nvrtc(first_options)
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


@contextlib.contextmanager
def _listen_to_nvrtc(first_options: tuple[str, ...]) -> Iterator[list[str]]:
    """Collect the log of each program before it is destroyed; put options in front of TVM's."""
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        yield []  # TVM reports the missing package, and how to install it
        return

    lines: list[str] = []
    owner = threading.get_ident()
    _, *version = nvrtc.nvrtcVersion()
    # NVRTC's own cache of cubins, where there is a driver, would return one without its log.
    own_options = ("--no-cache",) if tuple(version) >= _NO_CACHE_SINCE else ()
    compile_program, destroy_program = nvrtc.nvrtcCompileProgram, nvrtc.nvrtcDestroyProgram

    def listening_compile(program: Any, count: int, options: list[bytes]) -> Any:
        if threading.get_ident() != owner:
            return compile_program(program, count, options)
        options = [*(option.encode() for option in (*own_options, *first_options)), *options]
        return compile_program(program, len(options), options)

    def listening_destroy(program: Any) -> Any:
        if threading.get_ident() == owner:
            lines.append(_program_log(nvrtc, program))
        return destroy_program(program)

    with _replaced(
        nvrtc, nvrtcCompileProgram=listening_compile, nvrtcDestroyProgram=listening_destroy
    ):
        yield lines


def _program_log(nvrtc: types.ModuleType, program: Any) -> str:
    status, size = nvrtc.nvrtcGetProgramLogSize(program)
    if int(status) != 0:
        return ""
    text = bytearray(size)
    (status,) = nvrtc.nvrtcGetProgramLog(program, text)
    return text.rstrip(b"\0").decode(errors="replace") if int(status) == 0 else ""


@contextlib.contextmanager
def _listen_to_nvcc() -> Iterator[list[str]]:
    """Collect the output of nvcc and nvlink."""
    from tvm.support import nvcc

    lines: list[str] = []
    owner = threading.get_ident()

    class ListeningPopen(subprocess.Popen):
        def communicate(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            out, err = super().communicate(*args, **kwargs)
            if threading.get_ident() == owner and self.args[0] in ("nvcc", "nvlink"):
                lines.append(out.decode(errors="replace"))
            return out, err

    # TVM's module gets a namespace of its own, so that no other code sees the replacement.
    listening = types.SimpleNamespace(**{**vars(subprocess), "Popen": ListeningPopen})
    with _replaced(nvcc, subprocess=listening):
        yield lines


@contextlib.contextmanager
def _replaced(module: types.ModuleType, **replacements: Any) -> Iterator[None]:
    """Attributes of a module replaced for a while, by one thread at a time."""
    with _LOCK:
        originals = {name: getattr(module, name) for name in replacements}
        try:
            for name, value in replacements.items():
                setattr(module, name, value)
            yield
        finally:
            for name, value in originals.items():
                setattr(module, name, value)
