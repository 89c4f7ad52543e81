"""The C interface of the emulator, typed; the only place in the package that calls it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warploom.emulator.findings import Finding
from warploom.emulator.html_report import html_page, html_report
from warploom.errors import ToolchainError, WarploomError
from warploom.runtime import native
from warploom.runtime.emulator_state import is_enabled

_U64, _CHAR_P, _VOID_P = ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p
#: Function -> result and arguments, for functions that differ from ``int f(void)``.
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "allocate": (_VOID_P, (ctypes.c_size_t,)),
    "clear_launch_reports": (None, ()),
    "clear_reports": (None, ()),
    "current_device": (ctypes.c_int, ()),
    "error": (_CHAR_P, ()),
    "exploration": (_CHAR_P, ()),
    "find_arch": (ctypes.c_int, (_CHAR_P,)),
    "instructions": (_U64, ()),
    "launch_reports": (_CHAR_P, ()),
    "parameter_bytes": (ctypes.c_int64, (_VOID_P, ctypes.c_int)),
    "parameter_type": (_CHAR_P, (_VOID_P, ctypes.c_int)),
    "release": (None, (_VOID_P,)),
    "reports": (_CHAR_P, ()),
    "set_checks": (None, (ctypes.c_int,)),
    "set_device": (ctypes.c_int, (ctypes.c_int,)),
    "set_exhaustive": (None, (ctypes.c_int64, ctypes.c_int)),
    "set_explore": (None, (ctypes.c_int64,)),
    "set_instruction_limit": (None, (_U64,)),
    "set_multiprocessors": (ctypes.c_int, (ctypes.c_uint32,)),
    "set_report": (None, (ctypes.c_int,)),
    "set_schedule": (ctypes.c_int, (_CHAR_P,)),
    "set_seconds": (None, (ctypes.c_double,)),
    "set_seed": (None, (_U64,)),
    "set_threads": (None, (ctypes.c_uint32,)),
}
#: Attributes of a launch.
_COOPERATIVE, _CLUSTER_DIMENSION = 2, 4


class EmulatorError(WarploomError):
    """An error in a program, found by the emulator.

    Attributes
    ----------
    findings : tuple of Finding
        All that the checks have found, the message only has the first; empty for errors of
        arguments.
    files : dict of str to str
        Paths of the scripts that findings name, by the names that they have there.

    Examples
    --------
    >>> try:
    ...     emulator.run(kernel, [a, b])
    ... except emulator.EmulatorError as report:
    ...     print(report)  # doctest: +SKIP
    data race in kernel ...
    """

    def __init__(
        self, message: str, findings: Sequence[Finding] = (), files: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.findings = tuple(findings)
        self.files = dict(files or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.findings, self.files)

    def write_html(self, path: str | Path) -> None:
        """Write a page with all findings and the source on both sides of each."""
        page = html_page(self._all(), self.files)
        Path(path).write_text(page, encoding="utf-8")

    def _all(self) -> tuple[Finding, ...]:
        return self.findings or (Finding("error", str(self)),)

    def _repr_html_(self) -> str:
        return html_report(self._all(), self.files)


class _LaunchAttribute(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint),
        ("padding", ctypes.c_uint),
        ("value", ctypes.c_uint * 16),
    )


class _LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


def _attribute(number: int, *values: int) -> _LaunchAttribute:
    return _LaunchAttribute(id=number, value=(ctypes.c_uint * 16)(*values))


@dataclass(frozen=True)
class Geometry:
    """The launch parameters of a kernel; ``shared`` is dynamic shared memory in bytes.

    All CTAs of a ``cooperative`` launch are live together, so that they may wait for each other.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    cooperative: bool = False


def library() -> ctypes.CDLL:
    """The emulated driver: that of the process, or else a private one."""
    return _open("warploom_emulator" if is_enabled() else "warploom_emulator_local")


@functools.cache
def _open(name: str) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(native.find_library(name)))
    for function, (result, arguments) in _SIGNATURES.items():
        with contextlib.suppress(AttributeError):  # `call` reports it
            pointer = getattr(loaded, f"warploom_emulator_{function}")
            pointer.restype, pointer.argtypes = result, arguments
    return loaded


def call(name: str, *arguments: Any) -> Any:
    """Call ``warploom_emulator_<name>``.

    Raises
    ------
    ToolchainError
        If the library lacks it, which then is of another version of warploom.
    """
    try:
        function = getattr(library(), f"warploom_emulator_{name}")
    except AttributeError as error:
        raise ToolchainError(
            f"The emulator's library has no {name!r}; it was built from another version of "
            "warploom; run `pip install .` again."
        ) from error
    return function(*arguments)


