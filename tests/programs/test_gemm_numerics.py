"""Tile programs of GEMMs against float64 numpy: ragged edges, short loops, dtypes, layouts.

One compiled kernel takes any number of rows, so each case runs many.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np
import pytest
import tvm

from tests.shared.sampling import sampled
from warploom import emulator
from warploom.decide import Config, GemmProblem, plain_gemm
from warploom.programs import compile_gemm

pytestmark = pytest.mark.gpu

#: ||C - AB|| / ||AB||: rounding of C, and for float8 the tensor core's 14-bit sums.
LIMIT = {"float16": 5e-4, "bfloat16": 4e-3}
FLOAT8_LIMIT = 1e-2
SCALES = (np.float32(0.37), np.float32(1.9))


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel and how to call and judge it."""

    config: Config
    problem: GemmProblem
    run: tvm.runtime.Executable = field(repr=False)

    @classmethod
    def build(cls, config: Config, n: int, k: int, m: int | None = None, **kind: str) -> Kernel:
        executable = compile_gemm(m, n, k, **kind, config=config)
        return cls(config, plain_gemm(m, n, k, **kind), executable)

    @property
    def out_dtype(self) -> str:
        return self.problem.outputs[0]

    def inputs(self, rng: np.random.Generator, m: int) -> tuple[np.ndarray, np.ndarray]:
        n, k, dtype = self.problem.n, self.problem.k, numpy_dtype(self.problem.a_dtype)
        b_shape = (n, k) if self.problem.layout == "NT" else (k, n)
        a, b = (rng.standard_normal(shape, np.float32) for shape in ((m, k), b_shape))
        return a.astype(dtype), b.astype(dtype)

    def tensors(self, a: np.ndarray, b: np.ndarray) -> list:
        """Arguments on the GPU; the result is poisoned, and last."""
        scales = [np.array([s]) for s in SCALES] if self.problem.inputs else []
        poisoned = np.full((len(a), self.problem.n), np.nan, numpy_dtype(self.out_dtype))
        return [tvm.runtime.tensor(x, tvm.cuda(0)) for x in (a, b, *scales, poisoned)]

    def check(self, rng: np.random.Generator, m: int) -> None:
        """Run once on random numbers and compare every element of the result."""
        a, b = self.inputs(rng, m)
        tensors = self.tensors(a, b)
        self.run(*tensors)
        wide = b.astype(np.float64)
        expected = a.astype(np.float64) @ (wide.T if self.problem.layout == "NT" else wide)
        if self.problem.inputs:
            expected *= np.float64(SCALES[0] * SCALES[1])
        difference = tensors[-1].numpy().astype(np.float64) - expected
        error = np.linalg.norm(difference) / np.linalg.norm(expected)
        limit = LIMIT[self.out_dtype]
        limit = max(limit, FLOAT8_LIMIT) if self.problem.inputs else limit
        assert error <= limit, f"M = {m}, {self}: relative error {error}"


#: Few CTAs, so that each walks over several tiles.
SMALL = Config(tile_m=128, tile_n=128, cluster_m=2, sms=4)
NARROW = Config(tile_m=16, tile_n=64, tile_k=128, stages=3, consumers=1, swap_ab=True, sms=3)


def variant(base: Config, dtype: str, cluster: int) -> Config:
    wide_k = base.tile_k * (2 if dtype.startswith("float8") else 1)
    return replace(base, cluster_m=cluster, tile_k=wide_k)


DTYPE_LAYOUTS = [
    ("float16", "NT"),
    ("float16", "NN"),
    ("bfloat16", "NT"),
    ("bfloat16", "NN"),
    ("float8_e4m3fn", "NT"),
    ("float8_e5m2", "NT"),
]


@pytest.mark.parametrize(
    ("dtype", "layout", "cluster"),
    sampled(((*kind, cluster) for kind in DTYPE_LAYOUTS for cluster in (1, 2, 4)), 2),
)
@pytest.mark.some(3)
def test_any_rows_and_ragged_edges(rng, dtype, layout, cluster):
    """Edges of every tile: the last column tile has 8 columns, the last K tile 16 elements."""
    config = variant(SMALL, dtype, cluster)
    kernel = Kernel.build(config, 264, 208, dtype=dtype, layout=layout)
    for m in (1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 600):
        kernel.check(rng, m)


