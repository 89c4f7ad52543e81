"""CTAs of a cluster share a tile: right sums without race, nothing in memory, what declines."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import warploom
from tests.shared import tile_programs
from tests.shared.lowered_programs import check, hinted, local_memory, run, worst_error
from warploom.errors import Decline
from warploom.lower.lowerings import lower

CLUSTER = {"reduce_through": "cluster"}
#: Why some random programs cannot be shared: too few steps, or values that go through a loop.
REASONS = ("a part needs one at least", "CTAs that share a tile can only add MMAs")
CASES = {
    "as many clusters as tiles": ((128, 64, 256), (64, 64, 64), 2, 4),
    "several tiles a cluster": ((200, 200, 520), (64, 64, 64), 2, 4),
    "two warpgroups": ((200, 136, 520), (128, 64, 64), 4, 8),
    "a step for each CTA": ((130, 64, 232), (64, 64, 64), 4, 4),
    "eight": ((64, 64, 640), (64, 64, 32), 8, 8),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.some(2)
def test_shapes(rng, name):
    size, tile, parts, ctas = CASES[name]
    case = tile_programs.gemm(*size, tile, out_dtype="float16", stages=3)
    check(case, rng, split_k=parts, ctas=ctas, **CLUSTER)


@pytest.mark.parametrize(
    "make",
    [
        partial(tile_programs.epilogue, "residual"),
        tile_programs.two_outputs,
        tile_programs.swiglu,
        partial(tile_programs.dequantised, 4, tile=(128, 64, 64)),
        partial(tile_programs.gemm, 100, 64, 320, (64, 64, 64), dtype="int8", symbolic=True),
    ],
    ids=["residual", "two outputs", "two accumulators", "int4 weights", "int8"],
)
@pytest.mark.some(2)
def test_programs(rng, make):
    check(make(), rng, split_k=2, ctas=4, **CLUSTER)


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed):
    """The first of some programs that can be shared; others are declined with their reason."""
    for number in range(8 * seed, 8 * seed + 8):
        rng = np.random.default_rng(6000 + number)
        case = tile_programs.random_program(rng, by_tma=True)
        parts = int(2 ** rng.integers(1, 4))
        hints = {"split_k": parts, "ctas": parts * int(rng.integers(1, 4)), "persistent": None}
        try:
            lower(hinted(case.func, specialise=True, **hints, **CLUSTER))
        except Decline as declined:
            assert any(reason in str(declined) for reason in REASONS), declined
            continue
        print("seed", 6000 + number)
        check(case, rng, specialise=True, **hints, **CLUSTER)
        return
    pytest.fail("all of eight programs were declined")


def test_nothing_goes_through_global_memory():
    case = tile_programs.gemm(128, 64, 512, (64, 64, 64), out_dtype="float16", stages=3)
    func = hinted(case.func, split_k=4, **CLUSTER)
    steps = warploom.lower_trace(func)
    said = [one for step in steps for one in step.decisions]
    assert (
        "grid: as many persistent CTAs as the device holds (120 on an H200), clusters of 4 CTAs a "
        "tile, tiles in groups of 8 rows"
    ) in said
    assert "sums: from 3 CTAs of a cluster to the last, through acc_sums in shared memory" in said
    script = steps[-1].func.script()
    assert script.count("tirx.device_entry") == 1 and "of_others" not in script


def test_registers_suffice():
    case = tile_programs.gemm(512, 512, 512, (128, 128, 64), out_dtype="float16", stages=4)
    assert local_memory(hinted(case.func, split_k=4, **CLUSTER), "sm_90a") == (0, 0, 0)


def test_results_do_not_depend_on_the_schedule(rng):
    case = tile_programs.gemm(64, 64, 640, (64, 64, 64), out_dtype="float32", stages=2)
    func = lower(hinted(case.func, split_k=4, ctas=4, **CLUSTER))
    arguments = case.arguments(rng)
    first, second = (run(func, [np.copy(one) for one in arguments]) for _ in range(2))
    assert worst_error(case, arguments, first) <= 1
    np.testing.assert_array_equal(first[2], second[2])


@pytest.mark.parametrize(
    ("hints", "arch", "reason"),
    [
        ({"specialise": False}, "sm_90a", "begin and end each for itself; leave out the hint"),
        ({}, "sm_100a", "on sm_100a sums go through the workspace only"),
        ({"ctas": 6}, "sm_90a", "6 CTAs are no multiple of the 4 of a cluster"),
    ],
)
def test_what_cannot_be(hints, arch, reason):
    case = tile_programs.gemm(128, 64, 512, (64, 64, 64), stages=3)
    with pytest.raises(Decline, match=reason):
        lower(hinted(case.func, split_k=4, **CLUSTER, **hints), arch)


def test_sums_need_room():
    case = tile_programs.gemm(256, 256, 512, (128, 256, 64), out_dtype="float16", stages=3)
    with pytest.raises(Decline, match="acc_sums: 2 x 64 x 256 float32, 131072 bytes"):
        lower(hinted(case.func, split_k=2, specialise=True, **CLUSTER))
