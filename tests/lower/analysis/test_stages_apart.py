"""Stages of small tiles begin where TMA may write, and no two share bytes."""

from __future__ import annotations

import itertools

import pytest
import tvm
from tvm import tirx

from warploom.lower.analysis.shared_tiles import span_bytes, stacked, tile_bytes
from warploom.target import TMA


@pytest.mark.parametrize("dtype", ["uint8", "float16", "uint32", "float32"])
@pytest.mark.parametrize("shape", [(8,), (1, 16), (2, 24), (3, 5), (64, 64), (1, 64)])
@pytest.mark.parametrize("stages", [1, 2, 5])
def test_stages_are_aligned(dtype: str, shape: tuple[int, ...], stages: int) -> None:
    tile = tirx.decl_buffer(shape, dtype, "tile", scope="shared")
    ring = stacked(tile, stages)
    bits = tvm.DataType(dtype).bits
    starts = []
    for stage in range(stages):
        place = ring.layout.apply(stage, *[0] * len(shape), shape=list(ring.shape))["m"]
        starts.append(int(tvm.sym.Analyzer().simplify(place)) * bits // 8)
    assert all(start % TMA.shared_align == 0 for start in starts)
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    assert all(gap >= tile_bytes(tile) for gap in gaps)
    assert span_bytes(ring) >= starts[-1] + tile_bytes(tile)
