"""The time of one step: MMAs, loads, latency, nests and issue, which run at once on an SM."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from warploom.decide.machine import Machine
from warploom.decide.price.delivery import delivered_cycles, readers_of
from warploom.decide.price.dequantise import dequantised_step
from warploom.decide.price.launch import Launch
from warploom.decide.price.nests import nest_cycles
from warploom.decide.price.outside import filled_cycles
from warploom.decide.price.queues import interleaved
from warploom.decide.price.work import LINE_BYTES, Mma, Work
from warploom.target import WGMMA_M, WgmmaKind

#: Columns of the widest MMA.
_WIDEST = 256


class Alone(NamedTuple):
    """What a step of one CTA takes, whatever others do, in cycles.

    Attributes
    ----------
    loaded, boxes : float
        The bytes that arrive, at the SM's rate, and the TMA unit's boxes.
    multiply : float
        The MMAs.
    nest, late : float
        Nests of a warpgroup, and waits for what its threads load.
    alternating : float
        From step to step of its warpgroups, of which MMAs and nests alternate.
    own : float
        From step to step of a warpgroup, with waits and issue.
    """

    loaded: float
    boxes: float
    multiply: float
    nest: float
    late: float
    alternating: float
    own: float


class Step(NamedTuple):
    """Cycles of one step: of all CTAs of an SM at once.

    Attributes
    ----------
    cycles : float
        The step.
    tensor, l2 : float
        Its MMAs, and what the L2 cache delivers.
    arrival : float
        Its bytes at all SMs, from the L2 cache, if nothing were shared.
    alone : Alone
        What does not depend on other CTAs.
    """

    cycles: float
    tensor: float
    l2: float
    arrival: float
    alone: Alone


def step_of(
    work: Work, machine: Machine, launch: Launch, alone: Alone | None = None, stores: float = 0.0
) -> Step:
    """The time of a step of a work, as a launch divides it.

    Parameters
    ----------
    work : Work
    machine : Machine
    launch : Launch
    alone : Alone, optional
        That of :func:`alone_of`, where it is known.
    stores : float
        Cycles in which the L2 cache takes results meanwhile.
    """
    cta = alone_of(work, machine) if alone is None else alone
    busy = launch.busy
    tensor = busy * cta.multiply
    # A pair of SMs has one unit for boxes; CTAs spread over the pairs first.
    of_pair = math.ceil(launch.running / max(1, machine.sms // 2))
    times = [busy * cta.loaded, of_pair * cta.boxes]
    same_line = 0.0
    if work.loads:
        same_line = machine.same_line * max([
            readers_of(load, launch) / math.sqrt(load.multicast) for load in work.loads
        ])  # a request for several CTAs counts as their root
    own, latency = cta.own, machine.latency * machine.clock
    if work.dequantised:
        computed = dequantised_step(work, machine, cta.multiply, busy)
        own += computed.held - cta.multiply
        # Warpgroups come to a line at different times: its readers are waited for, once.
        latency, same_line = latency + same_line, 0.0
    # A stage is multiplied, released, and loaded anew.
    ring = (latency + cta.loaded + own) / work.stages if cta.loaded else 0.0
    if work.dequantised:  # the tensor cores' time is part of it
        times.append(max(computed.cycles, ring))
    elif cta.nest:
        shared = _alternating(work, cta.multiply, cta.nest, busy, cta.late)
        times.append(max((shared + own - cta.alternating) / work.slice_k, ring))
    else:
        times += [tensor, max(own / work.slice_k, ring)]
    times += [same_line, filled_cycles(work, machine, launch)]
    delivered = delivered_cycles(work, machine, launch)
    cycles = joined(machine.overlap, *times, delivered + stores)
    if work.stream_k:
        cycles *= 1 + machine.stream_k_steps
    arrival = launch.running * cta.loaded * machine.receive_bytes / machine.l2_bytes
    return Step(cycles, tensor, delivered, arrival, cta)


def alone_of(work: Work, machine: Machine) -> Alone:
    """The part of a step's time that does not depend on other CTAs."""
    received = boxes = cut = 0.0
    for load in work.loads:
        row, times = load.row_bytes, load.times
        # The TMA unit takes as long for a row of a few bytes as for one of a line.
        taken = max(row, LINE_BYTES * load.pieces) if load.tma else row
        beyond = load.lines - 1
        received += load.rows * taken * (1 + machine.partial_loads * beyond) * times
        boxes += max(1.0, row / LINE_BYTES) * times
        cut += load.rows / load.multicast * load.cut * times
    multiply = issued = 0.0
    for mma in work.mmas:
        cycles, count = _of_mma(mma, machine, work.consumers)
        multiply += cycles
        issued += count
    consumers = work.consumers
    # A warpgroup that also computes leaves the tensor cores to the others meanwhile.
    nest = nest_cycles(work.nest, machine, consumers) if any(work.nest) else 0.0
    if work.rounds:
        # Each scheduler has a warp of the warpgroup, and issues one instruction a cycle.
        count = sum(mma.times for mma in work.mmas)
        nest += machine.step_instructions + machine.mma_instructions * count
    late = _late_cycles(work, machine, multiply / consumers)
    alternating = _alternating(work, multiply, nest, 1, late) if nest else multiply
    own = alternating + machine.wait_cycles + machine.issue_cycles * issued
    if work.order_mmas and consumers > 1:
        own += machine.order_cycles * sum(mma.times for mma in work.mmas)
    if not work.specialise:
        own += machine.self_load_cycles
    return Alone(
        received / machine.receive_bytes, machine.copy_cycles * boxes + machine.cut_cycles * cut,
        multiply, nest, late, alternating, own,
    )  # fmt: skip


