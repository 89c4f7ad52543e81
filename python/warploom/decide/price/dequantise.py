"""The time of a step whose warpgroups compute operand A in registers, such as weights of 4 bits.

A warpgroup loads packed weights from shared memory, computes the operand, issues the MMAs and waits
for them before the next step. Its instructions and its MMAs, which read registers, run one after
the other with those of other warpgroups of the SM: one station of a closed queueing network. Loads
from shared memory and the ends of MMAs it waits for alone: others do not lengthen that.
"""

from __future__ import annotations

from typing import NamedTuple

from warploom.decide.machine import Machine
from warploom.decide.price.queues import interleaved
from warploom.decide.price.work import Work
from warploom.target import SM90A


class Dequantised(NamedTuple):
    """Cycles of one step.

    Attributes
    ----------
    cycles : float
        From step to step, of all CTAs of an SM.
    held : float
        From the arrival of a stage until the warpgroups that read it release it.
    """

    cycles: float
    held: float


def dequantised_step(work: Work, machine: Machine, multiply: float, ctas: int) -> Dequantised:
    """The time of a step, as instructions and MMAs limit it.

    Parameters
    ----------
    work : Work
        With ``dequantised`` elements.
    machine : Machine
    multiply : float
        Cycles of the MMAs of a step of one CTA.
    ctas : int
        CTAs of an SM that have work.

    Notes
    -----
    These cycles are 0.89 to 1.08 of those that one to three warpgroups of an SM took, with weights
    of 4 bits in the L2 cache and tiles of 8, 64 and 128 rows (H200, 2026-11-26: 14 kernels).
    """
    elements = work.dequantised / work.consumers / SM90A.warpgroup
    computing = elements * machine.dequantise_cycles
    skipped = work.slice_k - 1  # steps of other warpgroups, through whose iterations each goes
    shared = (
        multiply / work.consumers + machine.step_instructions
        + computing * machine.dequantise_issue + skipped * machine.skip_instructions
    )  # fmt: skip
    alone = (
        machine.dequantise_latency + computing * (1 - machine.dequantise_issue)
        + skipped * machine.skip_cycles
    )  # fmt: skip
    warpgroups = ctas * work.consumers * work.slice_k
    held = interleaved(shared, 0.0, warpgroups, alone)
    return Dequantised(held / work.slice_k, held)
