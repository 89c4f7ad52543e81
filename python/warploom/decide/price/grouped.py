"""The work of :mod:`warploom.programs.gemm_grouped` with a config, by formulas.

Tiles of rows are as many as a launch has numbers for; of how many tiles groups need, memory
decides. Who ranks configs passes the number that is expected.
"""

from __future__ import annotations

from warploom.decide.config import Config
from warploom.decide.price.chunks import alignment, store_lines
from warploom.decide.price.matrices import shared_by
from warploom.decide.price.work import (
    Load,
    Mma,
    TileOut,
    Work,
    cut_rows,
    lines_touched,
)
from warploom.target import wgmma_kind
from warploom.target.dtypes import bits_of
from warploom.tile.choices import POLICIES

#: Bytes of a sum.
_SUM_BYTES = 4


def grouped_work(
    groups: int, m: int, n: int, k: int, dtype: str, out_dtype: str, config: Config,
    row_tiles: int,
) -> Work:  # fmt: skip
    """What the kernel does.

    Parameters
    ----------
    groups, m, n, k : int
        Weights; rows of all groups together; rows and columns of a weight.
    dtype, out_dtype : str
        Of operands, and of the result.
    config : Config
        Rows of X are ``tile_m``, rows of W ``tile_n``.
    row_tiles : int
        Tiles of rows of all groups together.
    """
    loads, out, tiles = grouped_parts(groups, m, n, k, dtype, out_dtype, config, row_tiles)
    mma = Mma(wgmma_kind(dtype, dtype, "float32"), *config.accumulator, config.tile_k)
    return Work(
        tiles, 1, -(-k // config.tile_k), loads, (mma,), (out,),
        sum_bytes=float(config.tile_m * config.tile_n * _SUM_BYTES),
        **launched(config),
    )  # fmt: skip


def grouped_parts(
    groups: int, m: int, n: int, k: int, dtype: str, out_dtype: str, config: Config,
    row_tiles: int,
) -> tuple[tuple[Load, ...], TileOut, tuple[int, int]]:  # fmt: skip
    """The loads of a step, the result, and the grid; parameters as in :func:`grouped_work`."""
    rows, columns, depth = config.tile_m, config.tile_n, config.tile_k
    across, width = side_by_side(n, columns, config.cluster_n)
    size = bits_of(dtype) / 8
    lines, steps = lines_touched(depth * size, k * size), -(-k // depth)
    cut = cut_rows(k * size, depth * size)
    of_a, of_b = POLICIES[config.l2_policy]
    of_x = Load(
        rows, depth * size, m, (True, False),
        shared_by((True, False), (config.cluster_m, config.cluster_n), rows), lines,
        min(m * k, steps * rows * depth) * size, m * k * size, policy=of_a or "", cut=cut,
    )  # fmt: skip
    of_w = Load(
        columns, depth * size, n, (True, True), 1, lines,
        min(groups * n * k, steps * columns * depth) * size, groups * n * k * size,
        policy=of_b or "", cut=cut,
    )  # fmt: skip
    size, chunk = bits_of(out_dtype) / 8, config.store_columns
    pitch = n * size
    out = TileOut(
        *config.accumulator, size, config.swap_ab, chunk, store_lines(columns, size, chunk, pitch),
        alignment(pitch), float(min(m * n, row_tiles * across * width * rows * columns)),
    )  # fmt: skip
    return (of_x, of_w), out, (row_tiles * across, width)


def launched(config: Config) -> dict[str, object]:
    """How CTAs of a kernel for groups load and share tiles, as fields of a work."""
    return {
        "stages": config.stages, "consumers": config.consumers,
        "cluster": (config.cluster_m, config.cluster_n), "group": 1, "pdl": False,
        "split_k": config.split_k, "in_cluster": config.through_cluster,
    }  # fmt: skip


def side_by_side(n: int, tile_columns: int, width: int) -> tuple[int, int]:
    """Clusters, and tiles of a cluster, side by side in ``n`` columns.

    Tiles that do not fill clusters are clusters of one tile.
    """
    tiles = -(-n // tile_columns)
    return (tiles // width, width) if tiles % width == 0 else (tiles, 1)
