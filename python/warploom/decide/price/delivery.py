"""What the L2 cache delivers to the SMs in a step: requests for a line join, or do not.

Requests for a line at the same time get one answer at each of several places, which are as many as
the GPU has GPCs (a fit of the number gave 8 to 11). An operand that many CTAs read at a time has
several readers at each place. An operand that a few CTAs read has hardly two at one, so that each
is answered by itself: 128 x 80 tiles of 1984 x 544 x 7168, of which each row of A is read by seven
CTAs, took 43.5 us, and 33.8 us with clusters that load rows once for two (H100, 2026-11-26). Which
CTAs share a place is not known; their order does not matter.
"""

from __future__ import annotations

from functools import lru_cache

from warploom.decide.machine import Machine
from warploom.decide.price.launch import Launch
from warploom.decide.price.work import Load, Work


def delivered_cycles(work: Work, machine: Machine, launch: Launch) -> float:
    """Cycles of a step in which the L2 cache answers the requests of all CTAs."""
    part = machine.joining
    if launch.waves == 1 and work.cluster[0] * work.cluster[1] == 2:
        part = machine.joining_pairs
    drifting = _drifting(work, launch)
    cycles = 0.0
    for load in work.loads:
        asked = min(load.rows, load.extent) / load.multicast * load.row_bytes * load.times
        alone = asked / machine.distinct_bytes * (machine.crossing if load.lines > 1 else 1.0)
        readers = readers_of(load, launch) / load.multicast
        if not load.of_taps:  # boxes of pixels overlap, which is no sharing of lines at a time
            readers *= shared_unseen(load, work)
        readers = max(1.0, readers)
        answered = 1 - part + part * _places_of(readers, machine.gpu.gpcs) / readers
        # To a line of taps CTAs come at different steps in any case.
        if drifting and not load.of_taps and _is_shared(load, work):
            answered += (1 - answered) * drifting
        cycles += alone * answered
    return launch.running * cycles


def readers_of(load: Load, launch: Launch) -> float:
    """Tiles that run at a time and load the same bytes."""
    (first, second), (down, across) = load.along, launch.block
    return (1.0 if first else down) * (1.0 if second else across)


@lru_cache(maxsize=4096)
def _places_of(readers: float, gpcs: int) -> float:
    """Places that have one of the readers of a line at least, if each may be at any of them."""
    return gpcs * (1 - (1 - 1 / gpcs) ** readers)


def _drifting(work: Work, launch: Launch) -> float:
    """Part of the tiles whose CTAs come to the same bytes at different steps.

    Stream-K cuts the tiles that fill no wave, and those of one wave more; all others are whole.
    """
    rest = launch.units % launch.slots if work.stream_k else 0
    return min(1.0, (rest + launch.slots) / launch.units) if rest else 0.0


def _is_shared(load: Load, work: Work) -> bool:
    """Whether several tiles load the same bytes."""
    return any(not moves and tiles > 1 for moves, tiles in zip(load.along, work.tiles, strict=True))


def shared_unseen(load: Load, work: Work) -> float:
    """Tiles that load the same bytes although ids of CTAs tell them apart; 1 if none do.

    So it is where memory decides which rows a tile has. Such tiles are taken to run at a time.
    """
    (by_row, by_column), (down, across) = load.along, work.tiles
    tiles = (down if by_row else 1) * (across if by_column else 1)
    more = tiles * work.batch * load.tile_bytes
    unseen = more > load.total > 0 and tiles > -(-load.extent // load.rows)
    return more / load.total if unseen else 1.0
