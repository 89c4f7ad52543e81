"""Machine code that touches the registers of a ``wgmma`` MMA while it is under way.

The hardware does not check: such an instruction sees old values, or changes an operand that is
still being read. ``wgmma.wait_group`` names no register, and ptxas 13.0 was seen to move a
conversion before it (two ``cvt.rn.f16.f32`` that it had fused to one F2FP), though the PTX was
right. No emulator of PTX can find that; this does.

Sources: PTX ISA, "Asynchronous warpgroup level matrix async operations"; the SASS was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from warploom.compiler.sass_operands import Operand, operands

#: Beginning of a kernel in a listing.
SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+)")
_LABEL = re.compile(r"^(\.\w+):")
_LINE = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+\{?\s*(@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)\s*([^;]*)")
_SHAPE = re.compile(r"^[HQIB]GMMA\.(?:SP\.)?64x(\d+)x\d+")
#: Groups that may be left under way, in the last operand of a wait.
_COUNT = re.compile(r"(0x[0-9a-f]+|\d+)$")
_TARGET = re.compile(r"\((\.\w+)\)")

#: Instructions after which the next line is not reached.
_LEAVES = ("EXIT", "RET", "BRX", "JMX", "KILL")
#: Different histories of a block that are told apart; more do not occur in kernels.
_MOST_STATES = 64
#: Registers of operand A, where it is in registers: 64 rows of 32 bytes among 128 threads.
_A_REGISTERS = 4


@dataclass(frozen=True)
class Hazard:
    """An instruction that comes too early.

    Attributes
    ----------
    kernel : str
    address : int
        Of the instruction, in the kernel.
    text : str
        The instruction.
    mma : int
        Address of the MMA that it does not wait for.
    """

    kernel: str
    address: int
    text: str
    mma: int

    def __str__(self) -> str:
        return (
            f"{self.text} at 0x{self.address:x} uses registers of the MMA at "
            f"0x{self.mma:x}, which may be under way"
        )


@dataclass(frozen=True)
class _Mma:
    """Registers of an MMA that is under way."""

    address: int
    results: frozenset[int]
    operands: frozenset[int]


#: Committed groups of MMAs, the oldest first, and those that no group has yet.
_State = tuple[tuple[frozenset[_Mma], ...], frozenset[_Mma]]


@dataclass(frozen=True)
class _Instruction:
    address: int
    predicated: bool
    opcode: str
    operands: str

    @property
    def text(self) -> str:
        return f"{self.opcode} {self.operands}".strip()


@dataclass
class _Block:
    """Instructions that are executed one after the other."""

    instructions: list[_Instruction] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    falls_through: bool = True


def early_accesses(sass: str) -> list[Hazard]:
    """All instructions of a listing that touch an MMA's registers before its wait.

    Parameters
    ----------
    sass : str
        Text of :func:`warploom.compiler.sass.listing`.
    """
    return [hazard for name, lines in _kernels(sass) for hazard in _check(name, lines)]


def _kernels(sass: str) -> Iterator[tuple[str, list[str]]]:
    name, lines = None, []
    for line in sass.splitlines():
        if section := SECTION.match(line):
            if name is not None:
                yield name, lines
            name, lines = section[1], []
        elif name is not None:
            lines.append(line)
    if name is not None:
        yield name, lines


def _check(name: str, lines: list[str]) -> list[Hazard]:
    blocks, labels = _blocks(lines)
    hazards: dict[int, Hazard] = {}
    seen: dict[int, set[_State]] = {}
    work: list[tuple[int, _State]] = [(0, ((), frozenset()))] if blocks else []
    while work:
        index, state = work.pop()
        known = seen.setdefault(index, set())
        if state in known or len(known) >= _MOST_STATES:
            continue
        known.add(state)
        block = blocks[index]
        for instruction in block.instructions:
            for mma in _touched(instruction, state):
                hazards.setdefault(
                    instruction.address,
                    Hazard(name, instruction.address, instruction.text, mma.address),
                )
            state = _after(instruction, state)
        following = [labels[target] for target in block.targets if target in labels]
        if block.falls_through and index + 1 < len(blocks):
            following.append(index + 1)
        work += [(next_index, state) for next_index in following]
    return [hazards[address] for address in sorted(hazards)]


def _blocks(lines: list[str]) -> tuple[list[_Block], dict[str, int]]:
    blocks, labels = [_Block()], {}
    for line in lines:
        if label := _LABEL.match(line):
            if blocks[-1].instructions:
                blocks.append(_Block())
            labels[label[1]] = len(blocks) - 1
            continue
        match = _LINE.match(line)
        if not match:
            continue
        address, predicate, opcode, rest = match.groups()
        instruction = _Instruction(int(address, 16), predicate is not None, opcode, rest.strip())
        blocks[-1].instructions.append(instruction)
        base = opcode.split(".")[0]
        leaves = base in _LEAVES
        if base in ("BRA", "BSSY") or leaves:
            jump = _TARGET.search(rest)
            if jump and base == "BRA":
                blocks[-1].targets.append(jump[1])
            if base != "BSSY":
                blocks[-1].falls_through = instruction.predicated or not (leaves or base == "BRA")
                blocks.append(_Block())
    return blocks, labels


def _after(instruction: _Instruction, state: _State) -> _State:
    groups, open_group = state
    if _SHAPE.match(instruction.opcode):
        open_group = open_group | {_mma(instruction)}
        return ((*groups, open_group), frozenset()) if "gsb0" in instruction.operands else (
            groups, open_group
        )  # fmt: skip
    if instruction.opcode.startswith("WARPGROUP.DEPBAR"):
        left = int(_COUNT.search(instruction.operands)[0], 0)
        return (groups[-left:] if left else ()), open_group
    return state


def _mma(instruction: _Instruction) -> _Mma:
    width = int(_SHAPE.match(instruction.opcode)[1])
    # 64 x N results are shared by 128 threads; two of 16 bits are in a register.
    count = (
        width // 2
        if ".F32" in instruction.opcode or instruction.opcode.startswith(("I", "B"))
        else width // 4
    )
    result, a = operands(instruction.opcode, instruction.operands)[:2]
    # The listing names the first register of each; results that no instruction reads are RZ.
    return _Mma(instruction.address, _from(result, count), _from(a, _A_REGISTERS))


def _from(operand: Operand, count: int) -> frozenset[int]:
    """So many registers from that which an operand names; none for RZ or a descriptor."""
    if operand.address or not operand.registers:
        return frozenset()
    first = min(operand.registers)
    return frozenset(range(first, first + count))


def _touched(instruction: _Instruction, state: _State) -> list[_Mma]:
    if _SHAPE.match(instruction.opcode) or instruction.opcode.startswith("WARPGROUP"):
        return []
    mmas = [mma for group in (*state[0], state[1]) for mma in group]
    if not mmas:
        return []
    accessed, written = _registers(instruction)
    return [
        mma for mma in mmas if accessed & mma.results or written & mma.operands
    ]


def _registers(instruction: _Instruction) -> tuple[set[int], set[int]]:
    """Registers that an instruction reads or writes, and those that it writes."""
    accessed: set[int] = set()
    written: set[int] = set()
    stores = instruction.opcode.startswith(("ST", "RED", "BRA", "BAR", "SYNCS", "UTMA"))
    for number, operand in enumerate(operands(instruction.opcode, instruction.operands)):
        accessed |= operand.registers
        if number == 0 and not stores and not operand.address:
            written |= operand.registers
    return accessed, written
