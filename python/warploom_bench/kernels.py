"""Kernels that are compiled before anything is measured: side by side, and kept in a folder.

A folder of kernels is all that another machine needs to measure them: with the runtime libraries of
TVM in it, that machine needs ``tvm_ffi`` and PyTorch, and neither a compiler nor TVM itself.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warploom
from warploom.errors import WarploomError

_INDEX = "index.json"
#: TVM's libraries that load and launch an exported kernel, in the order of their loading.
RUNTIME = ("libtvm_runtime.so", "libtvm_runtime_cuda.so")
#: Folders of warploom on which no kernel depends.
_NO_PART = ("emulator", "profile", "tutorials")
#: Seconds after which the compilation of one kernel is given up; models take longest.
_TIMEOUT = 3600.0
#: Seconds between two words about a long compilation.
_SAY_SECONDS = 20.0


@dataclass(frozen=True)
class Kernel:
    """A kernel to compile: the executable that ``maker(*arguments)`` returns, or None.

    Attributes
    ----------
    maker : callable
        A function of a module. It is called in another process.
    arguments : tuple
        Whose ``repr`` tells them apart.
    """

    maker: Callable[..., Any]
    arguments: tuple[Any, ...] = ()

    @property
    def key(self) -> str:
        """A file name that is readable and belongs to this kernel alone."""
        text = f"{self.maker.__module__}.{self.maker.__qualname__}{self.arguments!r}"
        words = " ".join([self.maker.__name__, *map(str, self.arguments)])
        readable = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")[:80]
        return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Kernels:
    """The kernels of a folder, and a way to compile missing kernels.

    Parameters
    ----------
    folder : Path, optional
        A temporary one by default. Kernels of other versions of this package are discarded.
    workers : int, optional
        Compiling processes; all CPUs by default.
    """

    def __init__(self, folder: Path | None = None, workers: int | None = None) -> None:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="warploom-kernels-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.folder = folder
        self.workers = workers or len(os.sched_getaffinity(0))
        self._index = self._read()

    def compile(self, wanted: Iterable[Kernel]) -> int:
        """Compile the missing kernels, and wait for all of them; return how many failed."""
        missing = {kernel.key: kernel for kernel in wanted if kernel.key not in self._index}
        if not missing:
            return 0
        if not _has_compiler():
            raise WarploomError(
                f"{self.folder} lacks {len(missing)} kernels, the first of them "
                f"{next(iter(missing))}, and there is no compiler here: TVM is not installed. "
                "Compile them with --compile-only elsewhere, from the same sources."
            )
        from warploom.meta_schedule.processes import Pool

        self.folder.mkdir(parents=True, exist_ok=True)
        start = said = time.perf_counter()
        # Each process compiles one kernel at a time: threads of LLVM and OpenMP would compete.
        alone = {"OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}
        pool = Pool([alone] * min(self.workers, len(missing)))
        try:
            futures = {
                key: pool.submit(
                    build, kernel.maker, kernel.arguments, str(self._path(key)), timeout=_TIMEOUT
                )
                for key, kernel in missing.items()
            }
            for number, (key, future) in enumerate(futures.items()):
                self._index[key] = _outcome(future)
                if time.perf_counter() - said > _SAY_SECONDS:
                    said = time.perf_counter()
                    self._write()  # a run that is cut off keeps its kernels
                    print(f"{number + 1} of {len(futures)} kernels are compiled", flush=True)
        finally:
            pool.close()
            self._write()
        failed = sum(isinstance(self._index[key], str) for key in missing)
        print(f"{len(missing)} kernels compiled in {time.perf_counter() - start:.1f} s"
              + f", {failed} of them failed" * (failed > 0), flush=True)  # fmt: skip
        return failed

    def module(self, wanted: Kernel) -> Any | None:
        """The module of a kernel, compiled if need be; None if its maker has nothing.

        Raises
        ------
        WarploomError
            If it could not be compiled.
        """
        self.compile([wanted])
        path = self._index[wanted.key]
        if isinstance(path, str):
            raise WarploomError(f"{wanted.key} was not compiled: {path}")
        if not path:
            return None
        import tvm_ffi  # loads the library that those of TVM need

        load_runtime(self.folder)
        return tvm_ffi.load_module(str(self._path(wanted.key)))

    def function(self, wanted: Kernel) -> Callable[..., Any] | None:
        """Its function ``main``, looked up once, as a program that calls it often would."""
        module = self.module(wanted)
        return None if module is None else module["main"]

    def add_runtime(self) -> None:
        """Copy TVM's runtime libraries into the folder, for a machine without TVM."""
        import tvm

        source = Path(tvm.__file__).parent / "lib"
        for name in RUNTIME:
            shutil.copy2(source / name, self.folder / name)

    def _path(self, key: str) -> Path:
        return self.folder.resolve() / f"{key}.so"

    def _read(self) -> dict[str, Any]:
        """By key: whether there is a library, or why its compilation failed."""
        try:
            content = json.loads((self.folder / _INDEX).read_text())
        except FileNotFoundError:
            return {}
        if content["sources"] != sources():
            if not _has_compiler():
                raise WarploomError(
                    f"The kernels in {self.folder} were compiled by other sources of warploom; "
                    "compile them with --compile-only from the sources that measure them."
                )
            return {}
        # A failed kernel is tried again where that is possible: the reason may have been the
        # machine.
        kept = content["kernels"].items()
        return {k: v for k, v in kept if not isinstance(v, str) or not _has_compiler()}

    def _write(self) -> None:
        content = {"sources": sources(), "kernels": self._index}
        (self.folder / _INDEX).write_text(json.dumps(content, indent=1) + "\n")


def build(maker: Callable[..., Any], arguments: tuple[Any, ...], path: str) -> bool:
    """In a worker: compile to a path; whether there is anything."""
    made = maker(*arguments)
    if made is None:
        return False
    made.export_library(path)
    return True


def _outcome(future: Future[bool]) -> bool | str:
    try:
        return future.result()
    except WarploomError as error:
        return str(error)


@functools.cache
def sources() -> str:
    """A hash of all that decides the code of kernels: the package warploom."""
    root, digest = Path(warploom.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if path.suffix in (".py", ".json", ".gz", ".h") and inside.parts[0] not in _NO_PART:
            digest.update(inside.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@functools.cache
def _has_compiler() -> bool:
    if importlib.util.find_spec("tvm") is None:
        return False
    import tvm

    return not tvm._RUNTIME_ONLY


@functools.cache
def load_runtime(folder: Path) -> None:
    """TVM's runtime in this process: of TVM if it is installed, or the libraries in ``folder``.

    Raises
    ------
    WarploomError
        If there is neither.
    """
    if importlib.util.find_spec("tvm") is not None:
        from warploom import plugin

        driver = plugin.register()
        if driver is not None and driver.kind == "no-device":
            raise WarploomError("There is no GPU here; --compile-only compiles without one.")
        return
    try:
        for name in RUNTIME:
            ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise WarploomError(
            f"TVM is not installed, and its runtime does not load from {folder}: {error}. "
            "--compile-only puts it there."
        ) from error
