"""The contents of a compile report, and its plain text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from warploom.compiler.kernel_report import KernelReport, Problem

#: Prefixes of the opcodes that tell how a tensor-core kernel moves and computes; local memory
#: (LDL, STL) is here because it should be absent.
NOTABLE = (
    "HGMMA", "QGMMA", "IGMMA", "HMMA", "WARPGROUP", "UTMA", "UBLKCP", "SYNCS", "STSM", "LDSM",
    "LDGSTS", "USETMAXREG", "UTC", "LDTM", "STTM", "LDL", "STL",
)  # fmt: skip

_UNKNOWN = "?"


@dataclass(frozen=True)
class Stage:
    """A step of the compilation and its wall-clock seconds.

    ``cached`` means that the result came from the cache; ``seconds`` is then the time that the step
    took when it really ran.
    """

    name: str
    seconds: float
    cached: bool = False


@dataclass(frozen=True)
class CompileReport:
    """Everything known about the kernels of a module.

    Attributes
    ----------
    arch : str
        Such as ``"sm_90a"``.
    stages : tuple of Stage
        In order; without the TVM stages if a compiled module was given.
    kernels : tuple of KernelReport
    problems : tuple of Problem
        The problems to repair; empty for a good module.
    """

    arch: str
    stages: tuple[Stage, ...]
    kernels: tuple[KernelReport, ...]
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return render(self)

    def to_dict(self) -> dict[str, Any]:
        """The report, as JSON can hold it."""
        found = dataclasses.asdict(self)
        for one, problem in zip(found["problems"], self.problems, strict=True):
            one["kind"] = problem.kind.value
        for one, kernel in zip(found["kernels"], self.kernels, strict=True):
            one["hazards"] = [str(hazard) for hazard in kernel.hazards]
        return found

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def render(report: CompileReport) -> str:
    """Stages on one line, a table of kernels, their notable instructions, then the problems."""
    parts = [
        f"{stage.name} {stage.seconds:.2f} s{' (cached)' if stage.cached else ''}"
        for stage in report.stages
    ]
    lines = [f"{report.arch}: {', '.join(parts)}" if parts else report.arch]
    header = ("kernel", "registers", "shared", "dynamic", "local", "spills st/ld", "barriers",
              "threads", "instructions")  # fmt: skip
    rows = [header, *(_row(kernel) for kernel in report.kernels)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join((first, *rest)))
    lines += _instructions(report)
    lines.append("problems:" if report.problems else "problems: none found")
    lines += [f"  {problem}" for problem in report.problems]
    return "\n".join(lines)


def _row(kernel: KernelReport) -> tuple[str, ...]:
    info = kernel.info
    spills = (kernel.spill_store_bytes, kernel.spill_load_bytes)
    return (
        kernel.name,
        str(info.registers),
        f"{info.shared_bytes} B",
        f"{_number(kernel.dynamic_shared_bytes)} B",
        f"{info.stack_bytes} B",
        "/".join(map(_number, spills)) + " B",
        str(info.barriers),
        str(info.max_threads or "any"),
        str(info.instructions),
    )


def _number(value: int | None) -> str:
    return _UNKNOWN if value is None else str(value)


def _instructions(report: CompileReport) -> Iterator[str]:
    for kernel in report.kernels:
        if kernel.sass is None:
            yield f"{kernel.name}: no instruction counts, because nvdisasm was not found"
            continue
        notable = {op: n for op, n in sorted(kernel.sass.items()) if op.startswith(NOTABLE)}
        if notable:
            yield f"{kernel.name}: " + ", ".join(f"{op} {n}" for op, n in notable.items())
