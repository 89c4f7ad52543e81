"""Python warnings of ptxas's report about a kernel: spills, and MMAs or registers it changed.

They are read from the compiler's log, which the cache of cubins keeps beside each binary, so that
a cached kernel gives the same warnings as a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warploom.compiler.kernel_report import Problem, ProblemKind, advice_problem, spill
from warploom.compiler.ptxas_log import PtxasLog, parse
from warploom.errors import MachineCodeWarning
from warploom.warn import author_of, warn

#: The fix, where the problem does not tell it.
_FIXES = {
    ProblemKind.WGMMA_SERIALISED: "Between a wgmma and its wait, do not touch accumulators or "
    "operands in registers, and index them by constants only (unroll loops over them).",
    ProblemKind.SETMAXNREG_IGNORED: "Give the kernel launch bounds, and each role the registers "
    "that it needs.",
}


def warn_of_code(log: str) -> None:
    """Issue a warning for each problem in the compiler's log, at the line of the kernel's author.

    Spills count for kernels of tile programs and others that went through warploom's pipeline:
    those of TVM's own schedules are TVM's choice.
    """
    for problem, span in _problems(parse(log)):
        text = f"Kernel {problem.kernel or 'of this module'}: {problem.kind.value}: {problem.text}"
        fix = _FIXES.get(problem.kind)
        warn(f"{text.rstrip('.')}. {fix}" if fix else text, MachineCodeWarning, span)


def _problems(log: PtxasLog) -> Iterator[tuple[Problem, Any]]:
    for advice in log.advice:
        if problem := advice_problem(advice):
            yield problem, author_of(problem.kernel or "")[1]
    for kernel in log.kernels:
        ours, span = author_of(kernel.name)
        if ours and kernel.spill_store_bytes + kernel.spill_load_bytes:
            yield spill(
                kernel.name, kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.registers
            ), span
