"""The time of one step of K: MMAs, loads, latency and issue, which run at once on an SM."""

from __future__ import annotations

import math
from dataclasses import dataclass

from warploom.decide.config import Config
from warploom.decide.machine import Machine
from warploom.decide.problem import GemmProblem, kind_of
from warploom.decide.work import Work
from warploom.target import SM90A, WGMMA_M
from warploom.target.dtypes import bits_of

#: Columns of the widest MMA.
_WIDEST = 256
#: Bytes of a line of the L2 cache.
LINE_BYTES = 128


@dataclass(frozen=True)
class Step:
    """Cycles of one step of K: of all CTAs of an SM at once.

    Attributes
    ----------
    cycles : float
        The step.
    tensor, l2 : float
        Its MMAs, and its loads from the L2 cache.
    arrival : float
        Its bytes at all SMs, from the L2 cache, if nothing were shared.
    """

    cycles: float
    tensor: float
    l2: float
    arrival: float

    @classmethod
    def of(cls, problem: GemmProblem, config: Config, machine: Machine, work: Work) -> Step:
        m, n, _, _ = work.sizes
        of_a, of_b = config.multicast(problem)
        a_row, b_row = (config.tile_k * bits / 8 for bits in (problem.a_bits, problem.b_bits))
        columns = problem.products * config.tile_n
        received = config.tile_m * a_row + columns * b_row
        lines_a, lines_b = _lines(problem, config)
        requested = min(config.tile_m, m) / of_a * a_row * lines_a
        requested += min(columns, problem.products * n) / of_b * b_row * lines_b
        multiply = problem.products * _mma_cycles(problem, config, machine)
        if not any(problem.computed):  # such an operand comes from registers
            multiply *= 1 + machine.narrow * (1 - config.accumulator[1] / _WIDEST)
        compute = _dequantise_cycles(problem, config, machine)
        own = multiply + compute + machine.wait_cycles
        own += machine.issue_cycles * _mmas_of_a_warpgroup(problem, config)
        if not config.specialise:
            own += machine.self_load_cycles
        # A stage is multiplied, released, and loaded anew.
        arrival = received / machine.receive_bytes
        latency = machine.latency * machine.clock
        ring = (latency + arrival + own) / config.stages
        boxes = sum(max(1.0, row / LINE_BYTES) for row in (a_row, b_row))
        readers = max(work.block) * max(1.0, a_row / LINE_BYTES)
        l2 = work.running * requested / machine.l2_bytes
        cycles = joined(
            machine.overlap,
            work.busy * multiply,
            work.busy * arrival,
            l2,
            max(own / config.slice_k, ring),
            work.busy * config.consumers * compute * machine.dequantise_issue,
            work.busy * machine.copy_cycles * boxes,
            machine.same_line * math.sqrt(readers),
        )
        if config.stream_k:
            cycles *= 1 + machine.stream_k_steps
        return cls(cycles, work.busy * multiply, l2, work.running * received / machine.l2_bytes)


def joined(order: float, *times: float) -> float:
    """The time of things that run at once and disturb each other."""
    longest = max(times)
    if not longest:
        return 0.0
    return longest * sum((time / longest) ** order for time in times) ** (1 / order)


def _lines(problem: GemmProblem, config: Config) -> tuple[float, float]:
    """Lines of the L2 cache that rows of a stage touch of A and of B, for each that they fill."""
    run = (problem.k or 0) / problem.taps
    sides = (
        (problem.a_bits, problem.layout[0] == "N", problem.m, config.tile_m),
        (problem.b_bits, problem.layout[1] == "T", problem.n, config.tile_n),
    )
    found = []
    for bits, along_k, extent, tile in sides:
        pitch = (run if along_k else extent or 0) * bits / 8
        row = (config.tile_k if along_k else tile) * bits / 8 / LINE_BYTES
        found.append((row + 1) / row if pitch % LINE_BYTES else 1.0)
    return found[0], found[1]


def _mma_cycles(problem: GemmProblem, config: Config, machine: Machine) -> float:
    """Cycles that the tensor cores of an SM need for one step of one product."""
    kind = kind_of(problem)
    size = bits_of(problem.a_dtype) / 8
    rows, columns = config.accumulator
    rate = machine.tensor_bytes / size  # multiply-adds of a cycle
    total = 0.0
    for width in kind.split_n(columns):
        cycles = WGMMA_M * width * kind.k / rate
        # Both operands come from shared memory: A once for each instruction.
        operands = (WGMMA_M + width) * kind.k * size / machine.shared_bytes
        total += max(cycles, operands)
    return total * rows / WGMMA_M * config.tile_k / kind.k


def _mmas_of_a_warpgroup(problem: GemmProblem, config: Config) -> float:
    """MMAs that a warpgroup issues in a step."""
    kind = kind_of(problem)
    rows, columns = config.accumulator
    blocks = max(1.0, rows / WGMMA_M / config.consumers)
    return problem.products * blocks * len(kind.split_n(columns)) * config.tile_k / kind.k


def _dequantise_cycles(problem: GemmProblem, config: Config, machine: Machine) -> float:
    """Cycles in which a warpgroup computes its part of operands for one step."""
    if not any(problem.computed):
        return 0.0
    rows, _ = config.accumulator
    # B is an operand of each product.
    rows *= problem.products if problem.computed[1] else 1
    elements = rows / config.consumers * config.tile_k / SM90A.warpgroup
    return elements * machine.dequantise_cycles
