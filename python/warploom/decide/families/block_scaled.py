"""Configs for :mod:`warploom.programs.gemm_block_scaled`: an estimate of cycles.

A thread holds its sums and, beside them, the product of one block: 64 x 192 elements of each fill
the registers of a warpgroup, or three times 64 x 128 where two products are under way. The
estimate counts waves of tiles over the SMs. For many rows, what a block and what a tile takes is
measured; for few, a block takes as long as the tensor core multiplies, or as long as L2 delivers,
whichever is longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from warploom.decide.candidates import STREAMING_ROWS
from warploom.decide.config import Config
from warploom.target import SM90A
from warploom.target.arch import Gpu

#: K of one scale, and columns of B of one.
BLOCK = 128
#: Rows of A, rows of B, K of a step, for up to so many rows of A.
_TILES, _FEW_ROWS = ((128, 128, 256), (128, 192, 128), (64, 128, 256), (64, 64, 256)), 256
#: For so few rows that each weight is read once: weights leave the L2 cache first, and A and the
#: scales are still there when they are used again. Six products of 128 rows gained 0 to 23 % by it
#: (H200, 2026-11-23 00:40).
_STREAMING = 1
#: Rows of A that are made for if a call decides.
_UNKNOWN_ROWS = 4096
#: Bytes of shared memory for stages; chunks of results, two of two warpgroups, need the rest.
_STAGE_BYTES = 194 * 1024
_MOST_STAGES = 8
#: Products of 8-bit floats of an SM in a cycle, and bytes that L2 delivers to one.
_PRODUCTS, _L2_BYTES = 4096, 48
#: Cycles of a tile beside its blocks: the first load, and the result.
_TILE_CYCLES = 1000


@dataclass(frozen=True)
class BlockScaledProblem:
    """C = A B^T with a scale for each block of 128 elements along K.

    Attributes
    ----------
    m : int or None
        Rows of A; None if a call decides.
    n, k : int
        Rows of B, and the extent of K.
    arch : str
    """

    m: int | None
    n: int
    k: int
    arch: str = SM90A.name


@dataclass(frozen=True)
class _Large:
    """A config for many rows.

    Attributes
    ----------
    block, tile : int
        Cycles of a block, and of all else of a tile: fitted to what products with 4096 rows take
        on an H200, ``results/2026-11-22-h200-block-scaled.md``.
    """

    config: Config
    block: int
    tile: int

    def cycles(self, problem: BlockScaledProblem, m: int, gpu: Gpu) -> int:
        """An estimate for a problem."""
        blocks = -(-problem.k // BLOCK) * self.block
        return _waves(self.config, problem.n, m, gpu) * (blocks + self.tile)


_LARGE = (
    _Large(
        Config(128, 192, 128, 4, cluster_m=2, store_buffers=3, scales_ahead=True), 1200, 820
    ),
    _Large(
        Config(256, 128, 128, 4, cluster_n=2, order_mmas=True, scales_ahead=True), 1650, 1640
    ),
)  # fmt: skip


def choose_block_scaled(problem: BlockScaledProblem, gpu: Gpu) -> Config:
    """The config for a problem; :class:`Config` says what of it a program follows."""
    m = _UNKNOWN_ROWS if problem.m is None else problem.m
    if m > _FEW_ROWS:
        best = min(_LARGE, key=lambda tile: tile.cycles(problem, m, gpu)).config
        # MMAs in order are those of warpgroups of wgmma.
        return best if problem.arch == SM90A.name else replace(best, order_mmas=False)
    found = [
        Config(rows, columns, depth, consumers=rows // 64, cluster_m=_multicast(rows, m))
        for rows, columns, depth in _TILES
    ]
    best = min(found, key=lambda config: _cycles(config, problem, m, gpu))
    size = (best.tile_m + best.tile_n) * best.tile_k
    policy = _STREAMING if m <= STREAMING_ROWS else 0
    return replace(best, stages=min(_MOST_STAGES, _STAGE_BYTES // size), l2_policy=policy)


def _multicast(rows: int, m: int) -> int:
    """CTAs of a cluster, which share the rows of B."""
    return 2 if m > rows else 1


def _cycles(config: Config, problem: BlockScaledProblem, m: int, gpu: Gpu) -> float:
    rows, columns, multicast = config.tile_m, config.tile_n, config.cluster_m
    multiply = rows * columns * BLOCK / _PRODUCTS
    load = (rows + columns / multicast) * BLOCK / _L2_BYTES
    blocks = -(-problem.k // BLOCK) * max(multiply, load)
    return _waves(config, problem.n, m, gpu) * (blocks + _TILE_CYCLES)


def _waves(config: Config, n: int, m: int, gpu: Gpu) -> int:
    """How many tiles the busiest SM computes, one after the other."""
    down, across = -(-m // config.tile_m), -(-n // config.tile_n)
    clusters = -(-down // config.cluster_m) * -(-across // config.cluster_n)
    return -(-clusters // (gpu.sms // (config.cluster_m * config.cluster_n)))
