"""Configs near to others: one or two choices changed at random, for a search by measured times."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from warploom.errors import IllegalCombination
from warploom.gemm.candidates import (
    CLUSTERS,
    LARGE_CLUSTERS,
    SPLITS,
    has_neighbours,
    most_stages,
    streams_weights,
)
from warploom.gemm.choices import CLUSTER_SPLITS, L2_POLICIES, SMS, STORE_BUFFERS, STORE_COLUMNS
from warploom.gemm.knobs import GemmKnobs
from warploom.gemm.model import predict
from warploom.gemm.problem import GemmProblem

#: Choices that are changed at a time, at most.
_CHANGES = 2
#: Attempts to draw a config, of which many are illegal.
_ATTEMPTS = 200
#: A config that is predicted to take so many times as long as the best is not measured.
_HOPELESS = 3.0

Change = Callable[[GemmKnobs, random.Random], GemmKnobs]


def _tile(tiles: Sequence[GemmKnobs]) -> Change:
    names = ("tile_m", "tile_n", "tile_k", "consumers", "swap_ab", "ping_pong")

    def change(config: GemmKnobs, rng: random.Random) -> GemmKnobs:
        tile = rng.choice(tiles)
        stores = {"store_columns": STORE_COLUMNS[0], "store_buffers": STORE_BUFFERS[0]}
        return replace(config, **{name: getattr(tile, name) for name in names}, **stores)

    return change


def _cluster(config: GemmKnobs, rng: random.Random) -> GemmKnobs:
    down, across = rng.choice(CLUSTERS + LARGE_CLUSTERS)
    return replace(config, cluster_m=down, cluster_n=across, in_cluster=False)


def _sums(config: GemmKnobs, rng: random.Random) -> GemmKnobs:
    ways = [{"split_k": parts} for parts in SPLITS] + [{"stream_k": True}]
    ways += [
        {"split_k": parts, "in_cluster": True, "cluster_m": 1, "cluster_n": 1}
        for parts in CLUSTER_SPLITS
    ]
    plain = replace(config, split_k=1, in_cluster=False, stream_k=False)
    return replace(plain, **rng.choice(ways))


def _grid(config: GemmKnobs, rng: random.Random) -> GemmKnobs:
    persistent, specialise = rng.choice((True, False)), rng.choice((True, False))
    return replace(config, persistent=persistent, specialise=specialise, sms=SMS[0])


def _one_of(name: str, values: Sequence[int]) -> Change:
    return lambda config, rng: replace(config, **{name: rng.choice(values)})


def changes(problem: GemmProblem, tiles: Sequence[GemmKnobs]) -> tuple[Change, ...]:
    """The changes of one choice; tiles and clusters, which matter most, are listed twice."""
    streams = (False, True) if streams_weights(problem) else (False,)
    tile = _tile(tiles)
    return (
        tile, tile, _cluster, _cluster, _sums, _grid,
        _one_of("ctas_per_sm", (1, 2, 3)), _one_of("group", (1, 2, 4, 8, 16, 32)),
        _one_of("store_columns", STORE_COLUMNS), _one_of("store_buffers", STORE_BUFFERS),
        _one_of("l2_policy", L2_POLICIES), _one_of("prefetch_l2", streams), _one_of("sms", SMS),
        _one_of("consumers", (1, 2, 3)), _one_of("ping_pong", (False, True)),
    )  # fmt: skip


def deepest(problem: GemmProblem, config: GemmKnobs) -> GemmKnobs | None:
    """A config with as many stages as fit; None if it is illegal so."""
    try:
        stages = most_stages(replace(config, stages=1), problem)
        config = replace(config, stages=max(1, stages))
        legal = stages >= 2 and config.why_not(problem) is None
    except IllegalCombination:
        return None
    return config if legal and has_neighbours(problem, config) else None


def neighbours(
    problem: GemmProblem, near: Sequence[GemmKnobs], tiles: Sequence[GemmKnobs], count: int,
    seen: set[GemmKnobs], rng: random.Random,
) -> list[GemmKnobs]:  # fmt: skip
    """Legal configs that differ from one of ``near`` in one or two choices.

    Parameters
    ----------
    problem : GemmProblem
    near, tiles : sequence of GemmKnobs
        Configs to begin at, and configs whose tiles may be taken.
    count : int
        At most so many.
    seen : set of GemmKnobs
        Configs that are not drawn; those that are drawn are added.
    rng : random.Random
    """
    possible, drawn = changes(problem, tiles), []
    limit = _HOPELESS * min(predict(problem, config).total for config in near)
    for _ in range(_ATTEMPTS * count):
        if len(drawn) == count:
            break
        config = rng.choice(near)
        for _ in range(rng.randint(1, _CHANGES)):
            config = rng.choice(possible)(config, rng)
        made = deepest(problem, config)
        if made is not None and made not in seen and predict(problem, made).total <= limit:
            seen.add(made)
            drawn.append(made)
    return drawn
