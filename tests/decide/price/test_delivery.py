"""What the L2 cache delivers: readers that join in GPCs, operands with few readers, stream-K."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.decide.price.random_configs import random_configs
from warploom.decide.config import Config
from warploom.decide.machine import H200
from warploom.decide.price.delivery import delivered_cycles, readers_of
from warploom.decide.price.gemm import work_of
from warploom.decide.price.launch import launch_of
from warploom.decide.price.model import price
from warploom.decide.price.step import step_of
from warploom.decide.price.work import Work
from warploom.decide.problem import plain_gemm

_GPCS = H200.gpu.gpcs
#: Readers never come apart, and always.
_JOINED = replace(H200, joining=1.0, joining_pairs=1.0)
_APART = replace(H200, joining=0.0, joining_pairs=0.0)


def _delivered(work: Work, machine=H200) -> float:
    return delivered_cycles(work, machine, launch_of(work, machine.gpu))


def _wave(config: Config, down: int, across: int) -> Work:
    """A wave of so many tiles of a config."""
    return work_of(plain_gemm(down * config.tile_m, across * config.tile_n, 8192), config)


@pytest.mark.parametrize(("down", "across"), [(8, 16), (2, 64), (1, 128)])
def test_lines_are_answered_once_for_each_reader_or_gpc(down: int, across: int) -> None:
    config = Config(128, 64, 64, stages=4, consumers=1)
    work = _wave(config, down, across)
    bytes_ = 128 * 128 * 128, 128 * 64 * 128  # of A and B, of 128 CTAs
    assert _delivered(work, _APART) == pytest.approx(sum(bytes_) / H200.distinct_bytes)
    # Each GPC of many has a reader; of few readers hardly two are in one.
    least = sum(
        asked / readers * min(readers, _GPCS)
        for asked, readers in zip(bytes_, (across, down), strict=True)
    )
    joined = _delivered(work, _JOINED) * H200.distinct_bytes
    assert 0.6 * least < joined <= least * (1 + 1e-9)


def test_operands_with_few_readers_take_longer_than_with_many() -> None:
    """A CTA asks for as much."""
    square = Config(64, 64, 64, stages=8, consumers=1)
    few, many = (_delivered(_wave(square, *tiles)) for tiles in ((4, 4), (8, 16)))
    assert few / 16 > 1.2 * many / 128


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2), (4, 1), (2, 4)])
def test_clusters_ask_once_for_what_their_ctas_share(cluster: tuple[int, int]) -> None:
    config = Config(128, 128, 64, stages=4)
    alone = _wave(config, 8, 8)
    shared = _wave(config.replace(cluster_m=cluster[0], cluster_n=cluster[1]), 8, 8)
    asked = 1 / cluster[1] + 1 / cluster[0]
    ratio = _delivered(shared, _APART) / _delivered(alone, _APART)
    assert ratio == pytest.approx(asked / 2)


def test_readers_of_clusters_of_two_come_apart_in_one_wave_only() -> None:
    pairs = Config(128, 128, 64, stages=4, cluster_n=2)
    for tiles, differ in (((8, 16), True), ((64, 64), False)):
        work = _wave(pairs, *tiles)
        apart = _delivered(work, replace(H200, joining_pairs=0.0))
        assert (apart > 1.05 * _delivered(work, replace(H200, joining_pairs=1.0))) is differ
    four = _wave(pairs.replace(cluster_n=4), 8, 8)
    assert _delivered(four, _APART) > _delivered(four, replace(H200, joining_pairs=0.0))


def test_readers_that_have_come_apart_are_never_faster(rng: np.random.Generator) -> None:
    parts = [replace(H200, joining=part, joining_pairs=part) for part in (1.0, 0.5, 0.0)]
    slower = 0
    for _ in range(10):
        m, n, k = (int(2 ** rng.uniform(3, 13)) // 8 * 8 for _ in range(3))
        problem = plain_gemm(m, n, k)
        for config in random_configs(problem, rng, 6):
            work = work_of(problem, config)
            times = [price(work, machine).without_policies for machine in parts]
            assert times == sorted(times), work
            slower += times[2] > 1.1 * times[0]
    assert slower


def test_rows_across_lines_take_longer() -> None:
    config = Config(128, 128, 64, stages=4)
    whole, across = (
        _delivered(work_of(plain_gemm(1024, 2048, k), config)) for k in (7168, 7200)
    )
    assert across == pytest.approx(H200.crossing * whole)


def test_ctas_of_stream_k_share_what_they_do_not_cut() -> None:
    """The tiles that fill no wave are cut, and those of one more."""
    config = Config(128, 128, 64, stages=4, stream_k=True)
    whole = config.replace(stream_k=False)
    several, many = (
        _delivered(_wave(config, down, 4)) / _delivered(_wave(whole, down, 4))
        for down in (40, 132 * 3 + 1)
    )
    assert several > many > 1
    assert _delivered(_wave(config, 33 * 3, 4)) == _delivered(_wave(whole, 33 * 3, 4))


def test_as_many_tiles_read_a_load_as_run_beside_each_other() -> None:
    work = _wave(Config(128, 128, 64, stages=4, cluster_m=2), 8, 16)
    launch = launch_of(work, H200.gpu)
    a, b = (readers_of(load, launch) for load in work.loads)
    assert (a, b) == (16, 8)


@pytest.mark.parametrize("constant", ["copy_cycles", "cut_cycles"])
def test_two_ctas_of_a_pair_share_the_unit_for_boxes(constant: str) -> None:
    """Nothing else takes as long in this machine; rows of 40 elements end within a sector."""
    slow = replace(H200, **{constant: 1e5})
    problem = plain_gemm(64 * 132, 64, 40)
    config = Config(64, 64, 64, stages=4, consumers=1)
    works = [work_of(replace(problem, m=64 * ctas), config) for ctas in (66, 67, 132)]
    one, more, all_ = (step_of(w, slow, launch_of(w, slow.gpu)).cycles for w in works)
    assert more == pytest.approx(2 * one, rel=0.01)
    assert all_ == pytest.approx(2 * one, rel=0.01)
