"""The Blackwell GEMM kernels against float64 numpy: ragged edges, short loops, every dtype.

One compiled kernel takes any number of rows, so each case runs many.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import tvm

from tests.shared import blackwell
from tests.shared.blackwell import random_scales, scaled
from tests.shared.reference import numpy_dtype
from tests.shared.sampling import sampled
from warploom.kernels.sm100_config import Sm100GemmConfig
from warploom.kernels.sm100_gemm import sm100_gemm
from warploom.kernels.sm100_gemm_pair import sm100_gemm_pair
from warploom.kernels.sm100_gemm_persistent import sm100_gemm_persistent
from warploom.kernels.sm100_gemm_scaled import block_scales, sm100_gemm_scaled

pytestmark = pytest.mark.gpu

#: ||C - AB|| / ||AB||: rounding of C.
LIMIT = {"float16": 5e-4, "bfloat16": 4e-3}


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel and how to call and judge it."""

    config: Sm100GemmConfig
    n: int
    k: int
    run: tvm.runtime.Executable = field(repr=False)

    @classmethod
    def build(
        cls, make: Callable, config: Sm100GemmConfig, n: int, k: int, m: int | None = None
    ) -> Kernel:
        blackwell.device()
        return cls(config, n, k, blackwell.compile_function(make(config, n, k, m)))

    def call(self, rng: np.random.Generator, m: int) -> tuple[np.ndarray, np.ndarray]:
        """Run once on random numbers; the result, poisoned before, and what it should be."""
        dtype = numpy_dtype(self.config.dtype)
        a, b = (
            rng.standard_normal((rows, self.k), np.float32).astype(dtype) for rows in (m, self.n)
        )
        arguments, wide = [a, b], [a.astype(np.float64), b.astype(np.float64)]
        if self.config.scaled:
            scales = [random_scales(rng, rows, self.k) for rows in (m, self.n)]
            arguments += map(block_scales, scales)
            wide = [scaled(a, scales[0]), scaled(b, scales[1])]
        c = np.full((m, self.n), np.nan, numpy_dtype(self.config.out_dtype))
        tensors = [tvm.runtime.tensor(x, blackwell.device()) for x in (*arguments, c)]
        self.run(*tensors)
        return tensors[-1].numpy().astype(np.float64), wide[0] @ wide[1].T

    def check(self, rng: np.random.Generator, m: int) -> None:
        actual, expected = self.call(rng, m)
        error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
        assert error <= LIMIT[self.config.out_dtype], f"M = {m}, {self}: relative error {error}"


PLAIN = Sm100GemmConfig(tile_n=64, store_n=32, stages=3)
PAIR = replace(PLAIN, cta_group=2, tile_n=128)
#: Few CTAs, so that each walks over several tiles.
PERSISTENT = replace(PLAIN, accumulators=2, ctas=2)
SCALED = Sm100GemmConfig(dtype="float8_e4m3fn", out_dtype="bfloat16", tile_k=128, stages=3)

KERNELS = {
    "1-CTA": (sm100_gemm, PLAIN),
    "1-CTA, bfloat16": (sm100_gemm, replace(PLAIN, dtype="bfloat16", out_dtype="bfloat16")),
    "1-CTA, 256 wide": (sm100_gemm, Sm100GemmConfig(tile_n=256, stages=2)),
    "1-CTA, tile_k 32": (sm100_gemm, replace(PLAIN, tile_k=32)),
    "1-CTA, two stages": (sm100_gemm, replace(PLAIN, stages=2)),
    "pair": (sm100_gemm_pair, PAIR),
    "pair, bfloat16, 256 wide": (
        sm100_gemm_pair,
        replace(PAIR, dtype="bfloat16", out_dtype="bfloat16", tile_n=256, stages=2),
    ),
    "persistent": (sm100_gemm_persistent, PERSISTENT),
    "persistent, one accumulator": (sm100_gemm_persistent, replace(PERSISTENT, accumulators=1)),
    "persistent, one store buffer": (
        sm100_gemm_persistent,
        replace(PERSISTENT, tile_n=96, store_n=32, store_buffers=1),
    ),
    "scaled": (sm100_gemm_scaled, SCALED),
    "scaled, 256 wide": (sm100_gemm_scaled, replace(SCALED, tile_n=256, stages=2)),
}


@pytest.mark.parametrize("name", sampled(KERNELS, 2))
@pytest.mark.some(3)
def test_any_rows_and_ragged_edges(rng, name):
    """The last column tile has 8 columns, the last K tile 16 elements."""
    make, config = KERNELS[name]
    n, k = config.tile_n + 8, 2 * config.tile_k + 16
    kernel = Kernel.build(make, config, n, k)
    for m in (1, 127, 129, 300):
        kernel.check(rng, m)


@pytest.mark.parametrize(
    ("name", "trips"),
    sampled(itertools.product(("pair", "persistent", "scaled"), (1, 2, 3, 4, 7)), 2),
)
@pytest.mark.some(3)
def test_trip_counts_around_the_number_of_stages(rng, name, trips):
    make, config = KERNELS[name]
    """Several tiles a CTA in the persistent kernel: the phases of the ring must carry over."""
    assert config.stages == 3
    Kernel.build(make, config, config.tile_n, trips * config.tile_k).check(rng, 700)


def test_static_rows(rng):
    Kernel.build(sm100_gemm, PLAIN, 72, 80, m=200).check(rng, 200)


def test_every_scale_factor_counts(rng):
    """A factor at the wrong place shows in rows or blocks that have factors of their own."""
    kernel = Kernel.build(sm100_gemm_scaled, SCALED, 128, 512)
    actual, expected = kernel.call(rng, 128)
    np.testing.assert_allclose(actual, expected, rtol=2**-8, atol=np.abs(expected).max() * 2**-11)
