"""Configs for :mod:`warploom.programs.gemm_quantised`, as measured on an H200.

Reading the weights takes the time, so as many SMs as possible read, each far ahead. A tile of 64
rows of W, the least that ``wgmma`` takes, keeps most of them busy; three warpgroups that share its
steps dequantise 28 bytes a nanosecond, and memory delivers 32 to each SM. Tiles too few for all SMs
are cut along K, and the CTAs of a cluster add their sums. Each tile also reads all of X. From 64
rows of X on that counts: tiles of 128 rows of W, in pairs of CTAs that share X, read less of it,
where there are enough of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from warploom.decide.config import Config
from warploom.target import SM90A
from warploom.target.arch import Gpu
from warploom.tile.choices import MAX_CLUSTER

#: Rows of X of a tile.
_ROWS = (8, 16, 32, 64)
#: Rows of X that are made for if a call decides.
_UNKNOWN_ROWS = 16
#: Bytes of shared memory for barriers, and for what the places of tiles lose to their alignment.
_SPARE_BYTES = 3 * 1024
#: More stages were no faster.
_MOST_STAGES = 12
#: Warpgroups that share the steps.
_SLICES = 3
#: Microseconds that 128 products of each element of a tile take: 7.9, 13.3 and 19.9 are measured
#: with 4096, 8192 and 14336 products, a tile for each CTA, and up to 16 rows of X.
_DEPTH, _DEPTH_US = 128, 0.145
#: Microseconds until the first sums of other CTAs are there, and for those of each of them.
_MEETING_US, _SUM_US = 0.7, 0.3


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
    """

    m: int | None
    n: int
    k: int
    bits: int = 4
    arch: str = SM90A.name


def choose_quantised(problem: QuantisedProblem, gpu: Gpu) -> Config:
    """The config for a problem: rows of X are ``tile_m``, rows of W ``tile_n``."""
    n, k, m, sms = problem.n, problem.k, problem.m, gpu.sms
    rows = next((r for r in _ROWS if r >= (m or _UNKNOWN_ROWS)), _ROWS[-1])
    tiles = -(-n // 64)
    plain = Config(rows, 64, 128, consumers=1, swap_ab=True)
    if rows == _ROWS[-1] and tiles > sms:
        wide = replace(plain, tile_n=128, consumers=2, cluster_m=2)
        return replace(wide, stages=_stages(wide, problem.bits, sums=0))
    if problem.arch != SM90A.name:  # slices of K, and sums in clusters, are those of wgmma
        return replace(plain, stages=_stages(plain, problem.bits, sums=0))
    deep = k % 256 == 0 and rows < _ROWS[-1]
    config = replace(plain, tile_k=256 if deep else 128, slice_k=_SLICES)
    parts = _parts(tiles * -(-(m or rows) // rows), k, sms)
    if parts > 1:
        config = replace(config, split_k=parts, reduce_through="cluster")
    elif tiles > sms and tiles % sms:
        # The last wave would leave SMs idle.
        config = replace(config, stream_k=True)
    return replace(config, stages=_stages(config, problem.bits, sums=_SLICES - 1 + (parts > 1)))


def _parts(tiles: int, k: int, sms: int) -> int:
    """CTAs that share each tile along K, of those numbers that leave none without a place."""
    choices = [1]
    while choices[-1] < MAX_CLUSTER and 2 * choices[-1] * tiles <= sms:
        choices.append(2 * choices[-1])

    def microseconds(parts: int) -> float:
        meeting = _MEETING_US + (parts - 1) * _SUM_US if parts > 1 else 0.0
        return -(-k // (parts * _DEPTH)) * _DEPTH_US + meeting

    return min(choices, key=microseconds)


def _stages(config: Config, bits: int, sums: int) -> int:
    """As many as fit beside the result and so many tiles of sums, the same for each warpgroup."""
    rows, columns, depth = config.tile_m, config.tile_n, config.tile_k
    size = rows * depth * 2 + columns * depth * bits // 8 + columns * 2 * max(1, depth // 128)
    left = SM90A.shared_bytes_per_block - _SPARE_BYTES - rows * columns * (2 + 4 * sums)
    fitting = min(_MOST_STAGES, left // size)
    return max(_SLICES, fitting // _SLICES * _SLICES)
