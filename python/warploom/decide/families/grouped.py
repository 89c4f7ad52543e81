"""Configs for :mod:`warploom.programs.gemm_grouped`, by the model of products.

A tile has rows of one group, so that the last one of a group is filled in part. How many tiles
there are follows from the sizes of groups, which only the device knows: here they are those of an
exponential distribution, the least certain one of a mean. The model is asked about a product of
that many full tiles, which reads the weights of all groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from warploom.decide.candidates import most_stages
from warploom.decide.config import Config
from warploom.decide.machine import Machine
from warploom.decide.model import predict
from warploom.decide.problem import plain_gemm
from warploom.target.dtypes import bits_of

#: Bytes along K of one step: a row of the widest swizzle.
_STEP_BYTES = 128
#: Rows of X and of W of a tile, the usual one first: of those that were measured for 8 and 64
#: groups (H200, 2026-11-22), one or the other was within 3 % of the best. Clusters of two, which
#: share X, took 1 to 7 % longer where groups have many rows, and up to 30 % where they have few.
_TILES = ((128, 256), (64, 256))
#: What the model must promise of another tile than the usual one.
_WORTH = 1.03
#: Stages where the sizes are so small or odd that the model has no plain product for them.
_STAGES = 4
#: Rows of a group, on average, if a call decides.
_UNKNOWN_ROWS = 512


@dataclass(frozen=True)
class GroupedProblem:
    """A GEMM with other weights for each group of rows.

    Attributes
    ----------
    groups : int
    m : int or None
        Rows of all groups together; None if a call decides.
    n, k : int
        Of the weights of a group.
    dtype, out_dtype : str
        Of operands and of the result.
    """

    groups: int
    m: int | None
    n: int
    k: int
    dtype: str = "float16"
    out_dtype: str = "float16"


def choose_grouped(grouped: GroupedProblem, machine: Machine) -> Config:
    """The config for a problem: rows of X are ``tile_m``, rows of W ``tile_n``."""
    groups, n, k, size = grouped.groups, grouped.n, grouped.k, bits_of(grouped.dtype)
    depth = _STEP_BYTES * 8 // size
    rated = {}
    for rows, columns in _TILES:
        config = Config(rows, columns, depth, stages=2, consumers=min(2, rows // 64))
        many = row_tiles(groups, grouped.m or groups * _UNKNOWN_ROWS, rows)
        problem = plain_gemm(many * rows, n, k, grouped.dtype, grouped.out_dtype)
        stages = most_stages(config, problem)
        config = replace(config, stages=max(2, stages))
        if stages >= 2 and config.why_not(problem) is None:
            weights = groups * n * k * size / 8 / machine.dram_bytes
            prediction = predict(problem, config, machine)
            time = replace(prediction, dram=max(prediction.dram, weights)).total
            rated[config] = time * (_WORTH if rated else 1.0)
    if not rated:
        return Config(*_TILES[0], depth, stages=_STAGES)
    return min(rated, key=rated.__getitem__)


def row_tiles(groups: int, m: int, rows: int) -> int:
    """How many tiles of so many rows the groups of ``m`` rows have, as far as that is known."""
    return max(1, round(groups / -math.expm1(-rows * groups / max(m, 1))))

