"""Plants a bug in the CUDA source of a correct kernel, executes it, and collects what is reported.

A program is lowered by TVM once. A mutant of it is its generated source with a few lines changed,
which only the CUDA compiler sees again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
import tvm_ffi
from tvm.ir import IRModule
from tvm.tirx import PrimFunc
from tvm.tirx.build import split_host_device_mods, tir_to_runtime

from warploom import emulator
from warploom.emulator import settings
from warploom.emulator.settings import Settings

#: The first line of a kernel, unlike that of a declaration.
_KERNEL = re.compile(r'^extern "C" __global__ [^;\n]*\{$', re.MULTILINE)
#: What TVM calls with the source it has generated.
_POSTPROC = "tvm_callback_cuda_postproc"


@dataclass(frozen=True)
class Edit:
    """A change of one line of the kernel, the last one of the source.

    Attributes
    ----------
    line : str
        Part of the line that changes.
    old, new : str
        What is replaced in it; an empty ``old`` stands for the whole line, and ``@`` in ``new``
        for the line as it was.
    which, of : int
        The kernel has ``of`` lines with that part; the one with number ``which`` changes.
    """

    line: str
    old: str
    new: str
    which: int = 0
    of: int = 1

    def apply(self, source: str) -> str:
        """The source with this change; an assertion fails unless there are ``of`` such lines."""
        starts = [found.start() for found in _KERNEL.finditer(source)]
        start, end = [*starts, len(source)][-2:]
        head, tail, lines = source[:start], source[end:], source[start:end].split("\n")
        found = [i for i, line in enumerate(lines) if self.line in line]
        assert len(found) == self.of, f"{len(found)} lines have {self.line!r}, expected {self.of}"
        line = lines[found[self.which]]
        assert self.old in line, f"{self.old!r} is not in {line!r}"
        new = self.new.replace("@", line)
        lines[found[self.which]] = line.replace(self.old, new, 1) if self.old else new
        return head + "\n".join(lines) + tail


def drop(line: str, which: int = 0, of: int = 1) -> Edit:
    """Remove a line."""
    return Edit(line, "", "", which, of)


def replace(line: str, old: str, new: str, which: int = 0, of: int = 1) -> Edit:
    """Replace the first ``old`` of a line."""
    return Edit(line, old, new, which, of)


def instead(line: str, new: str, which: int = 0, of: int = 1) -> Edit:
    """Replace a line."""
    return Edit(line, "", new, which, of)


def repeat(line: str, which: int = 0, of: int = 1) -> Edit:
    """Execute the statement of a line twice."""
    return Edit(line, "", "for (int twice = 0; twice < 2; ++twice) @", which, of)


def asm(instruction: str) -> str:
    """A statement with a PTX instruction that has no operands."""
    return f'asm volatile("{instruction};" ::: "memory");'


@dataclass(frozen=True)
class Lowered:
    """A program for which only machine code is missing."""

    host: IRModule
    devices: dict[tvm.target.Target, IRModule]
    host_target: tvm.target.Target

    @classmethod
    def of(cls, function: PrimFunc, target: tvm.target.Target) -> Lowered:
        """Lower as ``tvm.compile`` does."""
        host_target = tvm.target.Target("llvm" if tvm.runtime.enabled("llvm") else "c")
        bound = tvm.tirx.transform.BindTarget(target.with_host(host_target))
        pipeline, host_passes, device_passes = tvm.tirx.get_tir_pipeline("tirx")
        with target:
            module = pipeline(bound(IRModule({"main": function})))
            host, devices = split_host_device_mods(module)
            finished = {key: device_passes()(device) for key, device in devices.items()}
            return cls(host_passes()(host), finished, host_target)

    def build(self, edits: Sequence[Edit] = ()) -> tvm.runtime.Module:
        """The program with the edits applied, in order."""

        def edited(code: str, _target: tvm.target.Target) -> str:
            source = str(code)
            for edit in edits:
                source = edit.apply(source)
            return source

        tvm_ffi.register_global_func(_POSTPROC, edited)
        try:
            return tir_to_runtime(self.host, self.devices, self.host_target)
        finally:
            tvm_ffi.registry.remove_global_func(_POSTPROC)


@dataclass(frozen=True)
class Outcome:
    """What one launch ended with.

    Attributes
    ----------
    error : str
        Of the launch, empty if it succeeded.
    reports : tuple of (str, str)
        Kind and text of what the checker found.
    """

    error: str
    reports: tuple[tuple[str, str], ...]

    def shows(self, kind: str, words: Sequence[str]) -> bool:
        """Whether there is a report of this kind with all these words."""
        texts = [text for found, text in (*self.reports, ("error", self.error)) if found == kind]
        return any(all(word in text for word in words) for text in texts)

    def __str__(self) -> str:
        reports = "\n".join(f"[{kind}] {text}" for kind, text in self.reports)
        return f"error: {self.error or 'none'}\n{reports or 'no reports'}"


#: A launch whose argument is the seed of its schedule.
Launch = Callable[[int], None]


def execute(launch: Launch, seed: int, schedule: str = "random") -> Outcome:
    """Launch with the checker on, under a schedule."""
    error = ""
    with settings.applied(Settings(checks=True, schedule=schedule, seed=seed)):
        try:
            launch(seed)
        except (AssertionError, RuntimeError) as failure:
            # A wrong result is an outcome, too. To a launch's error, TVM adds the module's source.
            error = str(failure).partition("// CUDA Source")[0]
    reports = tuple((report["kind"], report["text"]) for report in emulator.reports())
    return Outcome(error, reports)


def tensors(arrays: Sequence[np.ndarray], device: tvm.runtime.Device) -> list[tvm.runtime.Tensor]:
    """Copies of the arrays on a device."""
    return [tvm.runtime.tensor(array, device) for array in arrays]
