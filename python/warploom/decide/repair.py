"""The legal config nearest to one that was drawn choice by choice.

A search draws each choice by itself, so that most combinations of tiles, warpgroups and clusters
are no kernels. Here the tile becomes that of the most similar legal tile; then the other choices
are made in the order of the table, each as it was drawn if it goes together with those before it,
and as it is by default if not. What is legal is left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from warploom.decide.candidates import (
    LARGE_CLUSTERS,
    LEAST_STAGES,
    fits_at_once,
    has_neighbours,
    most_stages,
)
from warploom.decide.config import Config
from warploom.decide.machine import H200, Machine
from warploom.decide.problem import GemmProblem
from warploom.decide.work import UNKNOWN_EXTENT
from warploom.tile.choices import ROWS, Flag

#: Choices that make a tile.
TILE = ("tile_m", "tile_n", "tile_k", "consumers", "swap_ab", "ping_pong", "ctas_per_sm")
#: How far flags that differ are apart, in doublings of an extent.
_FLAG = 3.0
#: Choices that are made one after the other, once the tile is known.
_OTHERS = tuple(row for row in ROWS if row.draws and row.name not in (*TILE, "stages"))
_TILE_ROWS = tuple(row for row in ROWS if row.name in TILE)


def why_not_search(
    problem: GemmProblem, config: Config, machine: Machine = H200
) -> str | None:
    """Why a search need not try a config; None if it may. It may be legal all the same."""
    reason = config.why_not(problem)
    if reason is not None:
        return reason
    if config.stages < LEAST_STAGES:
        return f"stages = {config.stages}: less than {LEAST_STAGES} load nothing ahead."
    k = problem.k or UNKNOWN_EXTENT
    if config.split_k > 1 and k // config.split_k < 2 * config.tile_k:
        return f"split_k = {config.split_k}: a part of {k} has less than two steps."
    if not has_neighbours(problem, config):
        return "Half of a cluster reaches beyond the last tile along a dimension."
    large = (config.cluster_m, config.cluster_n) in LARGE_CLUSTERS
    if large and not fits_at_once(problem, config, machine):
        return "Clusters of more than two CTAs leave SMs idle, and there are tiles for all."
    if config.sms >= machine.sms:
        return f"sms = {config.sms}: the GPU has {machine.sms}."
    return None


def nearest_legal(
    problem: GemmProblem, drawn: Config, tiles: Iterable[Config], machine: Machine = H200
) -> Config | None:
    """The config that a draw stands for; None if no stages fit.

    Parameters
    ----------
    problem : GemmProblem
    drawn : Config
        Any combination of choices.
    tiles : iterable of Config
        Legal configs, of which the nearest one's tile is taken. The others of their choices do not
        count.
    machine : Machine
        The GPU.
    """
    tile = min(tiles, key=lambda tile: _distance(tile, drawn))
    config = Config(**{name: getattr(tile, name) for name in TILE}, stages=LEAST_STAGES)
    for row in _OTHERS:
        value = getattr(drawn, row.name)
        if value == row.default:
            continue
        changed = replace(config, **{row.name: value})
        if row.name == "slice_k":  # each of its warpgroups needs a stage
            changed = replace(changed, stages=max(LEAST_STAGES, value))
        if row.name == "cluster_m" and drawn.cluster_n > 1:
            # Two of a cluster may be too many where four are not, and the other way round.
            both = replace(changed, cluster_n=drawn.cluster_n)
            if why_not_search(problem, both, machine) is None:
                config = both
                continue
        if row.name == "split_k" and drawn.through_cluster:
            both = replace(changed, reduce_through=drawn.reduce_through)
            if why_not_search(problem, both, machine) is None:
                config = both
                continue
        if why_not_search(problem, changed, machine) is None:
            config = changed
    most = most_stages(config, problem)
    stages = min(drawn.stages, most) // config.slice_k * config.slice_k
    if stages < LEAST_STAGES:
        stages = most // config.slice_k * config.slice_k
    config = replace(config, stages=max(1, stages))
    return config if why_not_search(problem, config, machine) is None else None


def _distance(tile: Config, drawn: Config) -> float:
    total = 0.0
    for row in _TILE_ROWS:
        is_, wanted = getattr(tile, row.name), getattr(drawn, row.name)
        if is_ != wanted:
            total += _FLAG if isinstance(row.kind, Flag) else abs(math.log2(is_ / wanted))
    return total
