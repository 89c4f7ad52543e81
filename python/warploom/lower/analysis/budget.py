"""The resources of a CTA: all of an SM, or an equal part where a hint wants several CTAs on it.

The compiler must know, else it gives each thread registers that only one CTA has room for; and no
more than a part may be asked for, else the second CTA waits until the first has ended.
"""

from __future__ import annotations

from typing import Any

from warploom.errors import Decline, IllegalCombination, NoRegisters
from warploom.lower.analysis.live_accumulators import live_accumulators
from warploom.target import ARCHS, RegisterRoles, wgmma_kind
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.statement import Mma, walk

#: The part of a computing thread's registers beyond which accumulators leave too few to others.
_MOST_OF_USUAL = 0.85


def ctas_per_sm(program: TileProgram) -> int:
    """CTAs that an SM is to hold at a time."""
    return program.hints.ctas_per_sm or 1


def launch_bounds(program: TileProgram) -> tuple[str, Any]:
    """The attribute of a kernel that tells the compiler."""
    return "tirx.launch_bounds_min_blocks_per_sm", ctas_per_sm(program)


def shared_bytes(program: TileProgram) -> int:
    """Bytes of shared memory that a CTA may have."""
    return ARCHS[program.arch].shared_bytes_of_each(ctas_per_sm(program))


def launch_registers(program: TileProgram, threads: int) -> int:
    """Registers that each of a CTA's threads may have, before any gives some to others.

    Raises
    ------
    NoRegisters
        If an SM does not hold so many threads.
    """
    count = ctas_per_sm(program)
    try:
        return ARCHS[program.arch].registers_of_each(count, threads)
    except IllegalCombination as error:
        raise NoRegisters(f"{error} Lower ctas_per_sm.") from error


def register_split(
    program: TileProgram, consumers: int, producer: int | None = None
) -> tuple[int, int]:
    """Registers of a thread of a loading and of ``consumers`` computing warpgroups.

    They are those of the hints. ``producer`` is for a program whose hints leave that open.

    Raises
    ------
    Decline
        If ``setmaxnreg`` cannot give each role so many.
    """
    roles = RegisterRoles(ARCHS[program.arch], consumers, ctas_per_sm(program))
    first, consumer_registers = program.hints.registers or (None, None)
    try:
        split = roles.split(producer if first is None else first, consumer_registers)
        roles.check(*split)
    except IllegalCombination as error:
        raise Decline(str(error)) from error
    return split


def producer_registers(program: TileProgram, consumers: int) -> int | None:
    """Registers of a loading thread where accumulators want nearly all others; else None.

    Of 224 registers of accumulators, ptxas spills beside the 8 that the usual split leaves, and
    serialises MMAs; with 16 it does neither (attention backward, heads of 64 and 128 elements).
    """
    arch = ARCHS[program.arch]
    _, usual = register_split(program, consumers)
    tight = live_accumulators(program, arch.warpgroup).registers > usual * _MOST_OF_USUAL
    return arch.setmaxnreg.low if tight else None


def require_accumulators(program: TileProgram, registers: int) -> None:
    """Check that a thread which multiplies has registers for its part of all results at a time.

    Raises
    ------
    NoRegisters
        If they alone are more than it has.
    """
    needed = live_accumulators(program, ARCHS[program.arch].warpgroup)
    registers = min(registers, ARCHS[program.arch].registers_per_thread)
    if needed.registers > registers:
        raise NoRegisters(
            f"The accumulators {', '.join(needed.names)} need {needed.registers} registers of a "
            f"thread, which has {registers} where {ctas_per_sm(program)} CTAs share an SM; use "
            "smaller tiles, more consumers or a lower ctas_per_sm."
        )


def require_mmas(program: TileProgram, at_launch: int) -> None:
    """Check that ptxas has registers for each MMA.

    It compiles them for the registers that a thread has at the launch: what ``setmaxnreg`` moves to
    computing warpgroups later does not count.

    Raises
    ------
    NoRegisters
        If the widest instruction of an MMA needs more.
    """
    for mma in walk(program.block):
        if not isinstance(mma, Mma):
            continue
        a, b = (str(operand.source.dtype) for operand in mma.operands)
        kind = wgmma_kind(a, b, str(mma.d.dtype))
        width = max(kind.split_n(int(ir.ranges(mma.raw.args[0])[-1][1])))
        needed = kind.launch_registers(width)
        if needed > at_launch:
            raise NoRegisters(
                f"An MMA into {mma.d.name} has instructions of {width} columns, which need "
                f"{needed} registers of a thread at the launch, and a thread has {at_launch} where "
                f"{ctas_per_sm(program)} CTAs share an SM; use tiles of fewer columns, fewer "
                "warpgroups or a lower ctas_per_sm."
            )


def describe(program: TileProgram, threads: int) -> list[str]:
    """A sentence on the part of a CTA, where it is not everything."""
    count = ctas_per_sm(program)
    if count == 1:
        return []
    return [
        f"budget: {count} CTAs an SM, each with {shared_bytes(program)} bytes of shared memory and "
        f"{launch_registers(program, threads)} registers for each of {threads} threads"
    ]
