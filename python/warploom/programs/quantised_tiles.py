"""Tiles, stages and hints for :mod:`warploom.programs.gemm_quantised`, as measured on an H200.

Reading the weights takes the time, so as many SMs as possible read, each far ahead. A tile of 64
rows of W, the least that ``wgmma`` takes, keeps most of them busy; three warpgroups that take turns
with its steps dequantise as fast as memory delivers. Each tile also reads all of X. From 64 rows
of X on that counts: tiles of 128 rows of W, in pairs of CTAs that share X, read less of it, where
there are enough of them.
"""

from __future__ import annotations

from typing import Any

from warploom.target.arch import GPUS

_SMS = GPUS["h200"].sms
#: Rows of X of a tile.
_ROWS = (8, 16, 32, 64)
#: Rows of X that are made for if a call decides.
_UNKNOWN_ROWS = 16
#: Bytes of shared memory for stages; sums and results need the rest.
_STAGE_BYTES = 200 * 1024
#: More stages were no faster.
_MOST_STAGES = 12
#: Warpgroups that take turns.
_TURNS = 3


def quantised_tiles(
    n: int, k: int, m: int | None = None, bits: int = 4
) -> tuple[tuple[int, int, int], int, dict[str, Any]]:
    """What suits a product of ``m`` rows with ``n`` x ``k`` weights.

    Returns
    -------
    tile : (int, int, int)
        Rows of X, rows of W, K of one step.
    stages : int
    hints : dict
        For :func:`warploom.language.hints`.
    """
    rows = next((r for r in _ROWS if r >= (m or _UNKNOWN_ROWS)), _ROWS[-1])
    tiles = -(-n // 64)
    if rows == _ROWS[-1]:
        if tiles > _SMS:
            tile = (rows, 128, 128)
            return tile, _stages(tile, bits), {"cluster": (2, 1)}
        tile = (rows, 64, 128)
        return tile, _stages(tile, bits), {"turns": _TURNS}
    tile = (rows, 64, 256 if k % 256 == 0 else 128)
    hints: dict[str, Any] = {"turns": _TURNS}
    if tiles > _SMS and tiles % _SMS:
        # The last round would leave SMs idle.
        hints["stream_k"] = True
    return tile, _stages(tile, bits), hints


def _stages(tile: tuple[int, int, int], bits: int) -> int:
    """As many as fit, the same number for each warpgroup."""
    rows, columns, depth = tile
    size = rows * depth * 2 + columns * depth * bits // 8 + columns * 2 * max(1, depth // 128)
    fitting = min(_MOST_STAGES, _STAGE_BYTES // size)
    return max(_TURNS, fitting // _TURNS * _TURNS)
