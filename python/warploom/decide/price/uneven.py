"""Tiles that differ in their steps: what the busiest CTA of a persistent grid computes.

A CTA takes every so-many-th tile of the grid's order, however long the tiles are. With a causal
mask the last tiles of a head have many times the steps of the first, and the order decides whether
some CTAs get the long ones: a grid that takes 0.6 of the time with another order is common.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def busiest(
    lengths: Sequence[float], across: int, batch: int, group: int, slots: int, beside: float
) -> tuple[float, int]:
    """Steps and tiles of the CTA that ends last.

    Parameters
    ----------
    lengths : sequence of float
        Steps of tiles, in the order of the dimension of the grid in which they differ.
    across, batch : int
        Tiles along the other dimension, of which ``group`` are visited together, and how often all
        of that is repeated.
    group : int
    slots : int
        CTAs that run at a time.
    beside : float
        What a tile takes beside its steps, in steps.

    Examples
    --------
    Two CTAs get the long and the short tiles of two heads that take turns, or some of both.

    >>> busiest([3, 1], 2, 1, 1, 2, 0.0), busiest([3, 1], 2, 1, 2, 2, 0.0)
    ((6.0, 2), (4.0, 2))
    """
    times = np.asarray(lengths, float)
    group = max(1, min(group, across))
    whole, rest = divmod(across, group)
    parts = [np.tile(np.repeat(times, group), whole), np.repeat(times, rest)]
    order = np.tile(np.concatenate(parts), batch)
    waves = -(-len(order) // slots)
    tiles = np.zeros(waves * slots)
    tiles[: len(order)] = order
    steps = tiles.reshape(waves, slots).sum(axis=0)
    counts = np.full(slots, waves)
    counts[len(order) - (waves - 1) * slots :] -= 1
    last = int(np.argmax(steps + beside * counts))
    return float(steps[last]), int(counts[last])
