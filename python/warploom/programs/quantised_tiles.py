"""Tiles, stages and hints for :mod:`warploom.programs.gemm_quantised`, as measured on an H200.

Reading the weights takes the time, so as many SMs as possible read, each far ahead. A tile of 64
rows of W, the least that ``wgmma`` takes, keeps most of them busy; three warpgroups that take turns
with its steps dequantise 28 bytes a nanosecond, and memory delivers 32 to each SM. Tiles too few
for all SMs are cut along K, and the CTAs of a cluster add their sums. Each tile also reads all of
X. From 64 rows of X on that counts: tiles of 128 rows of W, in pairs of CTAs that share X, read
less of it, where there are enough of them.
"""

from __future__ import annotations

from typing import Any

from warploom.target import SM90A
from warploom.target.gpus import GPUS
from warploom.tile.choices import MAX_CLUSTER

_SMS = GPUS["h200"].sms
#: Rows of X of a tile.
_ROWS = (8, 16, 32, 64)
#: Rows of X that are made for if a call decides.
_UNKNOWN_ROWS = 16
#: Bytes of shared memory for barriers, and for what the places of tiles lose to their alignment.
_SPARE_BYTES = 3 * 1024
#: More stages were no faster.
_MOST_STAGES = 12
#: Warpgroups that take turns.
_TURNS = 3
#: Microseconds that 128 products of each element of a tile take: 7.9, 13.3 and 19.9 are measured
#: with 4096, 8192 and 14336 products, a tile for each CTA, and up to 16 rows of X.
_DEPTH, _DEPTH_US = 128, 0.145
#: Microseconds until the first sums of other CTAs are there, and for those of each of them.
_MEETING_US, _SUM_US = 0.7, 0.3


def quantised_tiles(
    n: int, k: int, m: int | None = None, bits: int = 4, arch: str = SM90A.name
) -> tuple[tuple[int, int, int], int, dict[str, Any]]:
    """What suits a product of ``m`` rows with ``n`` x ``k`` weights.

    Returns
    -------
    tile : (int, int, int)
        Rows of X, rows of W, K of one step.
    stages : int
    hints : dict
        For :func:`warploom.tile.hints`.
    """
    rows = next((r for r in _ROWS if r >= (m or _UNKNOWN_ROWS)), _ROWS[-1])
    tiles = -(-n // 64)
    if rows == _ROWS[-1] and tiles > _SMS:
        tile = (rows, 128, 128)
        return tile, _stages(tile, bits, sums=0), {"cluster": (2, 1)}
    deep = k % 256 == 0 and rows < _ROWS[-1] and arch == SM90A.name
    tile = (rows, 64, 256 if deep else 128)
    if arch != SM90A.name:  # turns, and sums in clusters, are those of wgmma
        return tile, _stages(tile, bits, sums=0), {}
    hints: dict[str, Any] = {"slice_k": _TURNS}
    parts = _parts(tiles * -(-(m or rows) // rows), k)
    if parts > 1:
        hints |= {"split_k": parts, "reduce_through": "cluster"}
    elif tiles > _SMS and tiles % _SMS:
        # The last round would leave SMs idle.
        hints["stream_k"] = True
    return tile, _stages(tile, bits, sums=_TURNS - 1 + (parts > 1)), hints


def _parts(tiles: int, k: int) -> int:
    """CTAs that share each tile along K, of those numbers that leave none without a place."""
    choices = [1]
    while choices[-1] < MAX_CLUSTER and 2 * choices[-1] * tiles <= _SMS:
        choices.append(2 * choices[-1])

    def microseconds(parts: int) -> float:
        meeting = _MEETING_US + (parts - 1) * _SUM_US if parts > 1 else 0.0
        return -(-k // (parts * _DEPTH)) * _DEPTH_US + meeting

    return min(choices, key=microseconds)


def _stages(tile: tuple[int, int, int], bits: int, sums: int) -> int:
    """As many as fit beside the result and so many tiles of sums, the same for each warpgroup."""
    rows, columns, depth = tile
    size = rows * depth * 2 + columns * depth * bits // 8 + columns * 2 * max(1, depth // 128)
    left = SM90A.shared_bytes_per_block - _SPARE_BYTES - rows * columns * (2 + 4 * sums)
    fitting = min(_MOST_STAGES, left // size)
    return max(_TURNS, fitting // _TURNS * _TURNS)
