"""The time of nests and reductions: instructions by class, and how many an SM executes a cycle."""

from __future__ import annotations

from warploom.decide.machine import Machine
from warploom.decide.price.work import Nest


def nest_cycles(nest: Nest, machine: Machine, consumers: int) -> float:
    """Cycles in which a warpgroup that is alone on an SM does its part of a step's nests.

    A warp of it is on each scheduler, so all pipes of the SM serve it; its instructions depend on
    each other, so the pipes serve it one after the other.
    """
    pipes = (
        nest.fma / machine.fma_lanes
        + nest.alu / machine.alu_lanes
        + nest.mufu / machine.mufu_lanes
        + nest.convert / machine.convert_lanes
        + nest.shared * 4 / machine.shared_bytes
    )
    return pipes / consumers + nest.reductions * machine.reduction_cycles
