"""What memory and the L2 cache take: uneven grids, chunks of rows, results, sums of stream-K."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from warploom.decide import plain_gemm, predict, ranked
from warploom.decide.config import Config
from warploom.decide.machine import H200
from warploom.decide.price.chunks import alignment, chunk_widths, store_lines
from warploom.decide.price.gemm import work_of
from warploom.decide.price.l2 import dram_cycles, moved_of
from warploom.decide.price.launch import launch_of
from warploom.decide.price.model import price
from warploom.target import swizzle_chunks

#: Tiles of 8 x 64, as many as stages fit; each pair of SMs has one CTA of 66, some have two of 88.
_FEW_ROWS = Config(8, 64, 256, stages=6, consumers=1, swap_ab=True, l2_policy=1, prefetch_l2=True)

#: Measured on an H200 (2026-11-26): microseconds of a tile for each CTA, and of stream-K.
_MEASURED = {
    (5, 2816, 16512): (24.00, 22.86), (5, 4224, 16512): (32.28, 32.80),
    (5, 5632, 16512): (54.99, 43.01), (3, 6016, 19712): (66.20, 54.05),
}  # fmt: skip


def _of_few_rows(sizes: tuple[int, int, int]) -> list[float]:
    """Predicted microseconds of a tile for each CTA, and of stream-K."""
    problem = plain_gemm(*sizes)
    plain = replace(_FEW_ROWS, persistent=False, specialise=False)
    return [predict(problem, one).total for one in (plain, replace(_FEW_ROWS, stream_k=True))]


@pytest.mark.parametrize("sizes", _MEASURED)
def test_grids_of_few_rows_take_as_long_as_measured(sizes) -> None:
    assert _of_few_rows(sizes) == pytest.approx(_MEASURED[sizes], rel=0.13)


def test_ctas_that_share_a_pair_of_sms_wait_for_memory() -> None:
    """A third more bytes take 1.7 times as long where pairs of SMs have one CTA or two."""
    even, uneven = (_of_few_rows((5, n, 16512)) for n in (4224, 5632))
    assert uneven[0] > 1.5 * even[0] and uneven[1] < 1.4 * even[1]


def test_the_choice_for_such_grids_is_another() -> None:
    """More than a tenth faster than a tile for each CTA."""
    for sizes in ((5, 5632, 16512), (3, 6016, 19712), (4, 9088, 2560)):
        problem = plain_gemm(*sizes)
        plain = replace(_FEW_ROWS, persistent=False, specialise=False)
        assert ranked(problem, 1)[0][0] < 0.9 * predict(problem, plain).total


def test_pairs_of_sms_take_no_less_than_all_bytes(rng: np.random.Generator) -> None:
    """And no more than twice that if at least one CTA of each pair has work."""
    free = replace(H200, pair_bytes=1e9, receive_bytes=1e9)
    for _ in range(40):
        n = int(rng.integers(66, 400)) * 64
        work = work_of(plain_gemm(8, n, 8192), _FEW_ROWS)
        launch = launch_of(work, H200.gpu)
        least, found = (
            dram_cycles(work, machine, launch, moved_of(work, machine)) for machine in (free, H200)
        )
        assert least <= found <= 2.01 * least


@pytest.mark.parametrize("pitch", [0, 4096, 4112, 4128, 4160])
def test_rows_of_chunks_touch_the_lines_that_they_lie_in(pitch: int) -> None:
    """Counted for each place in a line at which a row may begin."""
    for columns in range(8, 264, 8):
        widths = chunk_widths(columns, 2, 64)
        assert list(widths) == swizzle_chunks(columns, 2, 64) and sum(widths) == columns
        places = range(0, 128, alignment(pitch))
        touched = [-(-(place + 2 * width) // 128) for width in widths for place in places]
        expected = sum(touched) / len(places) / (2 * columns / 128)
        assert store_lines(columns, 2, 64, pitch) == pytest.approx(expected)


def test_whole_tiles_of_stream_k_are_not_added() -> None:
    config = replace(_FEW_ROWS, stream_k=True)
    for across, adds in ((132, False), (264, False), (131, True), (200, True)):
        reduce = price(work_of(plain_gemm(8, across * 64, 4096), config)).reduce
        assert (reduce > 0) == adds


def test_results_take_the_l2_cache_that_loads_need() -> None:
    """GEMMs of many waves and few steps, of which some store rows across lines."""
    config = Config(128, 128, 64, stages=6, ping_pong=True, consumers=1, cluster_n=2)
    aligned, across = (price(work_of(plain_gemm(8192, n, 128), config)) for n in (8192, 8200))
    assert across.stores > 1.2 * aligned.stores > 0
    none = replace(H200, l2_store_bytes=1e9)
    assert price(work_of(plain_gemm(8192, 8192, 128), config), none).loop < 0.95 * aligned.loop


@pytest.mark.parametrize(
    ("sizes", "wide", "fitting", "ratio"),
    [
        # Measured: 8.2 us and 4.8; 6.7 and 4.8; 8.2 and 5.4 (H200, H100).
        ((14, 592, 2200), Config(64, 16, 128, stages=11, consumers=1, split_k=2,
                                 reduce_through="cluster"), 16, 1.3),
        ((10, 896, 3328), Config(64, 24, 128, stages=9, consumers=1, split_k=2,
                                 reduce_through="cluster"), 16, 1.1),
    ],
)  # fmt: skip
def test_rows_beyond_a_matrix_take_their_time(sizes, wide, fitting, ratio) -> None:
    problem = plain_gemm(*sizes)
    swapped = Config(fitting, 64, 128, stages=11, consumers=1, swap_ab=True, split_k=2,
                     reduce_through="cluster")  # fmt: skip
    times = [predict(problem, config).total for config in (wide, swapped)]
    assert times[0] > ratio * times[1]
