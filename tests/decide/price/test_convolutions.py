"""Prices of convolutions: boxes, taps and lines that they load, and measured times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.decide.price.random_configs import random_configs
from tests.gemm.convolutions import Convolution
from warploom.decide.config import Config
from warploom.decide.machines import machine_of
from warploom.decide.price.gemm import work_of
from warploom.decide.price.model import price
from warploom.decide.price.work import Load, cut_rows, lines_of_taps
from warploom.decide.problem import GemmProblem, plain_gemm
from warploom.decide.ranking import ranked
from warploom.gemm import recognise
from warploom.target.gpus import GPUS


def _problem(n: int, h: int, w: int, c: int, k: int, taps: int, stride: int = 1,
             padding: int | None = None) -> GemmProblem:  # fmt: skip
    padding = taps // 2 if padding is None else padding
    one = Convolution(n, h, w, c, k, (taps, taps), (stride, stride), (padding,) * 4)
    return recognise(one.function().func).problem


#: GPU, convolution (images, rows, columns, channels, filters, taps, stride, padding), choices, and
#: microseconds (one H100 and one H200, 2026-11-26, `bench judge` and the results of that day).
_MEASURED: tuple[tuple[str, tuple[int, ...], dict[str, Any], float], ...] = (
    ("h100", (21, 74, 8, 440, 160, 3, 1, 1),
     {"tile_m": 128, "tile_n": 160, "stages": 5, "stream_k": True, "cluster_m": 2}, 38.6),
    ("h100", (21, 74, 8, 440, 160, 3, 1, 1),
     {"tile_m": 192, "tile_n": 96, "stages": 5, "consumers": 3, "cluster_m": 2}, 64.5),
    ("h100", (30, 17, 43, 888, 160, 3, 1, 0),
     {"tile_m": 192, "tile_n": 160, "consumers": 3, "stream_k": True, "cluster_m": 2}, 94.6),
    ("h100", (14, 19, 45, 48, 592, 3, 1, 1),
     {"tile_m": 192, "tile_n": 160, "consumers": 3, "cluster_n": 2}, 24.7),
    ("h100", (2, 11, 40, 312, 48, 3, 1, 1),
     {"tile_m": 64, "tile_n": 48, "stages": 12, "consumers": 1, "split_k": 4,
      "reduce_through": "cluster"}, 5.77),
    ("h200", (1, 56, 56, 64, 64, 3, 1, 1),
     {"tile_m": 64, "tile_n": 64, "stages": 12, "consumers": 1, "persistent": False}, 2.84),
    ("h200", (32, 28, 28, 128, 128, 3, 1, 1),
     {"tile_m": 128, "tile_n": 64, "stages": 8, "consumers": 1, "ping_pong": True,
      "cluster_n": 2}, 13.58),
    ("h200", (32, 28, 28, 128, 128, 3, 1, 1), {"tile_m": 256, "tile_n": 128}, 16.2),
    ("h200", (32, 14, 14, 256, 256, 3, 1, 1),
     {"tile_m": 128, "tile_n": 128, "stages": 6, "cluster_m": 4, "cluster_n": 2}, 14.4),
    ("h200", (32, 28, 28, 136, 128, 3, 1, 1),
     {"tile_m": 256, "tile_n": 128, "cluster_m": 4}, 22.6),
    ("h200", (32, 56, 56, 64, 64, 3, 1, 1), {"tile_m": 256, "tile_n": 64, "cluster_m": 2}, 20.4),
    ("h200", (14, 19, 55, 320, 40, 7, 1, 3),
     {"tile_m": 160, "tile_n": 64, "stages": 7, "consumers": 1, "swap_ab": True,
      "cluster_m": 4}, 85.7),
    ("h200", (25, 105, 16, 40, 704, 1, 2, 0),
     {"tile_m": 64, "tile_n": 160, "stages": 7, "consumers": 1, "ping_pong": True,
      "cluster_m": 2}, 9.1),
    ("h200", (50, 62, 9, 56, 752, 5, 2, 2),
     {"tile_m": 128, "tile_n": 192, "consumers": 1, "ping_pong": True, "cluster_m": 2}, 42.7),
    ("h200", (16, 16, 16, 320, 256, 5, 1, 2),
     {"tile_m": 128, "tile_n": 64, "stages": 8}, 40.6),
    ("h200", (16, 16, 16, 320, 256, 5, 1, 2),
     {"tile_m": 128, "tile_n": 64, "stages": 8, "cluster_n": 2}, 33.5),
)  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "sizes", "choices", "us"), _MEASURED, ids=[str(one[1:2]) for one in _MEASURED]
)
def test_convolutions_take_what_they_were_measured_to_take(
    gpu: str, sizes: tuple[int, ...], choices: dict[str, Any], us: float
) -> None:
    found = price(work_of(_problem(*sizes), Config(**choices)), machine_of(GPUS[gpu]))
    assert found.total == pytest.approx(us, rel=0.25)


def test_boxes_that_do_not_fill_images_cost_their_tiles() -> None:
    fits, wide, odd = (_problem(9, h, w, 64, 64, 3) for h, w in ((64, 64), (32, 128), (66, 62)))
    config = Config(128, 64, stages=6, stream_k=True)
    same, other, more = (price(work_of(p, config)).loop for p in (fits, wide, odd))
    assert same == pytest.approx(other, rel=0.02)
    assert work_of(odd, config).tiles[0] > work_of(fits, config).tiles[0] == 288 > odd.m / 128
    assert more > same


def test_padding_takes_as_long_as_pixels(rng: np.random.Generator) -> None:
    inner, padded = (_problem(4, 16 - e, 16 - e, 64, 64, 3, 1, e // 2) for e in (0, 2))
    assert padded.m == inner.m  # of the same result
    for config in random_configs(inner, rng, 5):
        a, b = (work_of(problem, config) for problem in (inner, padded))
        assert a.loads[0].total > b.loads[0].total
        assert price(a).loop == price(b).loop


@pytest.mark.parametrize("tap_bytes", [16, 48, 64, 96, 128, 144, 272, 880, 1024])
def test_lines_of_taps_are_those_of_all_their_places(tap_bytes: int) -> None:
    touched = []
    for place in range(0, 128 * tap_bytes, tap_bytes):  # of 128 taps, one after the other
        boxes = range(place, place + tap_bytes, 128)
        ends = [min(box + 128, place + tap_bytes) for box in boxes]
        touched.append(sum((end - 1) // 128 - box // 128 + 1
                           for box, end in zip(boxes, ends, strict=True)))  # fmt: skip
    assert lines_of_taps(tap_bytes) == pytest.approx(np.mean(touched) * 128 / tap_bytes)


def test_channels_across_lines_take_longer(rng: np.random.Generator) -> None:
    whole, crossing = (_problem(16, 32, 32, c, 128, 3) for c in (128, 120))
    for config in random_configs(whole, rng, 20):
        if config.why_not(crossing) is None:
            a, b = (work_of(problem, config) for problem in (whole, crossing))
            assert _lines(b.loads[0]) > _lines(a.loads[0])


def _lines(load: Load) -> float:
    return load.rows * load.row_bytes * load.lines


def test_readers_of_pixels_join_in_part() -> None:
    """Four columns of tiles read the same pixels; clusters load them fewer times still."""
    apart, shared = (_problem(4 * n, 16, 16, 256, k, 5) for n, k in ((16, 64), (4, 256)))
    config = Config(128, 64, stages=8)
    one, four = (price(work_of(problem, config)) for problem in (apart, shared))
    assert 0.5 * one.l2 < four.l2 < one.l2
    assert price(work_of(shared, config.replace(cluster_n=2))).l2 < 0.9 * four.l2


@pytest.mark.parametrize(("channels", "slow"), [(40, 1.0), (56, 0.5), (48, 0.0), (64, 0.0),
                                                (328, 1 / 6), (112, 0.0), (72, 1 / 2)])  # fmt: skip
def test_rows_that_end_within_a_sector_take_longer(channels: int, slow: float) -> None:
    config = Config(128, 64, stages=8)
    for taps in (1, 3):  # a GEMM, and a convolution
        work = work_of(_problem(16, 16, 16, channels, 64, taps), config)
        assert [load.cut for load in work.loads] == pytest.approx([slow, slow])
        assert work.loads[0].cut == cut_rows(2 * channels, 128)
        whole = price(work._replace(loads=tuple(load._replace(cut=0.0) for load in work.loads)))
        assert (price(work).loop > whole.loop) == (slow > 0)


def test_a_convolution_of_single_pixels_is_a_gemm() -> None:
    problem = _problem(9, 17, 21, 160, 344, 1)
    assert problem == plain_gemm(9 * 17 * 21, 344, 160)


def test_a_tile_without_a_box_is_no_config() -> None:
    # A box of TMA has 256 elements of a row, which are 32 pixels in steps of 8.
    one = Convolution(1, 1, 800, 64, 64, (1, 3), (1, 8), (0, 1, 0, 1))
    problem = recognise(one.function().func).problem
    assert Config(32, 64, stages=4, consumers=1, swap_ab=True).why_not(problem) is None
    for config in (Config(64, 64, stages=4, consumers=1), Config(128, 64, stages=4)):
        assert "no box of so many pixels" in config.why_not(problem)
    found = [config for _, config in ranked(problem, 20)]
    assert found and all(config.tile_m <= 32 for config in found)
