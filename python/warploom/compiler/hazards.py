"""Machine code that touches the registers of a product of ``wgmma`` while it is under way.

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

#: Beginning of a kernel in a listing.
SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+)")
_LABEL = re.compile(r"^(\.\w+):")
_LINE = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+\{?\s*(@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)\s*([^;]*)")
_SHAPE = re.compile(r"^[HQIB]GMMA\.(?:SP\.)?64x(\d+)x\d+")
_REGISTER = re.compile(r"(?<![\w])R(\d+)\b")
_TARGET = re.compile(r"\((\.\w+)\)")

#: Instructions after which the next line is not reached.
_LEAVES = ("EXIT", "RET", "BRX", "JMX", "KILL")
#: Different histories of a block that are told apart; more do not occur in kernels.
_MOST_STATES = 64


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
    product : int
        Address of the product that it does not wait for.
    """

    kernel: str
    address: int
    text: str
    product: int

    def __str__(self) -> str:
        return (
            f"{self.text} at 0x{self.address:x} uses registers of the product at "
            f"0x{self.product:x}, which may be under way"
        )


@dataclass(frozen=True)
class _Product:
    """Registers of a product that is under way."""

    address: int
    results: frozenset[int]
    operands: frozenset[int]


#: Committed groups of products, the oldest first, and those that no group has yet.
_State = tuple[tuple[frozenset[_Product], ...], frozenset[_Product]]


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
    """All instructions of a listing that touch a product's registers before its wait.

    Parameters
    ----------
    sass : str
        Text of :func:`warploom.compiler.sass.listing`.
    """
    return [one for name, lines in _kernels(sass) for one in _check(name, lines)]


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
    found: dict[int, Hazard] = {}
    seen: dict[int, set[_State]] = {}
    work: list[tuple[int, _State]] = [(0, ((), frozenset()))] if blocks else []
    while work:
        index, state = work.pop()
        known = seen.setdefault(index, set())
        if state in known or len(known) >= _MOST_STATES:
            continue
        known.add(state)
        block = blocks[index]
        for one in block.instructions:
            for product in _touched(one, state):
                found.setdefault(one.address, Hazard(name, one.address, one.text, product.address))
            state = _after(one, state)
        following = [labels[target] for target in block.targets if target in labels]
        if block.falls_through and index + 1 < len(blocks):
            following.append(index + 1)
        work += [(next_index, state) for next_index in following]
    return [found[address] for address in sorted(found)]


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
        address, predicate, opcode, operands = match.groups()
        one = _Instruction(int(address, 16), predicate is not None, opcode, operands.strip())
        blocks[-1].instructions.append(one)
        base = opcode.split(".")[0]
        leaves = base in _LEAVES
        if base in ("BRA", "BSSY") or leaves:
            jump = _TARGET.search(operands)
            if jump and base == "BRA":
                blocks[-1].targets.append(jump[1])
            if base != "BSSY":
                blocks[-1].falls_through = one.predicated or not (leaves or base == "BRA")
                blocks.append(_Block())
    return blocks, labels


def _after(one: _Instruction, state: _State) -> _State:
    groups, open_group = state
    if _SHAPE.match(one.opcode):
        open_group = open_group | {_product(one)}
        return ((*groups, open_group), frozenset()) if "gsb0" in one.operands else (
            groups, open_group
        )  # fmt: skip
    if one.opcode.startswith("WARPGROUP.DEPBAR"):
        left = int(one.operands.split(",")[-1], 0)
        return (groups[len(groups) - left :] if left else ()), open_group
    return state


def _product(one: _Instruction) -> _Product:
    width = int(_SHAPE.match(one.opcode)[1])
    # 64 x N results are shared by 128 threads; two of 16 bits are in a register.
    count = width // 2 if ".F32" in one.opcode or one.opcode.startswith(("I", "B")) else width // 4
    parts = [part.strip() for part in one.operands.split(",")]
    first = int(parts[0].removeprefix("R").split(".")[0])
    a = _REGISTER.match(parts[1])
    operands = range(int(a[1]), int(a[1]) + 4) if a else ()
    return _Product(one.address, frozenset(range(first, first + count)), frozenset(operands))


def _touched(one: _Instruction, state: _State) -> list[_Product]:
    if _SHAPE.match(one.opcode) or one.opcode.startswith("WARPGROUP"):
        return []
    products = [product for group in (*state[0], state[1]) for product in group]
    if not products:
        return []
    accessed, written = _registers(one)
    return [
        product
        for product in products
        if accessed & product.results or written & product.operands
    ]


def _registers(one: _Instruction) -> tuple[set[int], set[int]]:
    """Registers that an instruction reads or writes, and those that it writes."""
    accessed: set[int] = set()
    written: set[int] = set()
    stores = one.opcode.startswith(("ST", "RED", "BRA", "BAR", "SYNCS", "UTMA"))
    depth, position = 0, 0
    for part in re.split(r"([\[\],])", one.operands):
        if part in "[]":
            depth += {"[": 1, "]": -1}.get(part, 0)
        elif part == ",":
            position += depth == 0
        for number in _REGISTER.findall(part):
            count = 1 if depth else _width(one.opcode)
            some = set(range(int(number), int(number) + count))
            accessed |= some
            if position == 0 and not stores and depth == 0:
                written |= some
    return accessed, written


def _width(opcode: str) -> int:
    """Registers that a data operand of a load or store has."""
    base, *suffixes = opcode.split(".")
    if base in ("STSM", "LDSM"):
        return int(suffixes[-1]) if suffixes[-1].isdigit() else 1
    if base.startswith(("LD", "ST")):
        return 4 if "128" in suffixes else 2 if "64" in suffixes else 1
    return 1
