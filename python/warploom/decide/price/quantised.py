"""The work of :mod:`warploom.programs.gemm_quantised` with a config, by formulas."""

from __future__ import annotations

from warploom.decide.config import Config
from warploom.decide.price.chunks import alignment, store_lines
from warploom.decide.price.matrices import shared_by
from warploom.decide.price.work import (
    UNKNOWN_EXTENT,
    Load,
    Mma,
    TileOut,
    Work,
    lines_of_packed,
    lines_touched,
)
from warploom.target import wgmma_kind
from warploom.tile.choices import POLICIES

#: Bytes of an element of X, the scales and the result, and of a sum.
_BYTES, _SUM_BYTES = 2, 4


def quantised_work(
    m: int | None, n: int, k: int, bits: int, group: int, dtype: str, config: Config
) -> Work:
    """What the kernel does; rows that are dynamic count as ``UNKNOWN_EXTENT``.

    Parameters
    ----------
    m, n, k : int
        Rows of X, rows of W, and the extent of K; None for rows that a call decides.
    bits, group : int
        Bits of a weight, and weights along K that share a scale.
    dtype : str
        Of X, the scales and the result.
    config : Config
        Rows of X are ``tile_m``, rows of W ``tile_n``; W is the first dimension of the grid.
    """
    m = m or UNKNOWN_EXTENT
    rows, columns, depth = config.tile_m, config.tile_n, config.tile_k
    cluster = (1, 1) if config.through_cluster else (config.cluster_m, config.cluster_n)
    weight = bits / 8 + _BYTES / group  # of a weight, with its part of a scale
    of_w = Load(
        columns, depth * weight, n, (True, False), shared_by((True, False), cluster, columns),
        lines_of_packed(depth * bits / 8, k * bits / 8), columns * (k * weight), n * (k * weight),
        policy=POLICIES[config.l2_policy][1] or "",
    )  # fmt: skip
    of_x = Load(
        rows, float(depth * _BYTES), m, (False, True), shared_by((False, True), cluster, rows),
        lines_touched(depth * _BYTES, k * _BYTES), float(rows * k * _BYTES),
        float(m * k * _BYTES),
    )  # fmt: skip
    chunk, pitch = config.store_columns, n * _BYTES
    out = TileOut(
        columns, rows, float(_BYTES), True, chunk, store_lines(columns, _BYTES, chunk, pitch),
        alignment(pitch), float(m * n),
    )  # fmt: skip
    return Work(
        (-(-n // columns), -(-m // rows)), 1, k // depth, (of_w, of_x),
        (Mma(wgmma_kind(dtype, dtype, "float32"), columns, rows, depth, True),), (out,),
        dequantised=float(columns * depth),
        sum_bytes=float(columns * rows * _SUM_BYTES),
        stages=config.stages,
        consumers=config.consumers,
        slice_k=config.slice_k,
        cluster=cluster,
        ctas_per_sm=config.ctas_per_sm,
        group=1,  # tiles are visited row after row
        split_k=config.split_k,
        in_cluster=config.through_cluster,
        stream_k=config.stream_k,
        prefetch_l2=config.prefetch_l2,
    )  # fmt: skip
