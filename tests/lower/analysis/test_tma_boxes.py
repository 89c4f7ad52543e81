"""Tiles larger than a box of TMA: loaded and stored right, in legal boxes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.lower.passes.test_reductions import compare
from tests.shared.tile_programs.case import poisoned, random_values, wide
from warploom import language as wl
from warploom.lower.analysis.tma_boxes import MOST_BOXES, boxes, why_no_boxes
from warploom.tile import ir

SHAPES = [
    (300, 16), (512, 8), (260, 64), (2, 640), (1, 4096), (3, 1032), (3, 2052), (2, 260, 8),
    (1, 300, 24), (70, 544),
]  # fmt: skip


def doubled(shape, dtype, direction):
    """A program that loads a shared tile, or stores one, on two CTAs."""
    whole = (2 * shape[0], *shape[1:])
    rest = (0,) * (len(shape) - 1)

    @T.prim_func
    def loads(X: T.Buffer(whole, dtype), Y: T.Buffer(whole, dtype)):
        T.device_entry()
        b = T.cta_id([2])
        x = wl.load(X, (b, *rest), shape)
        y = wl.alloc_fragment(shape, dtype)
        Tx.cta.add(y, x, x)
        wl.store(Y, (b, *rest), y)

    @T.prim_func
    def stores(X: T.Buffer(whole, dtype), Y: T.Buffer(whole, dtype)):
        T.device_entry()
        b = T.cta_id([2])
        x = wl.load(X, (b, *rest), shape, scope="fragment")
        y = T.alloc_shared(shape, dtype)
        Tx.cta.add(y, x, x)
        wl.store(Y, (b, *rest), y)

    return {"loads": loads, "stores": stores}[direction], whole


@pytest.mark.parametrize("direction", ["loads", "stores"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.some(8)
def test_tiles_beyond_a_box(shape, dtype, direction, rng):
    func, whole = doubled(shape, dtype, direction)
    x = random_values(rng, whole, dtype)
    x = (x // 2).astype(dtype) if dtype == "int8" else x
    arch = ("sm_90a", "sm_100a")[int(rng.integers(2))]
    compare(func, [x, poisoned(whole, dtype)], 2 * wide(x), 0, arch)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_boxes_are_legal_and_cover_a_tile_once(shape, dtype):
    tile = tirx.decl_buffer(shape, dtype, "tile", scope="shared")
    tensor = tirx.decl_buffer((4, *shape), dtype, "tensor")
    size = np.dtype(dtype).itemsize
    to = ir.whole(tile)
    source = ir.region(tensor, (3, 1), *ir.ranges(to))
    seen = np.zeros(shape, int)
    if why_no_boxes(to, source) is not None:
        assert np.prod(shape) * size > 2048
        return
    parts = boxes(to, source)
    assert len(parts) <= MOST_BOXES
    for own, other in parts:
        ranges = [(int(first), int(extent)) for first, extent in ir.ranges(own)]
        assert [(3, 1), *ranges] == [(int(f), int(e)) for f, e in ir.ranges(other)]
        assert all(extent <= 256 for _, extent in ranges[:-1]) and ranges[-1][1] * size <= 2048
        start = np.ravel_multi_index([first for first, _ in ranges], shape) * size
        assert start % 128 == 0 or len(parts) == 1
        seen[tuple(slice(first, first + extent) for first, extent in ranges)] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize(("shape", "reason"), [
    ((3, 1032), "its parts would begin at multiples of 4128 bytes, which are no"),
    ((100, 1024), "takes 200 boxes of TMA; a copy has 64 at most"),
])  # fmt: skip
def test_what_threads_copy_is_said(shape, reason):
    tile = tirx.decl_buffer(shape, "float32", "tile", scope="shared")
    tensor = tirx.decl_buffer(shape, "float32", "tensor")
    assert re.search(reason, why_no_boxes(ir.whole(tile), ir.whole(tensor)))


@pytest.mark.parametrize(("length", "first", "elements"), [
    (4096, 0, 512), (4096, tirx.Var("b", "int32") * 512, 512), (1001, 0, 256), (4096, 3, 256),
    (tirx.Var("n", "int32"), 0, 256), (tirx.Var("n", "int32") * 2, 0, 512),
])  # fmt: skip
def test_wide_elements_are_those_that_are_known(length, first, elements):
    """Of 8 bytes, where rows, and what is copied of them, consist of such."""
    tile = tirx.decl_buffer((512,), "float32", "tile", scope="shared")
    tensor = tirx.decl_buffer((length,), "float32", "tensor")
    parts = boxes(ir.whole(tile), ir.region(tensor, (first, 512)))
    assert [int(ir.ranges(own)[0][1]) for own, _ in parts] == [elements] * (512 // elements)
