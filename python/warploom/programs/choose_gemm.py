"""A sensible configuration for a product, by a few rules that were measured on an H200."""

from __future__ import annotations

from dataclasses import replace

import tvm

from warploom.errors import IllegalCombination
from warploom.programs.gemm_config import DTYPES, GemmConfig
from warploom.target import SM90A
from warploom.target.dtypes import with_dtype_names

#: Rows of A up to which B A^T wins: half of the 128 rows of the other tile is lost then.
SWAP_AB_ROWS = 64
#: Bytes of K in a stage: one swizzled row of 128 bytes, or four where only B's stream matters.
WIDE_STAGE, DEEP_STAGE = 128, 512


@with_dtype_names
def choose_config(
    m: int | None, n: int, k: int, dtype: str, out_dtype: str, layout: str = "NT", ctas: int = 132
) -> GemmConfig:
    """The configuration that :func:`warploom.programs.compile_gemm` uses when none is given.

    Parameters
    ----------
    m : int or None
        Rows; None, where a call decides, counts as many.
    n, k : int
        Columns and products.
    ctas : int
        SMs of the device.
    """
    if dtype not in DTYPES:
        raise IllegalCombination(f"dtype {dtype!r}: allowed are {', '.join(DTYPES)}.")
    size = tvm.DataType(dtype).bits // 8
    common = {"dtype": dtype, "out_dtype": out_dtype, "layout": layout}
    if m is not None and m <= SWAP_AB_ROWS:
        tile_m = next(t for t in (8, 16, 32, 64) if t >= m)
        # Few long stages: each is one round trip of the producer.
        return most_stages(GemmConfig(
            **common, swap_ab=True, tile_m=tile_m, tile_n=64, tile_k=DEEP_STAGE // size,
            stages=2, cluster=1, consumers=1,
        ))  # fmt: skip
    wide = GemmConfig(**common, tile_k=WIDE_STAGE // size)
    # Half a tile's width doubles the tiles: better when the wide ones leave SMs idle.
    narrow = most_stages(replace(wide, tile_n=128))
    # One tile of rows has no neighbour to share B with.
    single = replace(wide, cluster=1) if ctas % 2 or (m is not None and m <= wide.tile_m) else wide
    tiles = tile_count(single, m, n)
    if tiles is not None and tiles <= ctas // 2:
        return replace(narrow, cluster=single.cluster)
    return single


def tile_count(config: GemmConfig, m: int | None, n: int) -> int | None:
    """Tiles of C, or None if the number of rows is not known."""
    return None if m is None else -(-m // config.tile_m) * -(-n // config.tile_n)


def most_stages(config: GemmConfig) -> GemmConfig:
    """The same configuration with as many stages as shared memory holds."""
    ring = config.stages * config.stage_bytes
    # 16 bytes of mbarriers a stage.
    left = SM90A.shared_bytes_per_block - config.shared_bytes + ring + 16 * config.stages
    return replace(config, stages=left // (config.stage_bytes + 16))
