"""Tiles, stages and hints for :mod:`warploom.programs.gemm_block_scaled`: an estimate of cycles.

A thread holds its sums and, beside them, the product of one block: 64 x 192 elements of each fill
the registers of a warpgroup, or three times 64 x 128 where two products are under way. The
estimate counts rounds of tiles over the SMs. For many rows, what a block and what a tile takes is
measured; for few, a block takes as long as the tensor core multiplies, or as long as L2 delivers,
whichever is longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from warploom.decide.candidates import STREAMING_ROWS
from warploom.target import SM90A
from warploom.target.gpus import GPUS

#: K of one scale, and columns of B of one.
BLOCK = 128
_SMS = GPUS["h200"].sms
#: Rows of A, rows of B, K of a step, for up to so many rows of A.
_TILES, _FEW_ROWS = ((128, 128, 256), (128, 192, 128), (64, 128, 256), (64, 64, 256)), 256
#: For so few rows that each weight is read once: weights leave the L2 cache first, and A and the
#: scales are still there when they are used again. Six products of 128 rows gained 0 to 23 % by it
#: (H200, 2026-11-23 00:40).
_STREAMING = {"weights_policy": "evict_first"}
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
class _Large:
    """A tile for many rows.

    Attributes
    ----------
    block, tile : int
        Cycles of a block, and of all else of a tile: fitted to what products with 4096 rows take
        on an H200, ``warploom_bench/results/2026-11-22-h200-block-scaled.md``.
    """

    shape: tuple[int, int, int]
    stages: int
    cluster: tuple[int, int]
    block: int
    tile: int
    others: dict[str, Any] = field(default_factory=dict)

    def cycles(self, n: int, k: int, m: int) -> int:
        """An estimate for a product."""
        blocks = -(-k // BLOCK) * self.block
        return _rounds(self.shape, self.cluster, n, m) * (blocks + self.tile)


_LARGE = (
    _Large((128, 192, 128), 4, (2, 1), 1200, 820, {"store_buffers": 3}),
    _Large((256, 128, 128), 4, (1, 2), 1650, 1640, {"order_mmas": True}),
)


def block_scaled_tiles(
    n: int, k: int, m: int | None = None, arch: str = SM90A.name
) -> tuple[tuple[int, int, int], int, dict[str, Any]]:
    """What suits a product of ``m`` rows with ``n`` x ``k`` weights on GPUs of an architecture.

    Returns
    -------
    tile : (int, int, int)
        Rows of A, rows of B, K of one step.
    stages : int
    others : dict
        Whether scales are loaded ahead, the policy for B, and hints.
    """
    m = _UNKNOWN_ROWS if m is None else m
    if m > _FEW_ROWS:
        best = min(_LARGE, key=lambda tile: tile.cycles(n, k, m))
        others = {"cluster": best.cluster, "scales_ahead": True, **best.others}
        if arch != SM90A.name:  # products in order are those of warpgroups of wgmma
            others.pop("order_mmas", None)
        return best.shape, best.stages, others
    tile = min(_TILES, key=lambda tile: _cycles(tile, n, k, m))
    stages = min(_MOST_STAGES, _STAGE_BYTES // ((tile[0] + tile[1]) * tile[2]))
    others = {"cluster": (_multicast(tile, m), 1)}
    return tile, stages, others | (_STREAMING if m <= STREAMING_ROWS else {})


def _multicast(tile: tuple[int, int, int], m: int) -> int:
    """CTAs of a cluster, which share the rows of B."""
    return 2 if m > tile[0] else 1


def _cycles(tile: tuple[int, int, int], n: int, k: int, m: int) -> float:
    rows, columns, _ = tile
    multicast = _multicast(tile, m)
    multiply = rows * columns * BLOCK / _PRODUCTS
    load = (rows + columns / multicast) * BLOCK / _L2_BYTES
    blocks = -(-k // BLOCK) * max(multiply, load)
    return _rounds(tile, (multicast, 1), n, m) * (blocks + _TILE_CYCLES)


def _rounds(tile: tuple[int, int, int], cluster: tuple[int, int], n: int, m: int) -> int:
    """How many tiles the busiest SM computes, one after the other."""
    rows, columns, _ = tile
    down, across = -(-m // rows), -(-n // columns)
    clusters = -(-down // cluster[0]) * -(-across // cluster[1])
    return -(-clusters // (_SMS // (cluster[0] * cluster[1])))
