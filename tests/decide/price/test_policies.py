"""Prices of L2 policies, prefetches, PDL and ordered MMAs, which change no tile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.decide.price.random_configs import random_configs
from warploom.decide import choose, plain_gemm, predict, ranked
from warploom.decide.machine import H200
from warploom.decide.price.gemm import work_of
from warploom.decide.price.launch import launch_of
from warploom.decide.price.model import price
from warploom.decide.price.prefetch import NOTHING, prefetch_of
from warploom.decide.price.work import Work
from warploom.decide.work import tiles_along
from warploom.tile.choices import DROPPED


def _works(rng: np.random.Generator, count: int) -> list[Work]:
    found = []
    for _ in range(count):
        m, n, k = (8 * int(2 ** rng.uniform(0, 10)) for _ in range(3))
        problem = plain_gemm(m, n, k)
        found += [work_of(problem, config) for config in random_configs(problem, rng, 6)]
    return found


def _plain(work: Work) -> Work:
    loads = tuple(load._replace(policy="") for load in work.loads)
    return work._replace(loads=loads, prefetch_l2=False)


def test_policies_are_a_term_of_their_own(rng: np.random.Generator) -> None:
    """They change nothing that tiles are compared by."""
    for work in _works(rng, 12):
        with_, without = price(work), price(_plain(work))
        assert without.policies == 0 and without.total == without.without_policies
        assert with_.without_policies == without.total
        assert with_.total == pytest.approx(without.total + with_.policies, rel=1e-12)


def test_weights_that_are_read_once_are_dropped_first_and_prefetched() -> None:
    """Whatever the tile and the cluster; what several clusters read is neither."""
    once = 0
    for m in (1, 24, 100, 128):
        problem = plain_gemm(m, 4096, 8192)
        for _, config in ranked(problem, 200):
            down, _ = tiles_along(problem, config)
            alone = down <= config.cluster_m or config.cluster_size == 1
            assert config.l2_policy == config.prefetch_l2 == alone, config
            once += alone
    assert once
    assert not any(config.prefetch_l2 for _, config in ranked(plain_gemm(129, 4096, 8192)))


def test_what_is_read_once_may_be_dropped_first(rng: np.random.Generator) -> None:
    """The policy costs nothing where one sweep reads all; more sweeps of one operand cost more."""
    for work in _works(rng, 12):
        dropped = _plain(work)._replace(loads=tuple(
            load._replace(policy=DROPPED if load.along == (False, True) else "")
            for load in work.loads
        ))  # fmt: skip
        launch = launch_of(dropped, H200.gpu)
        if launch.block[0] >= dropped.tiles[0]:
            assert price(dropped).policies <= 0


def test_results_push_out_what_is_dropped_first() -> None:
    """As it was measured of GEMMs whose results are many times as large as their operands."""
    for sizes in ((12200, 7120, 208), (10184, 9896, 40), (10624, 6824, 32), (2784, 5488, 64)):
        problem = plain_gemm(*sizes)
        assert predict(problem, replace(choose(problem), l2_policy=1)).policies > 0


def test_prefetches_gain_where_memory_is_the_limit_and_lose_where_ctas_share() -> None:
    """As it was measured on an H200: ``results/2026-11-23-h200-launches.md``."""
    for sizes in ((1, 4096, 4096), (16, 14336, 4096), (16, 8192, 8192), (128, 7168, 16384)):
        problem = plain_gemm(*sizes)
        assert predict(problem, replace(choose(problem), prefetch_l2=True)).policies < 0
    for sizes in ((512, 4096, 4096), (1000, 1000, 1000), (777, 4104, 2056)):
        problem = plain_gemm(*sizes)
        assert predict(problem, replace(choose(problem), prefetch_l2=True)).policies > 0


def test_prefetches_bring_at_most_what_memory_delivers_meanwhile(rng: np.random.Generator) -> None:
    window = (H200.serial_launch - H200.launch) * H200.dram_bytes
    for work in _works(rng, 12):
        launch = launch_of(work, H200.gpu)
        found = prefetch_of(work._replace(prefetch_l2=True, pdl=True), H200, launch)
        total = sum(load.total for load in work.loads)
        assert 0 <= found.ahead <= min(window, total) * (1 + 1e-12) and found.queue >= 0
        assert prefetch_of(work._replace(prefetch_l2=True, pdl=False), H200, launch) == NOTHING


def test_a_launch_after_the_end_of_another_costs_its_latency(rng: np.random.Generator) -> None:
    for work in _works(rng, 6):
        early, late = (price(_plain(work)._replace(pdl=pdl)).total for pdl in (True, False))
        assert late - early == pytest.approx(H200.serial_launch - H200.launch)


def test_ordered_mmas_cost_a_barrier_for_each_mma(rng: np.random.Generator) -> None:
    free = replace(H200, order_cycles=0.0)
    for work in _works(rng, 6):
        ordered = work._replace(order_mmas=True)
        assert price(ordered, free).total == price(work, free).total
        assert price(ordered).total >= price(work).total
        if work.consumers == 1:
            assert price(ordered).total == price(work).total


def test_only_what_is_read_once_is_prefetched(rng: np.random.Generator) -> None:
    """CTAs that share rows request them once each, unless a policy says that they are shared."""
    found = 0
    for work in _works(rng, 12):
        work = _plain(work)._replace(prefetch_l2=True, pdl=True)
        launch = launch_of(work, H200.gpu)
        _, of_b = work.loads
        once = work._replace(loads=(work.loads[0], of_b._replace(policy=DROPPED)))
        alone = work._replace(loads=(of_b,))
        assert prefetch_of(once, H200, launch) == prefetch_of(alone, H200, launch)
        all_, some = (prefetch_of(one, H200, launch).queue for one in (work, once))
        assert some <= all_ * (1 + 1e-12)
        found += some < 0.9 * all_
    assert found
