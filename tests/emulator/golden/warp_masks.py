"""Instructions of a warp whose lanes have different member masks, and meet from several places."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import Case, element, poisoned
from tests.emulator.golden.values import Bits

LANES = 32
#: Numbers of groups that a warp is divided into.
GROUPS = (1, 2, 3, 5, 9, 32)
#: Where the lanes of a case execute the instruction.
PLACES = ("converged", "divergent", "exited", "loop")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """``text`` reads %r0 to %r2, has mask %r4 and writes %r10, and %q1 if ``predicate``."""

    name: str
    text: str
    predicate: bool = False
    #: Which lane a shuffle reads: ``"up"``, ``"down"``, ``"bfly"`` or ``"idx"``.
    shuffle: str = ""


def _instructions() -> Iterator[Instruction]:
    for mode in ("up", "down", "bfly", "idx"):
        name = f"shfl.sync.{mode}.b32"
        yield Instruction(name, f"{name} %r10|%q1, %r0, %r1, %r2, %r4;", True, mode)
    for mode in ("all", "any", "uni"):
        text = f"vote.sync.{mode}.pred %q2, %q3, %r4;\nselp.u32 %r10, 1, 0, %q2;"
        yield Instruction(f"vote.sync.{mode}.pred", text)
    yield Instruction("vote.sync.ballot.b32", "vote.sync.ballot.b32 %r10, !%q3, %r4;")
    for bits, source in ((32, "%r3"), (64, "%d0")):
        name = f"match.any.sync.b{bits}"
        yield Instruction(name, f"{name} %r10, {source}, %r4;")
        name = f"match.all.sync.b{bits}"
        yield Instruction(name, f"{name} %r10|%q1, {source}, %r4;", True)
    for op in ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32"):
        yield Instruction(f"redux.sync.{op}", f"redux.sync.{op} %r10, %r0, %r4;")
    for op in ("and", "or", "xor"):
        yield Instruction(f"redux.sync.{op}.b32", f"redux.sync.{op}.b32 %r10, %r0, %r4;")
    yield Instruction("elect.sync", "elect.sync %r10|%q1, %r4;", True)
    yield Instruction("bar.warp.sync", "bar.warp.sync %r4;\nmov.u32 %r10, %r4;")


INSTRUCTIONS = tuple(_instructions())


def partition(random: Bits, groups: int) -> np.ndarray:
    """The number of the group of each lane; with 32 groups every lane is alone."""
    if groups == LANES:
        return np.argsort(random.words(LANES)).astype(np.uint32)
    return random.below(groups, LANES).astype(np.uint32)


def masks_of(group: np.ndarray) -> np.ndarray:
    """The member mask of each lane."""
    return np.array(
        [sum(1 << int(lane) for lane in np.flatnonzero(group == own)) for own in group], np.uint32
    )


def amounts(random: Bits, mode: str, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What each lane passes so that it reads a lane of its mask, or itself; and the controls."""
    result = np.zeros(LANES, np.uint32)
    for lane in range(LANES):
        members = [at for at in range(LANES) if int(masks[lane]) >> at & 1]
        if mode in ("up", "down"):
            sign = 1 if mode == "up" else -1
            members = [at for at in members if sign * (lane - at) >= 0]
        source = members[int(random.below(len(members), 1)[0])]
        result[lane] = {
            "up": lane - source,
            "down": source - lane,
            "bfly": lane ^ source,
            "idx": source,
        }[mode]
    return result, np.full(LANES, 0 if mode == "up" else 31, np.uint32)


def _arrays(random: Bits, instruction: Instruction, masks: np.ndarray) -> list[np.ndarray]:
    """Contents of %r0 to %r2; shuffles alone read the last two."""
    values = random.words(LANES).astype(np.uint32)
    if not instruction.shuffle:
        return [values, np.zeros(LANES, np.uint32), np.zeros(LANES, np.uint32)]
    return [values, *amounts(random, instruction.shuffle, masks)]


_LOAD = "ld.global.b32 {}, [%d40];"
#: %r3 and %d0 have few values, %q3 is true for most lanes of the first groups.
_PREPARE = """and.b32 %r3, %r0, 1;
mov.b64 %d0, {%r3, 7};
and.b32 %r6, %r0, 6;
setp.ne.u32 %q3, %r6, 0;
"""


def _case(name: str, code: str, inputs: list[np.ndarray]) -> Case:
    """``code`` gets its inputs in %r0, %r1, ...; its results are %r10 and, in %r11, %q1."""
    lines = ["mov.u32 %r10, 0;\nsetp.ne.u32 %q1, %r10, %r10;"]
    for i in range(len(inputs)):
        lines += [element(f"%p{i}", 32), _LOAD.format(f"%r{i if i < 3 else i + 1}")]
    lines += [_PREPARE, code, "selp.u32 %r11, 1, 0, %q1;"]
    for i in range(2):
        lines += [element(f"%p{len(inputs) + i}", 32), f"st.global.b32 [%d40], %r{10 + i};"]
    return Case(name, "\n".join(lines), tuple(inputs), tuple(poisoned(LANES, 32) for _ in "dq"))


def _converged(text: str, groups: int) -> str:
    return text


def _divergent(text: str, groups: int) -> str:
    """Every group executes an instruction of its own; the number of its group is in %r5."""
    lines = []
    for group in range(groups):
        skip = f"SKIP{group}"
        lines += [f"setp.ne.u32 %q4, %r5, {group};", f"@%q4 bra {skip};", text, f"{skip}:"]
    return "\n".join(lines)


def _exited(text: str, groups: int) -> str:
    """The lanes of group 0 have exited, whose bits are in all masks."""
    return f"setp.eq.u32 %q4, %r5, 0;\n@%q4 exit;\n{text}"


def _loop(text: str, groups: int) -> str:
    """The group of number n executes it n + 1 times, on what it got before."""
    return f"""mov.u32 %r7, 0;
AGAIN:
{text}
add.u32 %r0, %r0, %r10;
add.u32 %r7, %r7, 1;
setp.le.u32 %q4, %r7, %r5;
@%q4 bra AGAIN;"""


_CODE = {"converged": _converged, "divergent": _divergent, "exited": _exited, "loop": _loop}


def masks() -> Iterator[Case]:
    """Lanes of one warp with different masks at one instruction, or each group at its own."""
    for instruction in INSTRUCTIONS:
        for place in PLACES:
            for groups in GROUPS if place == "converged" else GROUPS[1:4]:
                name = f"{instruction.name}:{place}:{groups}"
                random = Bits(name)
                group = partition(random, groups)
                own = masks_of(group)
                arrays = _arrays(random, instruction, own)
                if place == "exited":
                    own |= own[group == 0].max(initial=0)
                code = _CODE[place](instruction.text, groups)
                yield _case(name, code, [*arrays, own, group])


def meetings() -> Iterator[Case]:
    """The lanes of one mask execute two instances of an instruction, in two branches."""
    for instruction in INSTRUCTIONS:
        for groups in (1, 3):
            name = f"{instruction.name}:met:{groups}"
            random = Bits(name)
            own = masks_of(partition(random, groups))
            side = random.below(2, LANES).astype(np.uint32)
            text = instruction.text
            code = (
                f"setp.ne.u32 %q4, %r5, 0;\n@%q4 bra OTHER;\n{text}\nadd.u32 %r10, %r10, 1;\n"
                f"bra.uni MEET;\nOTHER:\n{text}\nxor.b32 %r10, %r10, 5;\nMEET:"
            )
            yield _case(name, code, [*_arrays(random, instruction, own), own, side])
