"""What a search may choose for one problem: for each packed knob its values, and how likely.

Values that no kernel of the problem can have are left out here, so that nearly all samples are
legal; how likely the others are is the analytic model's opinion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from warploom.errors import IllegalCombination
from warploom.gemm.candidates import (
    CLUSTERS,
    LARGE_CLUSTERS,
    SPLITS,
    fits_at_once,
    has_neighbours,
    most_stages,
    streams_weights,
    tiles,
)
from warploom.gemm.choices import CLUSTER_SPLITS
from warploom.gemm.choose import ranked
from warploom.gemm.knobs import GemmKnobs
from warploom.gemm.machine import H200, Machine
from warploom.gemm.model import predict
from warploom.gemm.packing import (
    CLUSTER,
    FEWER_SMS,
    FEWER_STAGES,
    GRID,
    IN_CLUSTER,
    L2_POLICY,
    LOAD_ONESELF,
    NARROW_STORES,
    OTHER_BUFFERS,
    PLAIN_GRID,
    PREFETCHES_L2,
    SHARING,
    STREAM_K,
    TILE,
    pack,
    pack_cluster,
    pack_tile,
)
from warploom.gemm.problem import GemmProblem
from warploom.gemm.work import UNKNOWN_EXTENT, sizes
from warploom.target.dtypes import bits_of

#: A kernel whose operands are not loaded ahead waits for every tile.
LEAST_STAGES = 2
_FEWER_STAGES = {0: 0.84, 1: 0.12, 2: 0.04}
_GROUPS = (1, 4, 8, 16)
#: Grids that are not as usual, which suit few products.
_GRIDS = {0: 0.8, PLAIN_GRID: 0.06, LOAD_ONESELF: 0.03, PLAIN_GRID + LOAD_ONESELF: 0.03,
          NARROW_STORES: 0.06, 2 * NARROW_STORES: 0.02, 2 * OTHER_BUFFERS: 0.1,
          FEWER_SMS: 0.1, FEWER_SMS + 2 * OTHER_BUFFERS: 0.05,
          L2_POLICY: 0.1, 2 * L2_POLICY: 0.1}  # fmt: skip
#: Tiles that CTAs share step by step, compared with whole ones.
_STREAM_K = 0.15
#: Clusters that few tiles suit, compared with others.
_LARGE_CLUSTER = 0.3
#: Elements of the largest tile of which an SM computes one at a time.
_LARGEST_TILE = 128 * 256
#: A tile has all of so few rows or columns.
_FEW_ROWS = 32
#: Parts of a sum are at least this many steps of the shallowest tiles long.
_STEPS_OF_A_PART = 4
_SHALLOWEST_BYTES = 128
#: A tile that is slower by this part is chosen 1/e times as often.
_TOLERANCE = 0.15
#: Tiles that a search chooses from: every record has the list.
_MOST_TILES = 96
#: Every value is chosen at least this often, compared with the likeliest.
_LEAST = 0.02
#: How often a search that begins at certain knobs keeps each of them.
_KEEP = 0.85


@dataclass(frozen=True)
class Options:
    """Values of the packed knobs, with probabilities.

    Attributes
    ----------
    values : mapping from str to tuple of int
        By the names of :mod:`warploom.gemm.packing`.
    weights : mapping from str to tuple of float
        As many for each name, of sum 1.
    """

    values: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, tuple[float, ...]]

    def around(self, packed: Mapping[str, int]) -> Options:
        """The same values, likely those of certain knobs."""
        weights = {}
        for name, values in self.values.items():
            rest = self.weights[name]
            kept = values.index(packed[name])
            share = _KEEP if len(values) > 1 else 0.0
            weights[name] = tuple(
                (1 - share) * probability + share * (number == kept)
                for number, probability in enumerate(rest)
            )
        return replace(self, weights=weights)

    def has(self, packed: Mapping[str, int]) -> bool:
        """Whether every value of certain knobs is among the options."""
        return all(packed[name] in values for name, values in self.values.items())


def options(problem: GemmProblem, machine: Machine = H200) -> Options:
    """The options for a problem.

    Raises
    ------
    IllegalCombination
        If no tile is legal.
    """
    groups: dict[str, dict[int, float]] = {
        TILE: _tiles(problem, machine),
        CLUSTER: _clusters(problem),
        FEWER_STAGES: dict(_FEWER_STAGES),
        SHARING: _sharing(problem),
        GRID: _grids(problem),
        "group": {group: 1.0 for group in _GROUPS},
    }
    values = {name: tuple(weighted) for name, weighted in groups.items()}
    weights = {name: _normalised(tuple(weighted.values())) for name, weighted in groups.items()}
    return Options(values, weights)


def seeds(
    problem: GemmProblem, count: int, machine: Machine = H200, known: GemmKnobs | None = None
) -> list[dict[str, int]]:
    """The packed knobs that the model predicts the shortest times for, the best first.

    No two of them have the same tile: what a tile is combined with, the search varies itself. Knobs
    that are known to be good go before all others.
    """
    allowed, found = options(problem, machine), {}
    likely = [config for _, config in ranked(problem, machine=machine)]
    for knobs in likely if known is None else (known, *likely):
        try:
            packed = pack(knobs, problem)
        except IllegalCombination:  # a tile that has no short form
            continue
        if allowed.has(packed):
            found.setdefault(packed[TILE], packed)
    return list(found.values())[:count]


def why_not(problem: GemmProblem, knobs: GemmKnobs) -> str | None:
    """Why a search need not try knobs; None if it may. They may be legal all the same."""
    reason = knobs.why_not(problem)
    if reason is not None:
        return reason
    if knobs.stages < LEAST_STAGES:
        return f"stages = {knobs.stages}: less than {LEAST_STAGES} load nothing ahead."
    k = problem.k or UNKNOWN_EXTENT
    if knobs.split_k > 1 and k // knobs.split_k < 2 * knobs.tile_k:
        return f"split_k = {knobs.split_k}: a part of {k} has less than two steps."
    if not has_neighbours(problem, knobs):
        return "Half of a cluster reaches beyond the last tile along a dimension."
    if (knobs.cluster_m, knobs.cluster_n) in LARGE_CLUSTERS and not fits_at_once(problem, knobs):
        return "Clusters of more than two CTAs leave SMs idle, and there are tiles for all."
    return None


def _tiles(problem: GemmProblem, machine: Machine) -> dict[int, float]:
    times: dict[int, float] = {}
    for tile in tiles(problem):
        for ctas in (1, 2):
            config = replace(tile, ctas_per_sm=ctas)
            stages = most_stages(config, problem)
            if stages < LEAST_STAGES:
                continue
            config = replace(config, stages=stages)
            if config.why_not(problem) is None:
                times[pack_tile(config)] = predict(problem, config, machine).total
    if not times:
        raise IllegalCombination(f"There are no legal tiles for {problem}.")
    ordered = sorted(times.values())
    best, slowest = ordered[0], ordered[min(_MOST_TILES, len(ordered)) - 1]
    return {
        tile: max(_LEAST, math.exp((1 - time / best) / _TOLERANCE))
        for tile, time in times.items()
        if time <= slowest
    }


def _grids(problem: GemmProblem) -> dict[int, float]:
    """Grids, half of them with a warm L2 cache where that may help."""
    if not streams_weights(problem):
        return dict(_GRIDS)
    return {grid + warm: weight for warm in (0, PREFETCHES_L2) for grid, weight in _GRIDS.items()}


def _clusters(problem: GemmProblem) -> dict[int, float]:
    """Clusters, for tiles along which there are several others; large ones for few tiles."""
    m, n, _, batch = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    clusters = dict.fromkeys(CLUSTERS, 1.0)
    if m * n * batch <= _LARGEST_TILE * H200.sms:
        clusters |= dict.fromkeys(LARGE_CLUSTERS, _LARGE_CLUSTER)
    return {
        pack_cluster(GemmKnobs(cluster_m=down, cluster_n=across)): weight
        for (down, across), weight in clusters.items()
        if (down == 1 or m > _FEW_ROWS) and (across == 1 or n > _FEW_ROWS)
    }


def _sharing(problem: GemmProblem) -> dict[int, float]:
    """Who computes parts of a sum."""
    weights = {parts: 1.0 / parts for parts in SPLITS if _can_split(problem, parts)}
    weights |= {IN_CLUSTER + parts: 1.0 / parts for parts in CLUSTER_SPLITS if parts in weights}
    if len(weights) > 1:
        weights[STREAM_K] = _STREAM_K
    return weights


def _can_split(problem: GemmProblem, parts: int) -> bool:
    depth = _SHALLOWEST_BYTES * 8 // bits_of(problem.a_dtype)
    k = sizes(problem)[2]
    return parts == 1 or (k or UNKNOWN_EXTENT) // parts >= _STEPS_OF_A_PART * depth


def _normalised(weights: Sequence[float]) -> tuple[float, ...]:
    total = sum(weights)
    return tuple(weight / total for weight in weights)
