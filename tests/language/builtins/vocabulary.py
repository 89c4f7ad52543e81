"""Compiles kernels with builtins once for each architecture, runs them, and shows their PTX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.tirx import PrimFunc

from tests.shared import blackwell
from warploom import emulator
from warploom.compiler.callback import compile_cached, observe_compilations
from warploom.compiler.invoke import current_request
from warploom.lower.lowerings import lower
from warploom.target import cuda_target

ARCHS = ("sm_90a", "sm_100a")
#: What no kernel of these tests writes.
POISON = 0x7B


@dataclass(frozen=True)
class Compiled:
    """A kernel for one architecture.

    Attributes
    ----------
    arch : str
    executable : tvm.runtime.Executable
    ptx : str
        Its PTX, without comments.
    """

    arch: str
    executable: tvm.runtime.Executable
    ptx: str

    def has(self, *instructions: str) -> bool:
        """Whether the PTX has them all; says which one is missing."""
        missing = [one for one in instructions if one not in self.ptx]
        assert not missing, f"{self.arch}: the PTX has no {', '.join(missing)}\n{self.ptx}"
        return True

    def run(self, *arguments: np.ndarray | int) -> list[np.ndarray]:
        """The arrays after the kernel has run, on the emulator with all its checks, or the GPU."""
        if emulator.is_enabled():
            return list(emulator.run(self.executable, list(arguments), arch=self.arch).outputs)
        device = tvm.cuda(0) if self.arch == "sm_90a" else blackwell.device()
        arrays = [isinstance(one, np.ndarray) for one in arguments]
        values = [
            tvm.runtime.tensor(one, device) if is_array else one
            for one, is_array in zip(arguments, arrays, strict=True)
        ]
        self.executable["main"](*values)
        return [one.numpy() for one, is_array in zip(values, arrays, strict=True) if is_array]


@functools.cache
def compiled(make: Callable[..., PrimFunc], arch: str, *args: Any) -> Compiled:
    """The kernel ``make(*args)``; compiled once, whoever asks."""
    module = tvm.IRModule({"main": make(*args)})
    target = cuda_target(arch)
    with observe_compilations() as observed:
        executable = tvm.compile(module, target, tir_pipeline="warploom")
    ptx = [one.output.binary for one in observed if one.request.format == "ptx"]
    if not ptx:
        source = str(executable.mod.imports[0].inspect_source())
        with target:
            ptx = [compile_cached(current_request(source, "ptx")).output.binary]
    lines = [line.split("//")[0] for line in ptx[0].decode().splitlines()]
    return Compiled(arch, executable, "\n".join(lines))


def poisoned(shape: int | tuple[int, ...], dtype: str) -> np.ndarray:
    """An array that is filled with what no kernel writes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.full(size, POISON, np.uint8).view(dtype).reshape(shape)


def report_of(func: PrimFunc, *arrays: np.ndarray, arch: str = "sm_90a") -> str:
    """What the checker says of a kernel that lacks something."""
    kernel = lower(func, arch).with_attr("global_symbol", "main")
    with pytest.raises(emulator.EmulatorError) as error:
        emulator.run(kernel, list(arrays), arch=arch)
    return str(error.value)
