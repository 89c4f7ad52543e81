"""Rows of tiles that lie beyond the end of their matrix, which TMA fills with zeros.

No bytes move for them, and yet they take longer than rows of memory. So tiles that reach far over
the edge are slow: 64 rows of a matrix of 14, or the second 128 rows of 204.
"""

from __future__ import annotations

from warploom.decide.machine import Machine
from warploom.decide.price.launch import Launch
from warploom.decide.price.work import LINE_BYTES, SECTOR_BYTES, Load, Work


def filled_cycles(work: Work, machine: Machine, launch: Launch) -> float:
    """Cycles of a step in which TMA fills rows with zeros, of all CTAs.

    Padding of images is no part of it: taps beyond the edge are lines like others.
    """
    rows = 0.0
    for load in work.loads:
        beyond = _beyond(load, work) if load.tma and not load.of_taps else 0.0
        if beyond and load.row_bytes >= SECTOR_BYTES:
            lines = max(1.0, load.row_bytes / LINE_BYTES)
            rows += beyond / load.multicast * load.times * lines
    return launch.running * rows / machine.outside_rows


def _beyond(load: Load, work: Work) -> float:
    """Rows of a tile beyond the end, on average over the tiles; those of empty clusters count.

    None where tiles have other rows than those of one matrix, one after the other, such as rows of
    groups.
    """
    if load.rows >= load.extent:
        return float(load.rows - load.extent)
    if load.along not in ((True, False), (False, True)):
        return 0.0
    side = load.along.index(True)
    tiles, ctas = work.tiles[side], work.cluster[side]
    if tiles != -(-load.extent // load.rows):
        return 0.0
    tiles = -(-tiles // ctas) * ctas
    return (tiles * load.rows - load.extent) / tiles
