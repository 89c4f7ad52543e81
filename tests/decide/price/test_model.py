"""The model of costs: its bounds, and that more work is never cheaper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.decide.price.random_configs import random_configs
from warploom.decide.config import Config
from warploom.decide.machine import H200
from warploom.decide.machines import machine_of
from warploom.decide.price.gemm import work_of
from warploom.decide.price.model import price
from warploom.decide.price.step import interleaved
from warploom.decide.price.work import Nest, Work
from warploom.decide.problem import GemmProblem
from warploom.target.gpus import GPUS

_PLAIN = GemmProblem(4096, 4096, 4096, 1, "float16", "float16", "NT", "float32", 1, 16, 16, (),
                     ("float16",))  # fmt: skip


def _works(rng: np.random.Generator, count: int) -> list[Work]:
    found = []
    for _ in range(count):
        m, n, k = (int(2 ** rng.uniform(3, 13)) // 8 * 8 for _ in range(3))
        problem = replace(_PLAIN, m=m, n=n, k=k)
        found += [work_of(problem, config) for config in random_configs(problem, rng, 6)]
    return found


def _more_bytes(work: Work) -> Work:
    return work._replace(loads=tuple(
        load._replace(row_bytes=2 * load.row_bytes, tile_bytes=2 * load.tile_bytes,
                      total=2 * load.total) for load in work.loads
    ))  # fmt: skip


def _wider_store(work: Work) -> Work:
    return work._replace(epilogue=tuple(
        tile._replace(size=2 * tile.size, lines=tile.lines) for tile in work.epilogue
    ))  # fmt: skip


def _more_tiles(work: Work) -> Work:
    return work._replace(
        batch=2 * work.batch,
        loads=tuple(load._replace(total=2 * load.total) for load in work.loads),
        epilogue=tuple(tile._replace(elements=2 * tile.elements) for tile in work.epilogue),
    )


_MORE = {
    "bytes": _more_bytes,
    "steps": lambda work: work._replace(steps=work.steps + work.split_k),
    "tiles": _more_tiles,
    "MMAs": lambda work: work._replace(mmas=work.mmas * 2),
    "stores": _wider_store,
    "dequantised elements": lambda work: work._replace(dequantised=work.dequantised + 8192.0),
    "prologue": lambda work: work._replace(prologue=work.loads[:1]),
}


@pytest.mark.parametrize("what", _MORE)
def test_more_work_is_never_cheaper(what: str, rng: np.random.Generator) -> None:
    for work in _works(rng, 6):
        if what == "tiles":  # of stream-K fewer CTAs share a tile then, and fewer parts are added
            work = work._replace(stream_k=False)
        more = _MORE[what](work)
        assert price(more).total >= price(work).total * (1 - 1e-12), work


@pytest.mark.parametrize("name", Nest._fields)
def test_more_instructions_are_never_cheaper(name: str, rng: np.random.Generator) -> None:
    for work in _works(rng, 4):
        some = work._replace(nest=Nest(fma=16384.0, mufu=8192.0))
        value = getattr(some.nest, name)
        more = some._replace(nest=some.nest._replace(**{name: value + 4096.0}))
        assert price(more).total >= price(some).total, work


def test_fewer_sms_are_never_faster(rng: np.random.Generator) -> None:
    """Of works of many waves; a single wave of fewer CTAs shares the L2 cache with fewer."""
    small = replace(H200, gpu=GPUS["h100-3g"])
    for work in _works(rng, 10):
        many = work._replace(batch=work.batch * 4096)
        assert price(many, small).total >= price(many).total * (1 - 1e-12), work


def test_a_line_that_many_ctas_read_takes_its_time() -> None:
    """One row of A for 116 CTAs: clusters ask less often."""
    problem = replace(_PLAIN, m=1, n=1856, k=8192)
    alone, together = (
        price(work_of(problem, Config(64, 16, 64, stages=8, consumers=1, cluster_n=wide))).loop
        for wide in (1, 4)
    )
    steps = 8192 / 64
    assert alone > steps * 116 * H200.same_line / H200.clock
    assert together < 0.7 * alone


@pytest.mark.parametrize("name", [name for name, gpu in GPUS.items() if gpu.arch.name == "sm_90a"])
def test_every_hopper_has_a_machine(name: str) -> None:
    machine = machine_of(GPUS[name])
    assert machine.sms == GPUS[name].sms
    config = next(random_configs(_PLAIN, np.random.default_rng(0), 1))
    assert price(work_of(_PLAIN, config), machine).total > 0
    assert machine_of(H200.gpu) is H200


def test_warpgroups_interleave_between_the_bounds(rng: np.random.Generator) -> None:
    for _ in range(200):
        multiply, nest = rng.uniform(0, 2000, 2)
        assert interleaved(multiply, nest, 1) == pytest.approx(multiply + nest)
        last = 0.0
        for count in range(1, 7):
            cycles = interleaved(multiply, nest, count)
            least = max(multiply + nest, count * max(multiply, nest))
            assert least * (1 - 1e-12) <= cycles <= count * (multiply + nest) * (1 + 1e-12)
            assert cycles >= last
            last = cycles
    assert interleaved(0.0, 0.0, 2) == 0.0


def test_a_config_is_as_fast_as_its_clocks_allow() -> None:
    """A GEMM of 4096 takes no less than its multiply-adds at the rate of the tensor cores."""
    for config in random_configs(_PLAIN, np.random.default_rng(1), 20):
        least = 4096**3 / (H200.tensor_bytes / 2) / H200.sms / H200.clock
        assert price(work_of(_PLAIN, config)).total > least


def test_each_sum_that_is_added_takes_its_time() -> None:
    """Beside the bytes: as many are moved with both machines."""
    free = replace(H200, part_each=0.0)
    problem = replace(_PLAIN, m=64, n=64, k=32768)
    for choices in ({"split_k": 2}, {"split_k": 12}, {"stream_k": True}):
        work = work_of(problem, Config(64, 64, 64, stages=8, consumers=1, **choices))
        others = work.split_k - 1 if work.split_k > 1 else H200.sms - 1
        more = price(work).reduce - price(work, free).reduce
        assert more == pytest.approx(H200.part_each * others, rel=0.01)


def test_results_of_all_sizes_reach_memory() -> None:
    """Also those that the L2 cache could hold: the kernel before has left as many."""
    small, large = (
        price(work_of(replace(_PLAIN, m=rows, n=4096, k=64), Config(128, 128, 64, stages=4))).dram
        for rows in (256, 512)
    )
    assert large - small >= 256 * 4096 * 2 / H200.dram_bytes


@pytest.mark.parametrize(("columns", "consumers", "rounds"), [(64, 1, 1), (128, 2, 1), (256, 2, 2),
                                                              (160, 1, 3)])  # fmt: skip
def test_a_residual_comes_in_rounds_of_buffers(columns: int, consumers: int, rounds: int) -> None:
    """128 rows; a warpgroup has buffers for two chunks of 64 columns."""
    config = Config(128, columns, 64, stages=4, consumers=consumers)
    stored = replace(H200, store_bytes=1e9, l2_store_bytes=1e9)  # at once
    residual = replace(_PLAIN, inputs=(("float16", "tile"),))
    for k in (64, 8192):
        short, with_input = (
            price(work_of(replace(one, m=128, n=columns, k=k), config), stored)
            for one in (_PLAIN, residual)
        )
        more = with_input.drain - short.drain
        arrives = 128 * columns * 2 / H200.receive_bytes / H200.clock
        hidden = rounds - 1 if k > 1000 else rounds
        least = (rounds - 1) * H200.latency + arrives
        assert least * 0.99 < more < hidden * H200.latency + arrives * 1.01
