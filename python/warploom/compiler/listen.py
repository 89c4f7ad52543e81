"""The output of CUDA compilers, which TVM throws away where they succeed.

``tvm.support.nvcc`` asks ptxas for a verbose log but reads it only when compilation fails. Its two
ways to a compiler, the ``cuda.bindings.nvrtc`` module and ``subprocess``, are replaced while a
compilation runs by versions that listen to the threads that compile, and to no others.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

#: First version of NVRTC that knows the option ``--no-cache``.
_NO_CACHE_SINCE = (12, 9)


@dataclass
class _Heard:
    """The compilation that a thread listens to: what it puts in front of TVM's options, the log."""

    first_options: tuple[bytes, ...]
    lines: list[str]


#: ``heard`` is the :class:`_Heard` of a thread while it listens; other threads have none.
_current = threading.local()


def _heard() -> _Heard | None:
    return getattr(_current, "heard", None)


@contextlib.contextmanager
def _listening(first_options: tuple[bytes, ...] = ()) -> Iterator[list[str]]:
    heard, before = _Heard(first_options, []), _heard()
    _current.heard = heard
    try:
        yield heard.lines
    finally:
        _current.heard = before


@contextlib.contextmanager
def listen_to_nvrtc(first_options: tuple[str, ...]) -> Iterator[list[str]]:
    """Collect the log of each program before it is destroyed; put options in front of TVM's."""
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        yield []  # TVM reports the missing package, and how to install it
        return

    _, *version = nvrtc.nvrtcVersion()
    # NVRTC's own cache of cubins, where there is a driver, would return one without its log.
    own_options = ("--no-cache",) if tuple(version) >= _NO_CACHE_SINCE else ()
    options = tuple(option.encode() for option in (*own_options, *first_options))
    with _NVRTC.replaced(nvrtc), _listening(options) as lines:
        yield lines


def _nvrtc_functions(nvrtc: types.ModuleType) -> dict[str, Any]:
    compile_program, destroy_program = nvrtc.nvrtcCompileProgram, nvrtc.nvrtcDestroyProgram

    def listening_compile(program: Any, count: int, options: list[bytes]) -> Any:
        heard = _heard()
        if heard is not None:
            options = [*heard.first_options, *options]
            count = len(options)
        return compile_program(program, count, options)

    def listening_destroy(program: Any) -> Any:
        heard = _heard()
        if heard is not None:
            heard.lines.append(_program_log(nvrtc, program))
        return destroy_program(program)

    return {"nvrtcCompileProgram": listening_compile, "nvrtcDestroyProgram": listening_destroy}


def _program_log(nvrtc: types.ModuleType, program: Any) -> str:
    status, size = nvrtc.nvrtcGetProgramLogSize(program)
    if int(status) != 0:
        return ""
    text = bytearray(size)
    (status,) = nvrtc.nvrtcGetProgramLog(program, text)
    return text.rstrip(b"\0").decode(errors="replace") if int(status) == 0 else ""


@contextlib.contextmanager
def listen_to_nvcc() -> Iterator[list[str]]:
    """Collect the output of nvcc and nvlink."""
    from tvm.support import nvcc

    with _NVCC.replaced(nvcc), _listening() as lines:
        yield lines


def _nvcc_functions(_: types.ModuleType) -> dict[str, Any]:
    class ListeningPopen(subprocess.Popen):
        def communicate(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            out, err = super().communicate(*args, **kwargs)
            heard = _heard()
            if heard is not None and self.args[0] in ("nvcc", "nvlink"):
                heard.lines.append(out.decode(errors="replace"))
            return out, err

    # TVM's module gets a namespace of its own, so that no other code sees the replacement.
    return {"subprocess": types.SimpleNamespace(**{**vars(subprocess), "Popen": ListeningPopen})}


class _Replacement:
    """Attributes of a module that are replaced while at least one thread needs that.

    Parameters
    ----------
    make : callable
        From the module to its new attributes, by name. They serve all threads at a time.
    """

    def __init__(self, make: Callable[[types.ModuleType], dict[str, Any]]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._users, self._originals = 0, dict[str, Any]()

    @contextlib.contextmanager
    def replaced(self, module: types.ModuleType) -> Iterator[None]:
        with self._lock:
            if self._users == 0:
                made = self._make(module)
                self._originals = {name: getattr(module, name) for name in made}
                for name, value in made.items():
                    setattr(module, name, value)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    for name, value in self._originals.items():
                        setattr(module, name, value)


_NVRTC, _NVCC = _Replacement(_nvrtc_functions), _Replacement(_nvcc_functions)
