"""How a GPU divides the work of one launch: units, waves, CTAs of an SM, tiles that run at a time.

These are counts that follow from the work and the GPU's SMs; no constant of a machine is in them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from warploom.decide.price.work import Work
from warploom.target.arch import Gpu


class Launch(NamedTuple):
    """The counts of one launch.

    Attributes
    ----------
    slots : int
        CTAs that run at a time.
    steps : float
        Steps of a unit: a tile, or a part of one.
    units : int
        Tiles, or parts of them; those included that fill the last cluster of a row or column.
    waves : int
        Units that a CTA computes one after the other, at most.
    busy : int
        CTAs of an SM that have work.
    running : int
        CTAs that have work at a time.
    block : (float, float)
        Tiles along the first two dimensions of the grid that run at a time.
    """

    slots: int
    steps: float
    units: int
    waves: int
    busy: int
    running: int
    block: tuple[float, float]

    @property
    def last(self) -> int:
        """CTAs that have a unit in the last wave."""
        return self.units - (self.waves - 1) * self.slots


def launch_of(work: Work, gpu: Gpu) -> Launch:
    """The counts of a launch on a GPU."""
    (down, across), (high, wide) = work.tiles, work.cluster
    split = work.split_k
    cluster = high * wide * (split if work.in_cluster else 1)
    slots = gpu.resident(cluster, work.ctas_per_sm)
    if work.ctas is not None:
        slots = max(cluster, min(slots, work.ctas // cluster * cluster))
    steps = math.ceil(work.steps / split) if split > 1 else work.steps
    units = -(-down // high) * high * (-(-across // wide) * wide) * work.batch * split
    running = min(units, slots)
    at_once = running / split
    # CTAs that share tiles wherever steps end all have some.
    if work.stream_k:
        running = min(slots, max(1, int(units * steps)))
    rows = min(down, work.group * high)
    columns = max(1.0, min(across, at_once / rows))
    rows = max(1.0, min(down, at_once / columns))
    busy = min(work.ctas_per_sm, math.ceil((running if work.stream_k else units) / gpu.sms))
    return Launch(slots, steps, units, math.ceil(units / slots), busy, running, (rows, columns))
