"""Reads the output of ``ptxas -v``: resources of each kernel and the advice that costs speed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields

#: ptxas of CUDA 13.0 indents the line with the stack frame, that of 13.5 gives it its name.
_OF_PTXAS = re.compile(r"ptxas|\s+\d+ bytes stack frame")
_COMPILING = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_ADVICE = re.compile(r"\((C\d{4})\)\s*(.*)")
_IN_FUNCTION = re.compile(r"function '([^']+)'")

#: Field of :class:`KernelResources` -> the text around its number in the log.
_NUMBERS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "barriers": re.compile(r"used (\d+) barriers"),
    "shared_bytes": re.compile(r"(\d+) bytes smem"),
    "frame_bytes": re.compile(r"(\d+) bytes stack frame"),
    "stack_bytes": re.compile(r"(\d+) bytes cumulative stack size"),
    "spill_store_bytes": re.compile(r"(\d+) bytes spill stores"),
    "spill_load_bytes": re.compile(r"(\d+) bytes spill loads"),
}


@dataclass(frozen=True)
class KernelResources:
    """The report of ptxas about one kernel; sizes in bytes a thread, shared memory a CTA.

    ``shared_bytes`` is static shared memory. ``stack_bytes`` and ``barriers`` are 0 where ptxas
    does not mention them.
    """

    name: str
    registers: int = 0
    barriers: int = 0
    shared_bytes: int = 0
    frame_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0


assert set(_NUMBERS) == {field.name for field in fields(KernelResources)} - {"name"}


@dataclass(frozen=True)
class Advice:
    """A remark with a number, such as C7510: wgmma serialised.

    ``function`` is the kernel or device function that the text names, or None.
    """

    code: str
    function: str | None
    text: str


@dataclass(frozen=True)
class PtxasLog:
    """Kernels in the order of the log, and distinct advice once."""

    kernels: tuple[KernelResources, ...]
    advice: tuple[Advice, ...]


def parse(log: str) -> PtxasLog:
    """Parse the log of NVRTC or nvcc; lines of the C++ front end are ignored."""
    lines = [line for line in log.splitlines() if _OF_PTXAS.match(line)]
    advice = {
        Advice(match[1], name[1] if (name := _IN_FUNCTION.search(line)) else None, match[2].strip())
        for line in lines
        if (match := _ADVICE.search(line))
    }
    return PtxasLog(
        kernels=tuple(_kernels(lines)),
        advice=tuple(sorted(advice, key=lambda item: (item.code, item.text))),
    )


def _kernels(lines: list[str]) -> Iterator[KernelResources]:
    name, numbers, inside = None, {}, False
    for line in lines:
        if entry := _COMPILING.search(line):
            if name is not None:
                yield KernelResources(name, **numbers)
            name, numbers, inside = entry[1], {}, True
        elif properties := _PROPERTIES.search(line):
            # A device function that was not inlined has properties too, but is no kernel.
            inside = properties[1] == name
        elif inside:
            matches = {field: rule.search(line) for field, rule in _NUMBERS.items()}
            numbers |= {field: int(match[1]) for field, match in matches.items() if match}
    if name is not None:
        yield KernelResources(name, **numbers)
