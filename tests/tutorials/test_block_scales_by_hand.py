"""The block-scaled MMA by hand, a tutorial, against float64 numpy: ragged edges, short loops.

MMAs of Blackwell without block scales are those of the ladder and of tile programs.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm

from tests.shared import blackwell
from tests.shared.blackwell import random_scales, scaled
from tests.shared.tensor_memory_order import assert_lifetime_is_fenced
from tests.shared.tutorial_names import tutorial_names
from warploom.compiler.report import compile_report
from warploom.target import cuda_target

NAMES = tutorial_names("17_block_scales_by_hand.py", STAGES=3)
gemm, block_scales = NAMES["gemm"], NAMES["block_scales"]


def call(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Run once on random numbers; the result, poisoned before, and what it should be."""
    blackwell.device()
    run = blackwell.compile_function(gemm(m, n, k))
    values = [
        rng.standard_normal((rows, k), np.float32).astype(ml_dtypes.float8_e4m3fn)
        for rows in (m, n)
    ]
    scales = [random_scales(rng, rows, k) for rows in (m, n)]
    wide = [scaled(*pair) for pair in zip(values, scales, strict=True)]
    c = np.full((m, n), np.nan, np.float32).astype(ml_dtypes.bfloat16)
    arrays = (*values, *map(block_scales, scales), c)
    tensors = [tvm.runtime.tensor(one, blackwell.device()) for one in arrays]
    run(*tensors)
    return tensors[-1].numpy().astype(np.float64), wide[0] @ wide[1].T


@pytest.mark.gpu
@pytest.mark.parametrize("trips", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("m", [2, 127, 129, 300])
@pytest.mark.some(4)
def test_ragged_edges_and_trip_counts_around_the_number_of_stages(rng, m, trips):
    """The last column tile has 8 columns, the last K tile 16 elements."""
    actual, expected = call(rng, m, 136, (trips - 1) * 128 + 16)
    assert np.linalg.norm(actual - expected) <= 4e-3 * np.linalg.norm(expected)


@pytest.mark.gpu
def test_every_scale_factor_counts(rng):
    """A factor at the wrong place shows in rows or blocks that have factors of their own."""
    actual, expected = call(rng, 128, 128, 512)
    np.testing.assert_allclose(actual, expected, rtol=2**-8, atol=np.abs(expected).max() * 2**-11)


def test_tensor_memory_is_fenced_at_both_ends_of_its_life():
    assert_lifetime_is_fenced(gemm(520, 520, 400).script())


def test_the_kernel_assembles_without_spills():
    report = compile_report(gemm(520, 520, 400), cuda_target("b200"))
    (kernel,) = report.kernels
    assert report.problems == ()
    assert kernel.info.registers <= 128


def test_blocks_of_scales(rng):
    """Every factor is where the documented formula says, and padding has the factor 1."""
    rows, columns = 200, 6
    scales = (2.0 ** rng.integers(-9, 9, (rows, columns))).astype(ml_dtypes.float8_e8m0fnu)
    blocks = block_scales(scales)
    assert blocks.shape == (2, 2, 32, 16) and blocks.dtype == np.uint8
    seen = np.full((256, 8), 255, np.uint8)
    for r in range(256):
        for f in range(8):
            block = blocks[r // 128, f // 4].reshape(512)
            seen[r, f] = block[r % 32 * 16 + r % 128 // 32 * 4 + f % 4]
    assert np.array_equal(seen[:rows, :columns], scales.view(np.uint8))
    assert np.all(seen[rows:].view(ml_dtypes.float8_e8m0fnu).astype(float) == 1)
    assert np.all(seen[:, columns:].view(ml_dtypes.float8_e8m0fnu).astype(float) == 1)