def call_json(name: str) -> Any:
    """Call a function that returns JSON text."""
    return json.loads(call(name).decode() or "null")


def check(code: int) -> None:
    """Raise :class:`EmulatorError` with the reason if a call of the driver API failed."""
    if code != 0:
        raise EmulatorError(call("error").decode(errors="replace"))


@contextlib.contextmanager
def device_kept() -> Iterator[None]:
    """Give this thread its current device back at the end, also when an exception passes.

    A thread's current device decides where its later modules, memory and tensor maps belong;
    both :class:`Module` and TVM's host code change it. It is a decorator, too.

    Examples
    --------
    >>> with binding.device_kept():
    ...     binding.check(binding.call("set_device", 1))
    """
    before = call("current_device")
    try:
        yield
    finally:
        check(call("set_device", before))


class Module:
    """A loaded module of PTX, or of a fat binary; unloaded at the end of the ``with`` block.

    Its device becomes the thread's current device; see :func:`device_kept`.
    """

    def __init__(self, image: str | bytes, device: int) -> None:
        check(call("set_device", device))
        self._handle = ctypes.c_void_p()
        data = image.encode() if isinstance(image, str) else image
        check(library().cuModuleLoadData(ctypes.byref(self._handle), data))

    def __enter__(self) -> Module:
        return self

    def __exit__(self, *_: object) -> None:
        library().cuModuleUnload(self._handle)

    def kernels(self) -> list[str]:
        """Names of its kernels."""
        count = ctypes.c_uint()
        check(library().cuModuleGetFunctionCount(ctypes.byref(count), self._handle))
        handles = (ctypes.c_void_p * count.value)()
        check(library().cuModuleEnumerateFunctions(handles, count, self._handle))
        names = []
        for handle in handles:
            name = ctypes.c_char_p()
            check(library().cuFuncGetName(ctypes.byref(name), ctypes.c_void_p(handle)))
            names.append(name.value.decode())
        return names

    def function(self, name: str) -> ctypes.c_void_p:
        """The handle of a kernel."""
        function = ctypes.c_void_p()
        check(library().cuModuleGetFunction(ctypes.byref(function), self._handle, name.encode()))
        return function

    def parameters(self, name: str) -> list[tuple[int, str]]:
        """Size in bytes and PTX type, such as ``"u64"``, of each parameter of a kernel."""
        function, result = self.function(name), []
        while (size := call("parameter_bytes", function, len(result))) >= 0:
            result.append((int(size), call("parameter_type", function, len(result)).decode()))
        return result

    def launch(self, name: str, geometry: Geometry, parameters: Sequence[bytes]) -> None:
        """Launch a kernel with the bytes of its parameters."""
        buffers = [ctypes.create_string_buffer(value, len(value)) for value in parameters]
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*map(ctypes.addressof, buffers))
        attributes = (_LaunchAttribute * 2)(
            _attribute(_COOPERATIVE, int(geometry.cooperative)),
            _attribute(_CLUSTER_DIMENSION, *geometry.cluster),
        )
        config = _LaunchConfig(
            geometry.grid,
            geometry.block,
            geometry.shared,
            None,
            ctypes.addressof(attributes),
            1 + int(geometry.cluster != (1, 1, 1)),
        )
        check(
            library().cuLaunchKernelEx(
                ctypes.byref(config), self.function(name), pointers, ctypes.c_void_p()
            )
        )


class DeviceArray:
    """A copy of an array in the memory of the current device, until the end of ``with``."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = np.ascontiguousarray(array)
        self._pointer = call("allocate", self._array.nbytes)
        if self._pointer is None:
            raise EmulatorError(f"There is no memory for an array of {self._array.nbytes} bytes.")
        ctypes.memmove(self._pointer, self._array.ctypes.data, self._array.nbytes)

    def __enter__(self) -> DeviceArray:
        return self

    def __exit__(self, *_: object) -> None:
        call("release", self._pointer)

    @property
    def parameter(self) -> bytes:
        """The pointer as a kernel takes it."""
        return int(self._pointer).to_bytes(8, "little")

    def read(self) -> np.ndarray:
        """The contents now."""
        result = np.empty_like(self._array)
        ctypes.memmove(result.ctypes.data, self._pointer, result.nbytes)
        return result
