"""The work of the programs with block scales and a config, by formulas: plain and grouped."""

from __future__ import annotations

import math

from warploom.decide.config import Config
from warploom.decide.price.chunks import alignment, store_lines
from warploom.decide.price.grouped import grouped_parts, launched
from warploom.decide.price.matrices import shared_by
from warploom.decide.price.work import (
    UNKNOWN_EXTENT,
    Load,
    Mma,
    Nest,
    TileOut,
    Wait,
    Work,
    cut_rows,
    lines_touched,
)
from warploom.target import WgmmaKind, wgmma_kind
from warploom.target.dtypes import bits_of
from warploom.tile.choices import POLICIES

#: K of one scale, and columns of B of one.
BLOCK = 128
#: Rows of a tile whose accumulator fits in registers.
MOST_ROWS = 192
#: Bytes of a result, and of a sum.
_BYTES, _SUM_BYTES = 2, 4


def block_scaled_work(
    m: int | None, n: int, k: int, dtype: str, out_dtype: str, config: Config
) -> Work:
    """What :mod:`warploom.programs.gemm_block_scaled` does; unknown rows are ``UNKNOWN_EXTENT``.

    Parameters
    ----------
    m, n, k : int
        Rows of A, rows of B, and the extent of K; None for rows that a call decides.
    dtype, out_dtype : str
        Of A and B, and of the result.
    config : Config
        Rows of A are ``tile_m``, rows of B ``tile_n``.
    """
    m = m or UNKNOWN_EXTENT
    rows, columns, depth = config.tile_m, config.tile_n, config.tile_k
    cluster = (config.cluster_m, config.cluster_n)
    tiles = -(-m // rows), -(-n // columns)
    each, bands = depth // BLOCK, bands_of(rows)
    band, products = rows // bands, each * bands
    size = bits_of(dtype) / 8
    row_bytes, lines = depth * size, lines_touched(depth * size, k * size)
    policy, cut = POLICIES[config.l2_policy][1] or "", cut_rows(k * size, row_bytes)
    of_a = Load(
        rows, row_bytes, m, (True, False), shared_by((True, False), cluster, rows), lines,
        rows * k * size, m * k * size, cut=cut,
    )  # fmt: skip
    of_b = Load(
        columns, row_bytes, n, (False, True), shared_by((False, True), cluster, columns), lines,
        columns * k * size, n * k * size, policy=policy, cut=cut,
    )  # fmt: skip
    chunk, pitch = config.store_columns, n * _BYTES
    out = TileOut(
        band, columns, float(bits_of(out_dtype) // 8), False, chunk,
        store_lines(columns, _BYTES, chunk, pitch), alignment(pitch),
        float(min(m * n, math.prod(tiles) * band * columns)),
    )  # fmt: skip
    return Work(
        tiles, 1, -(-k // depth), (of_a, of_b),
        (Mma(_kind(dtype), band, columns, BLOCK, times=float(products)),), (out,) * bands,
        nest=Nest(
            # A product of scales, and one that is added to a sum.
            fma=2.0 * products * band * columns, shared=float(products * (band + columns)),
        ),
        sum_bytes=float(each * band * columns * _SUM_BYTES),
        stages=config.stages,
        consumers=config.consumers,
        cluster=cluster,
        ctas_per_sm=config.ctas_per_sm,
        group=config.group,
        order_mmas=config.order_mmas,
        # Of the two MMAs of a step the second is issued behind the loads, but for one accumulator.
        waits=(Wait(float(products if config.scales_ahead else each)),),
        rounds=products,
    )  # fmt: skip


def grouped_block_scaled_work(
    groups: int, m: int, n: int, k: int, dtype: str, out_dtype: str, config: Config,
    row_tiles: int,
) -> Work:  # fmt: skip
    """What :mod:`warploom.programs.gemm_grouped_block_scaled` does.

    Parameters are those of :func:`warploom.decide.price.grouped.grouped_work`.
    """
    loads, out, tiles = grouped_parts(groups, m, n, k, dtype, out_dtype, config, row_tiles)
    rows, columns = config.tile_m, config.tile_n
    return Work(
        tiles, 1, -(-k // BLOCK), loads, (Mma(_kind(dtype), rows, columns, BLOCK),), (out,),
        nest=Nest(fma=2.0 * rows * columns, shared=float(rows + columns)),
        sum_bytes=float(rows * columns * _SUM_BYTES),
        waits=(Wait(1.0),),
        rounds=1,
        **launched(config),
    )  # fmt: skip


def bands_of(rows: int) -> int:
    """Bands of rows of a tile: a warpgroup has registers for the accumulators of 64 rows."""
    return 2 if rows > MOST_ROWS else 1


def _kind(dtype: str) -> WgmmaKind:
    return wgmma_kind(dtype, dtype, "float32")
