"""A Blackwell configuration that exists compiles without spills; one that is not says why."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.shared.tensor_memory_order import assert_lifetime_is_fenced
from warploom import IllegalCombination
from warploom.compiler.report import compile_report
from warploom.kernels.sm100_config import Sm100GemmConfig
from warploom.kernels.sm100_gemm import sm100_gemm
from warploom.kernels.sm100_gemm_pair import sm100_gemm_pair
from warploom.kernels.sm100_gemm_persistent import sm100_gemm_persistent
from warploom.kernels.sm100_gemm_scaled import block_scales, sm100_gemm_scaled
from warploom.target import cuda_target

PLAIN = Sm100GemmConfig()
SCALED = Sm100GemmConfig(dtype="float8_e4m3fn", out_dtype="bfloat16", tile_k=128)
KERNELS = {
    "1-CTA": (sm100_gemm, PLAIN),
    "pair": (sm100_gemm_pair, replace(PLAIN, cta_group=2, tile_n=256)),
    "persistent": (sm100_gemm_persistent, replace(PLAIN, accumulators=2, tile_n=256, stages=3)),
    "scaled": (sm100_gemm_scaled, replace(SCALED, tile_n=256, stages=3)),
}


@pytest.mark.parametrize("stages", (2, 3))
@pytest.mark.parametrize("tile_n", (128, 256))
def test_every_stage_has_columns_for_its_scale_factors(stages, tile_n):
    """A block of 128 rows has four columns: PTX ISA, "tcgen05.mma scale factor layouts"."""
    plan = replace(SCALED, tile_n=tile_n, stages=stages).tensor_memory
    columns = {one.name: one.columns for one in plan.buffers}
    rows = {"scale_a": 128, "scale_b": tile_n}
    assert {n: columns[n] for n in rows} == {n: stages * r // 128 * 4 for n, r in rows.items()}
    assert columns["accumulators"] == tile_n


@pytest.mark.parametrize("name", KERNELS)
def test_tensor_memory_is_fenced_at_both_ends_of_its_life(name):
    make, config = KERNELS[name]
    assert_lifetime_is_fenced(make(config, 520, 400).script())


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.some(1)
def test_kernels_assemble_without_spills(name):
    make, config = KERNELS[name]
    report = compile_report(make(config, 520, 400), cuda_target("b200"))
    (kernel,) = report.kernels
    assert report.problems == ()
    assert kernel.info.registers <= 128
    # A kernel that is not persistent has one mbarrier for its accumulator, not two.
    assert 0 <= config.shared_bytes - kernel.dynamic_shared_bytes <= 8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float32"}, "allowed are float16"),
        ({"out_dtype": "float32"}, "allowed are float16, bfloat16"),
        ({"stages": 0}, "stages = 0"),
        ({"stages": 1}, "there must be 2"),
        ({"cta_group": 3}, "cta_group = 3"),
        ({"tile_n": 24, "store_n": 8}, "N = 24 is not legal"),
        ({"tile_n": 272}, "N = 272 is not legal"),
        ({"cta_group": 2, "tile_n": 48}, "N = 48 is not legal"),
        ({"tile_k": 24}, "allowed are its multiples"),
        ({"accumulators": 3}, "1 and 2 are allowed"),
        ({"store_n": 48}, "store_n = 48"),
        ({"store_buffers": 3}, "must divide the 2 pieces"),
        ({"stages": 9}, "a CTA has 232448"),
        ({"dtype": "float8_e4m3fn"}, "must be 128"),
        ({"dtype": "float8_e4m3fn", "tile_k": 128, "tile_n": 192}, "blocks of 128 rows"),
        (
            {"dtype": "float8_e4m3fn", "tile_k": 128, "tile_n": 256, "accumulators": 2},
            "Tensor memory",
        ),
    ],
)
def test_illegal_configurations_say_why(changes, words):
    with pytest.raises(IllegalCombination, match=words):
        replace(PLAIN, **changes)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_refuses_the_configurations_of_others(name):
    own = KERNELS[name]
    for make, _ in KERNELS.values():
        if {make, own[0]} in ({sm100_gemm, sm100_gemm_persistent}, {own[0]}):
            continue
        with pytest.raises(IllegalCombination, match=f"{make.__name__} needs a configuration"):
            make(own[1], 256, 256)


@pytest.mark.parametrize(
    ("n", "k", "m", "words"),
    [(0, 64, None, "N = 0"), (64, 64, 0, "M = 0"), (64, 60, 1, "pad K"), (60, 64, 1, "pad N")],
)
def test_sizes_that_tma_cannot_load_are_refused(n, k, m, words):
    with pytest.raises(IllegalCombination, match=words):
        sm100_gemm(PLAIN, n, k, m)


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