def joined(order: float, *times: float) -> float:
    """The time of things that run at once and disturb each other."""
    longest = max(times)
    if not longest:
        return 0.0
    total = 0.0
    for time in times:  # a loop, as a price joins six times or more
        if time == longest:
            total += 1.0
        elif time:
            total += (time / longest) ** order
    return longest * total ** (1 / order)


def _alternating(work: Work, multiply: float, nest: float, ctas: int, late: float) -> float:
    """Cycles from step to step of warpgroups that multiply and compute.

    MMAs that warpgroups issue together share the tensor cores evenly and end together, and so do
    the nests that wait for them. Warpgroups with several such rounds a step come apart only if they
    issue their MMAs in order.

    Parameters
    ----------
    work : Work
    multiply, nest : float
        Cycles of the MMAs of a CTA, and of the nests of a warpgroup that is alone.
    ctas : int
        CTAs of an SM.
    late : float
        Cycles in which a warpgroup waits for what its threads load.
    """
    warpgroups = ctas * work.consumers
    if work.rounds > 1 and not work.order_mmas:
        return ctas * multiply + warpgroups * nest + late
    return interleaved(multiply / work.consumers, nest, warpgroups, late)


def _late_cycles(work: Work, machine: Machine, multiply: float) -> float:
    """Cycles of a step in which a warpgroup waits for what its threads load.

    Parameters
    ----------
    work : Work
    machine : Machine
    multiply : float
        Cycles of the MMAs of one warpgroup.
    """
    if not work.waits:
        return 0.0
    each = multiply / sum(mma.times for mma in work.mmas) if work.mmas else 0.0
    return sum(w.times * max(0.0, machine.load_cycles - w.mmas * each) for w in work.waits)


def _of_mma(mma: Mma, machine: Machine, consumers: int) -> tuple[float, float]:
    """Cycles of MMAs of a step, and how many instructions a warpgroup issues."""
    block, widths = _of_instruction(
        mma.kind, mma.columns, machine.tensor_bytes, machine.shared_bytes
    )
    deep = mma.depth / mma.kind.k
    cycles = block * mma.rows / WGMMA_M * deep
    if not mma.a_in_registers:
        cycles *= 1 + machine.narrow * (1 - mma.columns / _WIDEST)
    blocks = max(1.0, mma.rows / WGMMA_M / consumers)
    return cycles * mma.times, blocks * widths * deep * mma.times


@lru_cache(maxsize=1024)
def _of_instruction(
    kind: WgmmaKind, columns: int, tensor_bytes: int, shared_bytes: int
) -> tuple[float, int]:
    """Cycles of the instructions of 64 rows that have all columns, and how many they are."""
    size = kind.bits / 8
    rate = tensor_bytes / size  # multiply-adds of a cycle
    total = 0.0
    widths = kind.split_n(columns)
    for width in widths:
        cycles = WGMMA_M * width * kind.a_k / rate
        # Operand A comes once for each instruction, from shared memory or at its rate.
        operands = (WGMMA_M * kind.a_k + width * kind.k) * size / shared_bytes
        total += max(cycles, operands)
    return total, len(widths)