@pytest.mark.parametrize(("dtype", "layout"), DTYPE_LAYOUTS)
@pytest.mark.some(3)
def test_swap_ab_takes_any_rows_and_columns(rng, dtype, layout):
    n = 267 if layout == "NT" else 264
    config = variant(NARROW, dtype, 1)
    kernel = Kernel.build(config, n, 592, dtype=dtype, layout=layout)
    for m in (1, 2, 7, 8, 9, 15, 16, 17, 33, 64):
        kernel.check(rng, m)


@pytest.mark.parametrize("tile_m", [8, 24, 32, 64])
def test_swap_ab_tile_widths(rng, tile_m):
    kernel = Kernel.build(replace(NARROW, tile_m=tile_m, tile_n=128, consumers=2), 200, 264)
    for m in (1, tile_m - 1, tile_m, tile_m + 1):
        kernel.check(rng, m)


@pytest.mark.parametrize("base", [SMALL, NARROW], ids=["rows", "swap_ab"])
@pytest.mark.parametrize("trips", ["1", "stages - 1", "stages", "stages + 1", "3 * stages + 1"])
@pytest.mark.some(3)
def test_trip_counts_around_the_number_of_stages(rng, base, trips):
    """Several tiles a CTA with each: the phases of the ring must carry over."""
    config = replace(base, stages=3)
    k_tiles = eval(trips, {"stages": config.stages})
    kernel = Kernel.build(config, 512, k_tiles * config.tile_k)
    for m in (1, 700):
        kernel.check(rng, m)


#: Configs, and what is not float16 and NT.
SHAPED = {
    "256x128": (Config(256, 128, 64, 3), {}),
    "128x256": (Config(), {}),
    "64x256, 1 consumer": (Config(64, consumers=1), {}),
    "192x128, 3 consumers": (Config(192, 128, consumers=3), {}),
    "128x96": (Config(tile_n=96), {}),
    "128x192": (Config(tile_n=192), {}),
    "tile_k 32": (Config(tile_n=128, tile_k=32), {}),
    "tile_k 128": (Config(tile_n=128, tile_k=128, stages=2), {}),
    "NN, 256 wide": (Config(), {"layout": "NN"}),
    "float8, 128x256": (Config(tile_k=128), {"dtype": "float8_e4m3fn"}),
}


@pytest.mark.parametrize("name", sampled(SHAPED, 2))
@pytest.mark.some(2)
def test_tile_shapes(rng, name):
    config, kind = SHAPED[name]
    kernel = Kernel.build(replace(config, cluster_m=2, sms=4), 520, 336, **kind)
    for m in (1, 130, 700):
        kernel.check(rng, m)


@pytest.mark.parametrize("m", [1, 2, 300])
@pytest.mark.parametrize("base", [SMALL, NARROW], ids=["rows", "swap_ab"])
@pytest.mark.some(3)
def test_static_rows(rng, base, m):
    Kernel.build(base, 264, 200, m=m).check(rng, m)


@pytest.mark.parametrize("base", [SMALL, NARROW], ids=["rows", "swap_ab"])
def test_no_rows_is_no_launch(rng, base):
    kernel = Kernel.build(base, 264, 200)
    kernel.run(*kernel.tensors(*kernel.inputs(rng, 0)))


def test_bfloat16_result_of_float16_operands(rng):
    Kernel.build(SMALL, 264, 200, out_dtype="bfloat16").check(rng, 200)


@pytest.mark.parametrize("config", [Config(cluster_m=2), NARROW], ids=["rows", "swap_ab"])
@pytest.mark.some(1)
def test_soak(rng, config):
    """Races show up as a different bit or a hang after many launches; few fit on the emulator."""
    kernel = Kernel.build(config, 1032, 520)
    a, b = kernel.inputs(rng, 48 if config.swap_ab else 300 if emulator.is_enabled() else 1000)
    kernel.check(rng, len(a))
    first, *again = (kernel.tensors(a, b) for _ in range(3))
    kernel.run(*first)
    expected = first[-1].numpy().view(np.uint16)
    for launch in range(4 if emulator.is_enabled() else 2000):
        kernel.run(*again[launch % 2])
        if launch % 100 in (2, 3, 98, 99):
            got = again[launch % 2][-1].numpy().view(np.uint16)
            assert np.array_equal(got, expected), f"launch {launch} differs"
