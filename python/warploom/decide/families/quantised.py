"""Configs for :mod:`warploom.programs.gemm_quantised`, by the model of costs.

Few rows of X take as long as the weights take to arrive: then as many SMs as possible read, each
far ahead, so that tiles are small, and those that are too few for all SMs are cut along K. With
more rows, weights are dequantised again for each tile of rows, and each tile of W loads all of X:
then tiles with up to 256 rows of X take less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

from warploom.decide.config import Config
from warploom.decide.families.ranked import (
    ranked,
    why_no_room,
    why_not_usual,
    with_stages,
)
from warploom.decide.machine import Machine
from warploom.decide.price.model import price
from warploom.decide.price.quantised import quantised_work
from warploom.decide.problem import GemmProblem
from warploom.errors import IllegalCombination
from warploom.layout.weight_order import weights_of_block
from warploom.target import ARCHS, SM90A, WGMMA_M
from warploom.target.swizzle import ATOM_ROWS
from warploom.tile.choices import REDUCING_CLUSTERS

#: Rows of X that are made for if a call decides.
_UNKNOWN_ROWS = 16
#: Rows of X of a tile where there are more; others are even shares of few rows.
_ROWS, _MOST_SHARES = (64, 128, 192, 256), 4
#: Warpgroups that multiply, each 64 rows of W, and K of a step.
_CONSUMERS, _DEPTHS = (1, 2, 3), (256, 128, 64)
#: How CTAs and warpgroups share tiles, and how many of an SM do.
_SHARES: tuple[dict[str, Any], ...] = (
    {"cluster_m": 2}, {"cluster_m": 4}, {"cluster_n": 2}, {"stream_k": True}, {},
    *({"split_k": parts, "reduce_through": "cluster"} for parts in REDUCING_CLUSTERS),
    {"ctas_per_sm": 2},
)  # fmt: skip
#: Warpgroups that share steps do so without CTAs that share X: both together took 0.97 to 1.05 of
#: the time of slices alone, in three of three GEMMs (H200, 2026-11-21).
_SLICES = (3, 2, 1)
#: Up to so many rows of X, CTAs that share tiles of several warpgroups by stream-K took 1.02 to
#: 1.17 of the time of other shares, in all of four GEMMs (H200, 2026-11-21).
_SHARED_ROWS = 64
#: Of other architectures than Hopper: sums of slices and of clusters are those of ``wgmma``.
_OTHER_SHARES, _OTHER_ROWS = ({}, {"cluster_m": 2}), (8, 16, 32, 64)
#: Choices that the program makes itself.
_FIXED = ("raster", "group")
#: Bytes of an element of X, the scales and the result.
_BYTES = 2


@dataclass(frozen=True)
class QuantisedProblem:
    """C = X W^T with packed weights.

    Attributes
    ----------
    m : int or None
        Rows of X; None if a call decides.
    n, k : int
        Rows of W, and the extent of K.
    bits : int
        Of a weight.
    arch : str
    group : int
        Weights along K that share a scale.
    dtype : str
        Of X, the scales and C.
    order : str
        Of the weights in a row, a key of :data:`~warploom.layout.weight_order.WEIGHT_ORDERS`.
    """

    m: int | None
    n: int
    k: int
    bits: int = 4
    arch: str = SM90A.name
    group: int = 128
    dtype: str = "float16"
    order: str = "fragments"

    @property
    def block(self) -> int:
        """Weights along K that are stored together: K of a step is a multiple."""
        return weights_of_block(self.bits, self.order)


def choose_quantised(problem: QuantisedProblem, machine: Machine) -> Config:
    """The config for a problem: rows of X are ``tile_m``, rows of W ``tile_n``.

    Raises
    ------
    IllegalCombination
        If none is legal; the message says which K has one.
    """
    return quantised_configs(problem, machine)[0]


def quantised_configs(problem: QuantisedProblem, machine: Machine) -> list[Config]:
    """The legal configs that are worth a measurement, the fastest by the model first.

    Raises
    ------
    IllegalCombination
        If none is legal.
    """
    found = _configs(problem, machine)
    if not found:
        raise IllegalCombination(
            f"k {problem.k} with groups of {problem.group} and {problem.bits}-bit weights that are "
            f"stored {problem.block} together: a step has {', '.join(map(str, _DEPTHS))} of K, "
            "which divides k and is a multiple of the others, or divides the group; pad the "
            "weights."
        )
    return list(found)


def why_not_quantised(problem: QuantisedProblem, config: Config) -> str | None:
    """Why no kernel for a problem can have these choices; None if a kernel can."""
    depth, arch = config.tile_k, ARCHS[problem.arch]
    if not _divides(problem, depth):
        return (
            f"tile_k = {depth}: it must divide k {problem.k}, be a multiple of the {problem.block} "
            f"weights that lie together, and a multiple or a part of the group {problem.group}."
        )
    for tile, ctas, name in (
        (config.tile_m, config.cluster_m, "cluster_m"),
        (config.tile_n, config.cluster_n, "cluster_n"),
    ):
        if ctas > 1 and tile % (ctas * ATOM_ROWS):
            return (
                f"{name} = {ctas}: each CTA loads whole swizzle atoms of {ATOM_ROWS} rows, and the "
                f"tile that they share has {tile}."
            )
    gemm = _gemm(problem)
    if reason := why_not_usual(config, _FIXED, "tiles are visited row after row of X"):
        return reason
    return config.why_not(gemm, arch) or why_no_room(
        config, gemm, _stage(problem, config), arch, _aside(problem, config)
    )


def deepest_quantised(problem: QuantisedProblem, config: Config) -> Config | None:
    """A config with as many stages as fit and help; None if no kernel has its other choices."""
    found = with_stages(
        config.replace(stages=config.slice_k), _gemm(problem), _stage(problem, config),
        ARCHS[problem.arch], _aside(problem, config),
    )  # fmt: skip
    return found if found is not None and why_not_quantised(problem, found) is None else None


@lru_cache(maxsize=512)
def _configs(problem: QuantisedProblem, machine: Machine) -> tuple[Config, ...]:
    problem = replace(problem, m=problem.m or _UNKNOWN_ROWS)
    return tuple(ranked(
        _candidates(problem, machine), lambda config: predicted(problem, config, machine)
    ))  # fmt: skip


def predicted(problem: QuantisedProblem, config: Config, machine: Machine) -> float:
    """The predicted microseconds of a kernel with a legal config."""
    m = problem.m or _UNKNOWN_ROWS
    work = quantised_work(
        m, problem.n, problem.k, problem.bits, problem.group, problem.dtype, config
    )
    return price(work, machine).total


def _candidates(problem: QuantisedProblem, machine: Machine) -> Iterator[Config]:
    """Legal configs whose tiles and clusters the problem has a use for."""
    hopper = problem.arch == SM90A.name
    tiles = product(
        _SHARES if hopper else _OTHER_SHARES, _rows(problem.m, hopper),
        _CONSUMERS if hopper else _CONSUMERS[:2],
        [depth for depth in _DEPTHS if _divides(problem, depth)],
    )  # fmt: skip
    for share, rows, consumers, depth in tiles:
        tile = Config(
            rows, WGMMA_M * consumers, depth, stages=1, consumers=consumers, swap_ab=True, **share
        )
        if not _is_of_use(share, tile, problem, machine):
            continue
        for slice_k in _slices(share, consumers) if hopper else (1,):
            found = deepest_quantised(problem, tile.replace(stages=slice_k, slice_k=slice_k))
            if found is not None:
                yield found


def _slices(share: dict[str, Any], consumers: int) -> tuple[int, ...]:
    """Warpgroups that may share the steps of a tile."""
    alone = consumers == 1 and not share.keys() & {"cluster_m", "cluster_n"}
    return _SLICES if alone else (1,)


def _is_of_use(
    share: dict[str, Any], tile: Config, problem: QuantisedProblem, machine: Machine
) -> bool:
    """Whether there are tiles for all CTAs of a cluster, and few enough to be cut."""
    tiles = -(-problem.n // tile.tile_n), -(-problem.m // tile.tile_m)
    if tiles[0] < share.get("cluster_m", 1) or tiles[1] < share.get("cluster_n", 1):
        return False
    if "stream_k" in share:
        return tile.consumers == 1 or tile.tile_m > _SHARED_ROWS
    return "split_k" not in share or math.prod(tiles) * share["split_k"] <= 2 * machine.sms


def _rows(m: int, hopper: bool) -> list[int]:
    """Rows of X of a tile: those of the table that are fewer, and even shares of few rows."""
    if not hopper:
        return [next((rows for rows in _OTHER_ROWS if rows >= m), _OTHER_ROWS[-1])]
    shares = (-(-m // parts) for parts in range(1, _MOST_SHARES + 1))
    even = {-(-rows // ATOM_ROWS) * ATOM_ROWS for rows in shares}
    fewer = {rows for rows in _ROWS if rows < m}
    return sorted({rows for rows in even if rows <= max(_ROWS)} | fewer, reverse=True)


def _divides(problem: QuantisedProblem, depth: int) -> bool:
    """Whether steps of K have whole groups of weights, or parts of one."""
    group = problem.group
    whole = problem.k % depth == 0 and depth % problem.block == 0
    return whole and (depth % group == 0 or group % depth == 0)


def _gemm(problem: QuantisedProblem) -> GemmProblem:
    """The GEMM, whose B is computed of what lies in memory."""
    return GemmProblem(
        problem.m, problem.n, problem.k, 1, problem.dtype, problem.dtype, "NT", "float32", 1, 16.0,
        float(problem.bits), (), (problem.dtype,), computed=(False, True),
    )  # fmt: skip


def _aside(problem: QuantisedProblem, config: Config) -> int:
    """Bytes of dequantised weights in shared memory, where MMAs read no registers."""
    return 0 if problem.arch == SM90A.name else config.tile_n * config.tile_k * _BYTES


def _stage(problem: QuantisedProblem, config: Config) -> tuple[int, int, int]:
    """Bytes that a stage has of X, the weights and the scales."""
    depth = config.tile_k
    return (
        config.tile_m * depth * _BYTES,
        config.tile_n * depth * problem.bits // 8,
        max(1, depth // problem.group) * config.tile_n * _BYTES,
    )
