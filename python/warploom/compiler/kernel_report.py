"""The report about one kernel: resources, instructions, and problems to repair."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from warploom.compiler.cubin import KernelInfo
from warploom.compiler.hazards import Hazard
from warploom.compiler.ptxas_log import Advice, KernelResources, PtxasLog
from warploom.compiler.sass import MachineCode


class ProblemKind(enum.Enum):
    """Why a kernel is slower than its source promises, or wrong."""

    SPILL = "spill"
    LOCAL_MEMORY = "local memory"
    WGMMA_SERIALISED = "wgmma serialised"
    SETMAXNREG_IGNORED = "setmaxnreg ignored"
    PERFORMANCE = "performance lost"
    EARLY_ACCESS = "result of wgmma used too early"


@dataclass(frozen=True)
class Problem:
    """Something to repair.

    Attributes
    ----------
    kernel : str or None
        None if the compiler does not say which kernel of the module it means.
    kind : ProblemKind
    text : str
        One sentence: the finding and the fix, or the compiler's own words.
    """

    kernel: str | None
    kind: ProblemKind
    text: str

    def __str__(self) -> str:
        return f"{self.kernel or 'module'}: {self.kind.value}: {self.text}"


#: Words of numbered advice of ptxas -> its cost. A wait or an arrive that ptxas puts in
#: stops the wgmma pipeline as well: an accumulator is touched too early, or a fence is missing.
_ADVICE_KINDS = {
    "'setmaxnreg' ignored": ProblemKind.SETMAXNREG_IGNORED,
    "instructions are serialized": ProblemKind.WGMMA_SERIALISED,
    "is injected": ProblemKind.WGMMA_SERIALISED,
    "Potential Performance Loss": ProblemKind.PERFORMANCE,
}


@dataclass(frozen=True)
class KernelReport:
    """Facts of one kernel from the binary, from the compiler's log and from TVM.

    Attributes
    ----------
    info : KernelInfo
        From the binary.
    dynamic_shared_bytes : int or None
        Dynamic shared memory of a CTA that TVM asks for at launch; None if it is not known (a
        module that was compiled elsewhere) or depends on the arguments.
    spill_store_bytes, spill_load_bytes : int or None
        From the log; None without one.
    sass : mapping of str to int, or None
        Occurrences of each opcode; None without nvdisasm.
    hazards : tuple of Hazard
        Accesses to registers of MMAs that may be under way; empty without nvdisasm.
    """

    info: KernelInfo
    dynamic_shared_bytes: int | None
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    sass: Mapping[str, int] | None
    hazards: tuple[Hazard, ...] = ()

    @property
    def name(self) -> str:
        """The kernel's symbol."""
        return self.info.name

    def problems(self) -> tuple[Problem, ...]:
        """Return the problems that this kernel's own numbers and instructions show."""
        early = tuple(
            Problem(
                self.name, ProblemKind.EARLY_ACCESS,
                f"{hazard}; the compiler has moved it before the wait, so that results are wrong: "
                "write conversions to 16 bits in pairs.",
            )
            for hazard in self.hazards[:1]
        )  # fmt: skip
        return (*early, *self._slow())

    def _slow(self) -> tuple[Problem, ...]:
        spilled = (self.spill_store_bytes or 0) + (self.spill_load_bytes or 0)
        if spilled:
            return (spill(self.name, self.spill_store_bytes, self.spill_load_bytes,
                          self.info.registers),)  # fmt: skip
        if self.info.stack_bytes:
            text = (
                f"{self.info.stack_bytes} bytes a thread; index arrays in registers by constants "
                "(unroll the loop), and do not take their address."
            )
            return (Problem(self.name, ProblemKind.LOCAL_MEMORY, text),)
        return ()


def spill(kernel: str, stored: int | None, loaded: int | None, registers: int) -> Problem:
    """The problem that a kernel keeps registers in local memory; bytes of a thread."""
    text = (
        f"{stored} bytes stored and {loaded} bytes loaded a thread at {registers} registers; use "
        "smaller tiles, more warpgroups, or a larger register limit."
    )
    return Problem(kernel, ProblemKind.SPILL, text)


def report_kernel(
    info: KernelInfo,
    log: PtxasLog | None,
    code: MachineCode | None,
    dynamic_shared: Mapping[str, int | None],
) -> KernelReport:
    """Put together the facts of all sources about the kernel of ``info``."""
    logged: dict[str, KernelResources] = {k.name: k for k in log.kernels} if log else {}
    resources = logged.get(info.name)
    return KernelReport(
        info=info,
        dynamic_shared_bytes=dynamic_shared.get(info.name),
        spill_store_bytes=resources.spill_store_bytes if resources else None,
        spill_load_bytes=resources.spill_load_bytes if resources else None,
        sass=code.counts.get(info.name, {}) if code is not None else None,
        hazards=tuple(h for h in code.hazards if h.kernel == info.name) if code else (),
    )


def advice_problem(advice: Advice) -> Problem | None:
    """The problem that advice of ptxas reports; None if it costs nothing."""
    for words, kind in _ADVICE_KINDS.items():
        if words in advice.text:
            return Problem(advice.function, kind, f"{advice.text} ({advice.code})")
    return None
