"""The compiled kernels of a program or factory: made once for each key, by whichever thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.errors import ArgumentError
from warploom.language.calls.parameters import Parameter, parameters_of
from warploom.runtime.modules import cuda_modules
from warploom.tile.kinds import pipeline_of

#: TVMScript and TVM's passes are not meant for several threads: one compiles at a time.
_compiling = threading.RLock()


class CacheInfo(NamedTuple):
    """What a kernel has done so far; the first names are those of ``functools.lru_cache``.

    Attributes
    ----------
    hits, misses : int
        Calls that found a program, and calls that had to make one.
    currsize : int
        Programs that are kept, by dtypes, static sizes and values, and targets.
    compilations : int
        Different programs among them that were compiled.
    """

    hits: int
    misses: int
    currsize: int
    compilations: int


@dataclass(frozen=True)
class Compiled:
    """A program that was compiled for a target."""

    program: PrimFunc
    target: Target
    executable: tvm.runtime.Executable
    function: Any
    parameters: tuple[Parameter, ...]

    def source(self, kind: str) -> str:
        """TVMScript (``"tile"``), CUDA or PTX of the kernel."""
        if kind == "tile":
            return str(self.program.script())
        modules = list(cuda_modules(self.executable.mod))
        cuda = [str(module.inspect_source("cuda")) for module in modules]
        if kind == "cuda":
            return "\n".join(cuda)
        texts = [str(module.inspect_source("ptx")) for module in modules]
        return "\n".join(
            text if text.startswith("//") else ptx_of(source, self.target)
            for text, source in zip(texts, cuda, strict=True)
        )


class KernelCache:
    """Compiled kernels by key; equal programs of several keys are compiled once.

    Parameters
    ----------
    name : str
        Of the kernel, for errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._kept: dict[Hashable, Compiled] = {}
        self._by_program: dict[Hashable, Compiled] = {}
        self._hits = self._misses = self._compilations = 0
        self._lock = threading.Lock()

    def hit(self) -> None:
        """Count a call whose kernel is known."""
        with self._lock:
            self._hits += 1

    def get(self, key: Hashable, make: Callable[[], PrimFunc], target: Target) -> Compiled:
        """The kernel of a key; ``make`` returns its program the first time."""
        found = self._kept.get(key)
        if found is None:
            with _compiling:
                found = self._kept.get(key)  # of a thread that was quicker
                if found is None:
                    with self._lock:
                        self._misses += 1
                    found = self._compile(make(), target)
                    with self._lock:
                        self._kept[key] = found
                    return found
        self.hit()
        return found

    def _compile(self, program: PrimFunc, target: Target) -> Compiled:
        key = (tvm_ffi.StructuralKey(program), str(target), pass_options())
        found = self._by_program.get(key)
        if found is not None:
            return found
        module = tvm.IRModule({"main": program})
        executable = tvm.compile(module, target, **pipeline_of(module))
        found = Compiled(program, target, executable, executable["main"], parameters_of(program))
        with self._lock:
            self._by_program[key] = found
            self._compilations += 1
        return found

    @property
    def is_empty(self) -> bool:
        return not self._by_program

    def only_one(self) -> Compiled:
        """The kernel, if there is one.

        Raises
        ------
        ArgumentError
            If there are none, or several.
        """
        with self._lock:
            found = list(self._by_program.values())
        if len(found) != 1:
            raise ArgumentError(
                f"{self._name} has {len(found)} compiled kernels; give the shapes and static "
                "values of one, as for compile."
            )
        return found[0]

    def info(self) -> CacheInfo:
        with self._lock:
            return CacheInfo(self._hits, self._misses, len(self._kept), self._compilations)

    def clear(self) -> None:
        """Forget all kernels and counts."""
        with self._lock:
            self._kept.clear()
            self._by_program.clear()
            self._hits = self._misses = self._compilations = 0


def typed(static: Mapping[str, Any]) -> tuple[tuple[str, type, Any], ...]:
    """Static values for a key, in which 1 is not True."""
    return tuple([(name, type(static[name]), static[name]) for name in sorted(static)])


def pass_options() -> tuple[Any, ...]:
    """The options of TVM's current PassContext, part of the key: hints may be among them."""
    context = tvm.transform.PassContext.current()
    config, level = context.config, context.opt_level
    if not config:
        return (level,)
    return (level, *sorted((str(name), str(value)) for name, value in config.items()))


def ptx_of(cuda: str, target: Target) -> str:
    """The PTX of CUDA source, for modules that hold machine code."""
    from tvm.support import nvcc

    with target:
        return bytes(nvcc.compile_cuda(cuda, "ptx")).decode()
