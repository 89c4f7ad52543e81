"""Tiles as an epilogue uses them: vectors from memory, loops over columns, several warpgroups."""

import re

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.ops.tiles_kernels import build, local_memory, to_device
from warploom.layout.fragment import column_fragment, row_fragment, wgmma_accumulator

M, N = 128, 48


def _scale_and_bias(warpgroups):
    """``half(x * scale[i] + bias[j])`` and the sums of its rows, in chunks of 16 columns."""
    scope = Tx.wg if warpgroups == 1 else Tx.cta

    @T.prim_func
    def kernel(x: T.handle, s: T.handle, b: T.handle, y: T.handle, r: T.handle):
        source = T.match_buffer(x, (M, N), "float32")
        scales = T.match_buffer(s, (M,), "float32")
        biases = T.match_buffer(b, (N,), "float32")
        result = T.match_buffer(y, (M, N), "float16")
        sums = T.match_buffer(r, (M, 1), "float32")
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([warpgroups])
        T.warp_id([4 * warpgroups])
        T.warp_id_in_wg([4])
        T.lane_id([32])
        thread = T.thread_id([128 * warpgroups])
        pool = T.SMEMPool()
        staged = pool.alloc((M,), "float32", align=16)
        pool.commit()
        tile_layout = T.meta_var(wgmma_accumulator(M, N, warpgroups))
        row_layout = T.meta_var(row_fragment(M, warpgroups))
        column_layout = T.meta_var(column_fragment(N, warpgroups))
        tile = T.alloc_buffer((M, N), "float32", scope="local", layout=tile_layout)
        half = T.alloc_buffer((M, N), "float16", scope="local", layout=tile_layout)
        row = T.alloc_buffer((M, 1), "float32", scope="local", layout=row_layout)
        column = T.alloc_buffer((N,), "float32", scope="local", layout=column_layout)
        if thread < M:
            staged[thread] = scales[thread]
        T.cuda.cta_sync()
        scope.copy(tile[:, :], source[:, :])
        scope.copy(row[:, :], staged[:])
        scope.copy(column[:], biases[:])
        scope.fma(tile[:, :], tile[:, :], row[:, :], column[:])
        scope.sum(row[:, :], tile[:, :], -1)
        for i in T.unroll(N // 16):
            chunk = T.meta_var(slice(i * 16, i * 16 + 16))
            scope.cast(half[:, chunk], tile[:, chunk])
            scope.copy(result[:, chunk], half[:, chunk])
        scope.copy(sums[:, :], row[:, :])

    return kernel


@pytest.fixture(scope="module")
def batch():
    return build([_scale_and_bias(warpgroups) for warpgroups in (1, 2)])


def test_tiles_stay_in_registers(batch):
    assert local_memory(batch) == [(0, 0, 0)] * 2


def test_each_row_sum_is_stored_by_one_lane(batch):
    """Of the four lanes that hold a sum only the first stores it."""
    for warpgroups, definition in zip((1, 2), batch.definitions, strict=True):
        lines = definition.split("\n")
        stores = [i for i, line in enumerate(lines) if "ptx_st" in line and "sums_ptr" in line]
        assert len(stores) == M // 32 // warpgroups
        assert all(re.search(r"if \(.*threadIdx\.x.* == 0\)", lines[i - 1]) for i in stores)


@pytest.mark.gpu
@pytest.mark.parametrize("index", (0, 1))
def test_results(batch, index, rng):
    x, s, b = (rng.uniform(-4, 4, shape).astype(np.float32) for shape in ((M, N), (M,), (N,)))
    result, sums = np.full((M, N), np.nan, np.float16), np.full((M, 1), np.nan, np.float32)
    device = to_device(x, s, b, result, sums)
    batch.functions[index](*device)
    expected = x.astype(np.float64) * s[:, None] + b
    np.testing.assert_allclose(device[3].numpy(), expected, rtol=1e-3, atol=1e-3)
    total = expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(device[4].numpy(), total, rtol=1e-5, atol=1e-4)
