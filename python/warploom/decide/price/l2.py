"""What memory delivers to the L2 cache and takes from it, and what policies of the cache change."""

from __future__ import annotations

import math
from typing import NamedTuple

from warploom.decide.machine import Machine
from warploom.decide.price.delivery import shared_unseen
from warploom.decide.price.launch import Launch
from warploom.decide.price.prefetch import NOTHING, prefetch_of
from warploom.decide.price.step import joined
from warploom.decide.price.work import LINE_BYTES, Load, Work
from warploom.tile.choices import DROPPED, KEPT

#: Times that memory delivers operands at most: beyond that the L2 cache always helps.
_MOST_READS = 4


class Moved(NamedTuple):
    """What moves between memory and the L2 cache whatever the policies are.

    Attributes
    ----------
    factor : float
        By how much longer than its bytes what is read takes, as rows lie apart.
    written : float
        Bytes of results.
    """

    factor: float
    written: float


def moved_of(work: Work, machine: Machine) -> Moved:
    """The part of memory's traffic that does not depend on what the L2 cache keeps."""
    return Moved(1 + machine.dram_rows * _lines_of_rows(work), _written(work, machine))


def dram_cycles(
    work: Work, machine: Machine, launch: Launch, moved: Moved,
    follow: bool = False, ahead: float = 0.0,
) -> float:  # fmt: skip
    """Cycles in which bytes move between memory and the L2 cache.

    Parameters
    ----------
    work : Work
    machine : Machine
    launch : Launch
    moved : Moved
        That of :func:`moved_of`.
    follow : bool
        Whether the cache follows the policies of loads; if not, it keeps what it usually keeps.
    ahead : float
        Bytes that are in the cache when the kernel begins.
    """
    read = max(0.0, read_bytes(work, machine, launch, follow) - ahead)
    rate = machine.dram_bytes / machine.clock
    cycles = (read * moved.factor + moved.written) / rate
    return max(cycles, _pair_cycles(work, machine, launch, read, rate))


def _lines_of_rows(work: Work) -> float:
    """Lines for each row of what is loaded: rows of a step lie apart in memory."""
    total = rows = 0.0
    for load in work.loads:
        if load.total:
            total += load.total
            rows += load.total * min(1.0, LINE_BYTES / load.row_bytes)
    return rows / total if total else 0.0


def _pair_cycles(
    work: Work, machine: Machine, launch: Launch, read: float, rate: float
) -> float:
    """Cycles in which the pair of SMs that loads most has its bytes, of so many for all pairs.

    CTAs spread over pairs before a pair gets a second one. A pair that loads twice as much as
    others takes longer, as it has no more than its share of memory while others load.
    """
    pairs = max(1, machine.sms // 2)
    if work.stream_k:
        return 0.0
    busiest = math.ceil(launch.units / pairs) / launch.units
    share = max(machine.pair_bytes, rate / min(launch.running, pairs))
    return read * busiest / min(share, machine.receive_bytes)


def _written(work: Work, machine: Machine) -> float:
    """Bytes of results that reach memory, as whole lines that take as long.

    The cache holds a part of them until the kernel has ended; the kernel writes as many that the
    kernel before has left. Where rows do not begin at lines, clusters side by side write parts of
    the same lines, at different times.
    """
    taken = 0.0
    for tile in work.epilogue:
        if tile.stored:
            own = tile.elements * tile.size * tile.times
            across = (tile.rows if tile.transposed else tile.columns) * work.cluster[1] * tile.size
            parted = min(1.0, LINE_BYTES / across) if tile.aligned < LINE_BYTES else 0.0
            taken += own * (1 + machine.partial_lines_dram * parted)
    return taken


def read_bytes(work: Work, machine: Machine, launch: Launch, follow: bool = False) -> float:
    """Bytes that memory delivers to the L2 cache.

    Parameters
    ----------
    work : Work
    machine : Machine
    launch : Launch
    follow : bool
        Whether the cache follows the policies of loads; if not, it keeps what it usually keeps.
    """
    fixed = least = 0.0
    down, across = work.tiles
    for tile in work.epilogue:
        if not tile.stored:
            fixed += tile.elements * tile.size * tile.times
    loads = (*work.loads, *work.prologue)
    for load in loads:
        if follow and load.policy == DROPPED:
            fixed += min(_sweeps(load, work, launch), _MOST_READS) * load.total
            if _is_read_once(load, work):
                fixed -= machine.kept_inputs * min(load.total, machine.l2_capacity)
        else:
            least += load.total
        # Several clusters that read the same rows make both halves of the L2 cache read them.
        (by_row, by_column), (high, wide) = load.along, work.cluster
        if not by_row and down > high:
            fixed += machine.halves * load.total
        if not by_column and across > wide:
            fixed += machine.halves * load.total
    if least <= machine.l2_capacity:
        return fixed + least
    # Tiles that run at a time form a block; each block loads its operands.
    rows = min(down, work.group * work.cluster[0])
    columns = max(1.0, min(across, launch.running / work.split_k / rows))
    if work.stream_k and launch.units % launch.slots:
        # CTAs are at different steps: what some have loaded others load later, and half of the
        # sharing (of the logarithm) is lost.
        rows, columns = max(1.0, rows**0.5), max(1.0, columns**0.5)
    blocks = max(1.0, down * across / (rows * columns)) * work.batch
    each = once = 0.0
    moved = [_of_block(load, rows, columns) * load.tile_bytes for load in loads]
    stays = sum(moved) <= machine.l2_capacity
    for load, bytes_ in zip(loads, moved, strict=True):
        if follow and load.policy == DROPPED:
            continue
        held = follow and load.policy == KEPT and load.total <= machine.l2_capacity
        # What each block loads as a whole is still there, if a block has no more than fits.
        held = held or (stays and bytes_ >= load.total)
        if held or shared_unseen(load, work) > 1:
            once += load.total
        else:
            each += bytes_
    return fixed + max(least, min(blocks * each + once, _MOST_READS * least))


def _of_block(load: Load, rows: float, columns: float) -> float:
    """Tiles of a block that load different bytes."""
    return (rows if load.along[0] else 1) * (columns if load.along[1] else 1)


def policies_of(
    work: Work, machine: Machine, launch: Launch, moved: Moved, loop: float, dram: float
) -> float:
    """Cycles that policies and prefetches add to a launch; negative where they gain.

    Parameters
    ----------
    work : Work
    machine : Machine
    launch : Launch
    moved : Moved
        That of :func:`moved_of`.
    loop, dram : float
        Cycles of the loop, and of memory without policies.
    """
    has_policies = any(load.policy for load in (*work.loads, *work.prologue))
    prefetch = prefetch_of(work, machine, launch)
    if not has_policies and prefetch == NOTHING:
        return 0.0
    cycles = dram_cycles(work, machine, launch, moved, True, prefetch.ahead)
    order = machine.overlap_dram
    return joined(order, loop, cycles) - joined(order, loop, dram) + prefetch.queue


def _is_read_once(load: Load, work: Work) -> bool:
    """Whether no two clusters load the same bytes."""
    dimensions = zip(load.along, work.tiles, work.cluster, strict=True)
    return all(moves or tiles <= ctas for moves, tiles, ctas in dimensions)


def _sweeps(load: Load, work: Work, launch: Launch) -> float:
    """How often tiles that run one after the other load the same bytes.

    What the cache drops first is gone by then: other bytes, such as results, take its place.
    """
    moved = zip(load.along, work.tiles, launch.block, strict=True)
    return math.prod(max(1.0, tiles / at_once) for moves, tiles, at_once in moved if not moves)
