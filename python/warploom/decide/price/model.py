"""The time of one launch of a work, and where it goes.

One SM is a pipeline. Each step has a time (:mod:`~warploom.decide.price.step`): that of the slowest
of the tensor cores, the SM's and the GPU's loads, the latency that the stages have to hide, and
what a warpgroup does itself; times that come close to each other add up in part. Steps make a loop,
a loop and its epilogue make a tile, tiles make the waves of the busiest CTA. Memory runs beside all
of it. What no wave hides comes on top: launch, first loads, last epilogue, sums of parts.

The constants are those of a :class:`~warploom.decide.machine.Machine`; all else is counting.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from warploom.decide.machine import H200, Machine
from warploom.decide.price.epilogue import epilogue_of, finish_cycles, store_cycles
from warploom.decide.price.l2 import dram_cycles, moved_of, policies_of
from warploom.decide.price.launch import Launch, launch_of
from warploom.decide.price.step import Alone, Step, joined, step_of
from warploom.decide.price.uneven import busiest
from warploom.decide.price.work import Work

#: Part of the CTAs from which on the last wave counts as one of all.
_FULL = 0.9


class Prediction(NamedTuple):
    """Microseconds, by where they go; :attr:`total` is the time of one launch.

    Attributes
    ----------
    tensor, l2 : float
        The MMAs of the busiest SM, and the loads of all SMs from the L2 cache.
    stores : float
        Results of all waves but the last on their way into the L2 cache.
    loop : float
        All waves of the busiest CTA, with those three and what they do not hide.
    dram : float
        Bytes between memory and the L2 cache, which move beside the loop.
    fill, drain : float
        First loads and last epilogue.
    launch : float
        Before and after the kernel's own work.
    reduce : float
        Adding the parts of a split sum.
    waves : int
        Tiles, or parts of tiles, that the busiest CTA computes.
    overlap : float
        As ``overlap_dram`` of :class:`~warploom.decide.machine.Machine`.
    throttle : float
        Factor on the loop and memory, for a clock that power limits.
    policies : float
        What eviction policies and prefetches of the L2 cache change; negative where they gain.
    """

    tensor: float
    l2: float
    stores: float
    loop: float
    dram: float
    fill: float
    drain: float
    launch: float
    reduce: float
    waves: int
    overlap: float
    throttle: float
    policies: float = 0.0

    @property
    def total(self) -> float:
        """Microseconds of one launch."""
        return self.without_policies + self.policies

    @property
    def without_policies(self) -> float:
        """Microseconds if the L2 cache kept what it usually keeps, and nothing were prefetched."""
        stream = joined(self.overlap, self.loop, self.dram) * self.throttle
        return stream + self.fill + self.drain + self.launch + self.reduce

    def terms(self) -> dict[str, float]:
        """The parts by name."""
        return {name: float(value) for name, value in self._asdict().items()}


def price(work: Work, machine: Machine = H200, alone: Alone | None = None) -> Prediction:
    """The time of one launch of a work, back to back with others.

    Parameters
    ----------
    work : Work
        What the kernel does.
    machine : Machine
        The GPU.
    alone : Alone, optional
        That of :func:`~warploom.decide.price.step.alone_of`, where it is known.

    Examples
    --------
    >>> from warploom.decide.price.work import Load, Work
    >>> rows = Load(128, 256.0, 8192, (True, False), 1, 1.0, 32768.0, 2097152.0)
    >>> price(Work((64, 1), 1, 1, (rows,), (), ())).total < 20
    True
    """
    launch = launch_of(work, machine.gpu)
    stores = store_cycles(work, machine, launch)
    step = step_of(
        work, machine, launch, alone, stores=stores / max(1.0, launch.waves * launch.steps)
    )
    epilogue = epilogue_of(work, machine, launch, launch.steps * step.cycles)
    meeting = _cluster_sum_cycles(work, machine)
    prologue = _prologue_cycles(work, machine)
    finish = finish_cycles(work, machine)
    between = epilogue.between + meeting + prologue
    if not work.persistent:
        between += machine.next_cta * machine.clock
    elif not work.specialise:  # no warp asks for the next tile while this one is stored
        between += machine.first_load * machine.clock
    if work.lengths and work.persistent and work.split_k == 1 and not work.stream_k:
        loop = _uneven_waves(work, launch, step.cycles, between + launch.busy * finish)
    else:
        last = launch.steps * _last_step(work, machine, launch, step).cycles
        loop = _waves(
            work, launch, launch.steps * step.cycles, between, last, epilogue.stores, finish
        )  # fmt: skip
    tensor = launch.waves * launch.steps * step.tensor
    moved = moved_of(work, machine)
    dram = dram_cycles(work, machine, launch, moved)
    throttle = _throttle(machine, launch, tensor, loop, dram)
    micro = machine.clock
    reduce = meeting / micro if work.in_cluster else _sums(work, machine, work.split_k - 1)
    return Prediction(
        tensor=tensor / micro,
        l2=launch.waves * launch.steps * step.l2 / micro,
        stores=stores / micro,
        loop=loop / micro,
        dram=dram / micro,
        fill=machine.first_load + machine.fill * step.arrival / micro + prologue / micro
        + machine.dequantise_first * (work.dequantised > 0),
        drain=(epilogue.last + launch.busy * finish) / micro,
        launch=(machine.launch if work.pdl else machine.serial_launch)
        + machine.ctas * min(1.0, launch.running / machine.sms)
        + machine.roles * work.specialise
        + machine.persistent * work.persistent,
        reduce=_stream_k_sums(work, machine, launch) if work.stream_k else reduce,
        waves=launch.waves,
        overlap=machine.overlap_dram,
        throttle=throttle,
        policies=policies_of(work, machine, launch, moved, loop, dram) / micro * throttle,
    )


def _last_step(work: Work, machine: Machine, launch: Launch, step: Step) -> Step:
    """A step of the last wave, in which the CTAs that have a tile left have the cache alone."""
    left = launch.last
    if work.stream_k or launch.waves == 1 or left > _FULL * launch.running:
        return step
    down, across = launch.block
    fewer = Launch(
        launch.slots, launch.steps, launch.units, launch.waves,
        min(launch.busy, math.ceil(left / machine.sms)), left,
        (down, max(1.0, across * left / launch.running)),
    )  # fmt: skip
    return step_of(work, machine, fewer, step.alone)


def _waves(
    work: Work, launch: Launch, loop: float, between: float, last: float, stores: float,
    finish: float,
) -> float:  # fmt: skip
    """Cycles of the busiest CTA, from its first step to its last.

    Parameters
    ----------
    work : Work
    launch : Launch
    loop, last : float
        Cycles of the steps of a tile, and of one of the last wave.
    between : float
        Cycles from the last step of a tile to the first of the next.
    stores : float
        Cycles in which an SM stores tiles of all its CTAs, or computes functions of their elements.
    finish : float
        Cycles in which an SM computes what the epilogue of a tile does beside its store.
    """
    if work.stream_k:
        units = max(launch.units / launch.slots, 1 / launch.steps)
        return units * loop + max(0, math.ceil(units) - 1) * (between + finish)
    hidden = max(loop, (loop + between) / 2)  # behind the MMAs of the other warpgroup
    inner = hidden if work.ping_pong else loop + between / launch.busy
    return (launch.waves - 1) * (max(inner, stores) + finish) + last


def _uneven_waves(work: Work, launch: Launch, step: float, between: float) -> float:
    """The same where tiles differ in their steps, each of so many cycles."""
    between /= launch.busy
    steps, tiles = busiest(
        work.lengths, work.tiles[0], work.batch, work.group, launch.slots, between / step
    )
    return steps * step + (tiles - 1) * between


def _sums(work: Work, machine: Machine, others: float) -> float:
    """Microseconds in which the owner of a tile adds the sums of so many other CTAs to its own.

    All are there at the same time. One SM reads them, so that sums of large tiles cost more.
    """
    if others <= 0:
        return 0.0
    return machine.part + machine.part_each * others + _moved(work, machine, others)


def _stream_k_sums(work: Work, machine: Machine, launch: Launch) -> float:
    """Microseconds in which the parts of tiles are added; none if each CTA has whole tiles.

    Where more CTAs than one other share a tile, they all end together, as those of split-K do.
    """
    if launch.units % launch.slots == 0:
        return 0.0
    others = max(0.0, min(launch.slots / launch.units, launch.steps) - 1)
    together = min(1.0, others) * max(0.0, machine.part - machine.stream_k)
    together += machine.part_each * others
    if not work.dequantised:
        return machine.stream_k + together + _moved(work, machine, max(1.0, others))
    # A CTA stores the sums of a part, and adds those of another one at least: the threads of the
    # warpgroups that have a share of the tile read them.
    rate = min(machine.receive_bytes, work.consumers * machine.stream_k_bytes)
    added = max(1.0, others) * work.sum_bytes / rate + work.sum_bytes / machine.store_bytes
    return machine.stream_k + together + added / machine.clock


def _moved(work: Work, machine: Machine, others: float) -> float:
    """Microseconds in which CTAs write their sums, and one of them reads those of the others."""
    written = work.sum_bytes / machine.sum_bytes
    return (written + others * work.sum_bytes / machine.receive_bytes) / machine.clock


def _prologue_cycles(work: Work, machine: Machine) -> float:
    """Cycles until what a tile loads before its first step has arrived."""
    if not work.prologue:
        return 0.0
    received = sum(load.rows * load.row_bytes * load.times for load in work.prologue)
    return machine.latency * machine.clock + received / machine.receive_bytes


def _cluster_sum_cycles(work: Work, machine: Machine) -> float:
    """Cycles in which the CTAs of a cluster add the parts of a tile."""
    if not work.in_cluster:
        return 0.0
    others = work.split_k - 1
    wait = machine.dsmem + machine.dsmem_each * others
    return wait * machine.clock + others * work.sum_bytes / machine.dsmem_bytes


def _throttle(machine: Machine, launch: Launch, tensor: float, loop: float, dram: float) -> float:
    """The factor by which a kernel takes longer because power limits the clock."""
    busy = min(1.0, tensor / max(loop, 1.0)) * min(1.0, launch.running / launch.busy / machine.sms)
    time = joined(machine.overlap_dram, loop, dram) / machine.clock
    return 1 + machine.throttle * busy * (1 - math.exp(-time / machine.throttle_us))
