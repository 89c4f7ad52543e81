"""General registers in the operands of an instruction, as nvdisasm prints them.

Every operand has one of these forms (50 cubins of both architectures, CUDA 13.5); those without a
general register are uniform or predicate registers, constants, or names::

    R12  -R12  |R12|  ~R12  R12.reuse  R12.H0_H0  R12.64        general registers
    [R2]  [R2+0x10]  [R2.64+UR4]  [R2+URZ+-0x8]  [R2.X4]         addresses
    desc[UR4][R2.64]  c[0x0][R2]  gdesc[UR8].tnspA  tmem[UR4]    descriptors, banks
    RZ  UR4  URZ  P0  !PT  UP0  UPT  B1  SB0  SR_TID.X  0x10  `(.L_1)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_REGISTER = re.compile(r"(?<![\w.`$])R(\d+)((?:\.\w+)*)")
#: Registers of a data operand by the suffix that says how wide it is.
_WIDTHS = {"64": 2, "128": 4}
_WIDE_POSITIONS = (0, 3)


@dataclass(frozen=True)
class Operand:
    """An operand.

    Attributes
    ----------
    registers : frozenset of int
        General registers that it names; empty for RZ and all that is no general register.
    address : bool
        Whether it is an address or a descriptor, so that its registers are only read.
    """

    registers: frozenset[int]
    address: bool


def operands(opcode: str, text: str) -> list[Operand]:
    """The operands of an instruction, in order.

    Parameters
    ----------
    opcode : str
        With its suffixes, such as ``"STS.128"``.
    text : str
        The operands as they are printed, separated by commas.
    """
    parts = [part.strip() for part in _split(text)]
    return [_operand(opcode, number, part) for number, part in enumerate(parts)]


def _split(text: str) -> list[str]:
    """The text at commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _operand(opcode: str, number: int, text: str) -> Operand:
    address = "[" in text
    registers: set[int] = set()
    if "`" not in text:  # a name, which may look like anything
        for register in _REGISTER.finditer(text):
            suffixes = register[2].split(".")
            count = 2 if "64" in suffixes else 1 if address else _width(opcode, number)
            registers |= set(range(int(register[1]), int(register[1]) + count))
    return Operand(frozenset(registers), address)


def _width(opcode: str, number: int) -> int:
    """Registers that a data operand of an instruction has."""
    base, *suffixes = opcode.split(".")
    if base in ("STSM", "LDSM"):
        return int(suffixes[-1]) if suffixes and suffixes[-1].isdigit() else 1
    if base.startswith(("LD", "ST")):
        return max((_WIDTHS.get(suffix, 1) for suffix in suffixes), default=1)
    return 2 if "WIDE" in suffixes and number in _WIDE_POSITIONS else 1
