"""What a kernel gains and loses that prefetches its first steps into the L2 cache.

With programmatic dependent launch the CTAs of a kernel are there before the kernel before has
ended. Until then memory brings their first stages into the L2 cache, which it need not do later.
The loads then queue behind prefetches of bytes that other CTAs have prefetched, too: if no policy
of the cache says which bytes are read once.
"""

from __future__ import annotations

from typing import NamedTuple

from warploom.decide.machine import Machine
from warploom.decide.price.delivery import readers_of
from warploom.decide.price.launch import Launch
from warploom.decide.price.work import Work
from warploom.tile.choices import DROPPED


class Prefetch(NamedTuple):
    """What the prefetches of one launch do.

    Attributes
    ----------
    ahead : float
        Bytes that memory delivers before the kernel before has ended.
    queue : float
        Cycles for which the first loads wait for prefetches in vain.
    """

    ahead: float = 0.0
    queue: float = 0.0


#: Of a kernel that prefetches nothing.
NOTHING = Prefetch()


def prefetch_of(work: Work, machine: Machine, launch: Launch) -> Prefetch:
    """The bytes and the cycles of a work's prefetches; none without the choice."""
    if not work.prefetch_l2 or not work.pdl:
        return NOTHING
    steps = min(work.stages, launch.steps)
    requested = distinct = 0.0
    once = [load for load in work.loads if load.policy == DROPPED]
    for load in once or work.loads:
        bytes_ = launch.running * steps * min(load.rows, load.extent) * load.row_bytes * load.times
        requested += bytes_ / load.multicast
        distinct += min(bytes_ / readers_of(load, launch), load.total)
    # With PDL a kernel begins earlier by what its launch takes less, when its CTAs are there.
    window = max(0.0, machine.serial_launch - machine.launch - machine.ctas) * machine.dram_bytes
    return Prefetch(min(distinct, window), max(0.0, requested - distinct) / machine.l2_bytes)

