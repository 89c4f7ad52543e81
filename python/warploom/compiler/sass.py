"""Machine code of a cubin: its listing, and how often each instruction occurs."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warploom.compiler.hazards import SECTION, Hazard, early_accesses
from warploom.errors import ToolchainError
from warploom.runtime.toolchain import Tool, find_executable

_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+\{?\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")

#: Instructions whose first suffix is their operation and not their width.
_FAMILIES = frozenset({"WARPGROUP", "SYNCS", "FENCE", "UCGABAR_ARV", "BAR"})


@functools.cache
def disassembler() -> Tool | None:
    """``nvdisasm`` of the machine, or None."""
    return find_executable("nvdisasm")


def listing(cubin: bytes) -> str:
    """SASS of all kernels as ``nvdisasm -c`` prints it.

    Raises
    ------
    ToolchainError
        If nvdisasm is missing or rejects the file.
    """
    tool = disassembler()
    if tool is None:
        raise ToolchainError(
            "nvdisasm was not found; install the package nvidia-cuda-nvdisasm of the major "
            "version of your CUDA, or put a CUDA toolkit on PATH."
        )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "kernels.cubin")
        path.write_bytes(cubin)
        result = subprocess.run(
            [str(tool.path), "-c", str(path)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise ToolchainError(
            f"nvdisasm {tool.version} rejects the cubin: {lines[0] if lines else 'no message'}"
        )
    return result.stdout


@dataclass(frozen=True)
class MachineCode:
    """The instructions of a cubin's kernels, counted, and the hazards among them.

    Attributes
    ----------
    counts : dict
        Result of :func:`histogram`.
    hazards : tuple of Hazard
        Result of :func:`warploom.compiler.hazards.early_accesses`.
    """

    counts: dict[str, Mapping[str, int]]
    hazards: tuple[Hazard, ...]


def machine_code(cubin: bytes) -> MachineCode | None:
    """The instructions of a cubin; None without nvdisasm."""
    if disassembler() is None:
        return None
    text = listing(cubin)
    return MachineCode(histogram(text), tuple(early_accesses(text)))


def histogram(sass: str) -> dict[str, Mapping[str, int]]:
    """Kernel name -> opcode -> occurrences, from the text of :func:`listing`.

    Opcodes come without modifiers (``HGMMA``, ``UTMALDG``, ``LDL``), except where the first one
    tells instructions apart (``WARPGROUP.ARRIVE``). Padding ``NOP`` counts.
    """
    counts: dict[str, Counter[str]] = {}
    current: Counter[str] | None = None
    for line in sass.splitlines():
        if section := SECTION.match(line):
            current = counts.setdefault(section[1], Counter())
        elif current is not None and (instruction := _INSTRUCTION.match(line)):
            current[_opcode(instruction[1])] += 1
    return dict(counts)


def _opcode(mnemonic: str) -> str:
    base, *modifiers = mnemonic.split(".")
    return f"{base}.{modifiers[0]}" if base in _FAMILIES and modifiers else base
