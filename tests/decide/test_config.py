"""Configs: legality agrees with the passes; the candidates and the choice of the model."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.shared import gemm_functions
from tests.shared.gemm_functions import FUNCTIONS
from warploom.decide import Config, GemmProblem
from warploom.decide.candidates import COLUMNS, candidates, fits_at_once, fitted
from warploom.decide.draws import draws
from warploom.decide.machine import H200
from warploom.decide.model import predict
from warploom.decide.ranking import ROW_LIMITS, choose_by_rows, ranked
from warploom.decide.selector import choose
from warploom.errors import IllegalCombination
from warploom.gemm import recognise
from warploom.gemm.generate import tile_program
from warploom.lower.lowerings import WARP_SPECIALISED, lower
from warploom.lower.trace import lower_trace

_LARGE = GemmProblem(4096, 4096, 4096, 1, "float16", "float16", "NT", "float32", 1, 16, 16, (),
                     ("float16",))  # fmt: skip


@pytest.mark.parametrize("name", ["layout NT", "epilogue", "swiglu", "4-bit words", "float8"])
@pytest.mark.some(2)
def test_legal_config_are_lowered(name: str, rng: np.random.Generator) -> None:
    gemm = recognise(FUNCTIONS[name]().func)
    found = list(candidates(gemm.problem))
    for number in rng.choice(len(found), 6, replace=False):
        lower(tile_program(gemm, found[number]))


@pytest.mark.parametrize("name", ["epilogue", "4-bit words"])
@pytest.mark.parametrize(
    "change",
    [
        {"reduce_through": "cluster"},
        {"stream_k": True},
        {"persistent": False},
        {"specialise": False},
        {"store_columns": 16},
        {"store_buffers": 4},
        {"sms": 128},
    ],
    ids=str,
)
@pytest.mark.some(4)
def test_legal_ways_to_share_tiles_are_lowered(name, change, rng) -> None:
    gemm = recognise(FUNCTIONS[name]().func)
    legal = []
    for one in candidates(gemm.problem):
        split = one.split_k if change != {"reduce_through": "cluster"} else 2
        changed = replace(one, **change, split_k=split, stages=2)
        if changed.why_not(gemm.problem) is None:
            legal.append(changed)
    assert legal or all(one.swap_ab for one in candidates(gemm.problem))
    for number in rng.choice(len(legal), min(2, len(legal)), replace=False):
        steps = lower_trace(tile_program(gemm, legal[number]))
        said = [text for step in steps for text in step.decisions]
        used = [int(text.split()[2]) for text in said if text.startswith("shared memory: ")]
        assert used[-1] <= legal[number].shared_bytes(gemm.problem)


@pytest.mark.parametrize("name", ["layout NT", "epilogue", "swiglu", "4-bit words"])
def test_shared_memory_is_not_underestimated(name: str, rng: np.random.Generator) -> None:
    gemm = recognise(FUNCTIONS[name]().func)
    found = [one for one in candidates(gemm.problem) if one.split_k == 1]
    for number in rng.choice(len(found), 3, replace=False):
        steps = lower_trace(tile_program(gemm, found[number]))
        (used,) = (
            int(text.split()[2])
            for step in steps
            for text in step.decisions
            if text.startswith("shared memory: ") and WARP_SPECIALISED not in step.name
        )
        assert used <= found[number].shared_bytes(gemm.problem)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tile_m": 96}, "tile_m = 96: 2 consumers need a multiple of 128"),
        ({"tile_n": 96, "swap_ab": True}, "tile_n = 96: 2 consumers need a multiple of 128"),
        ({"tile_n": 12}, "N = 12"),
        ({"tile_k": 24}, "tile_k = 24: one wgmma of float16 consumes 16"),
        ({"tile_m": 512, "tile_n": 64}, "a TMA box has at most 256"),
        ({"stages": 6}, "bytes of shared memory"),
        ({"ctas_per_sm": 2}, "bytes of shared memory"),
        ({"tile_m": 256, "tile_k": 32}, "A computing thread needs"),
        ({"cluster_m": 3}, "cluster of 3"),
        ({"slice_k": 2}, "slice_k = 2 with 2 consumers: warpgroups that share"),
        ({"store_columns": 32, "swap_ab": True, "tile_n": 128}, "store_columns may be 64"),
        ({"sms": 128, "persistent": False}, "sms may be 0"),
        ({"store_buffers": 4}, "bytes of shared memory"),
        ({"reduce_through": "cluster"}, "reduce_through 'cluster' with split_k 1"),
        ({"reduce_through": "cluster", "split_k": 3}, "split_k may be 2 or 4 or 8"),
        ({"reduce_through": "cluster", "split_k": 2}, "bytes of shared memory"),
        ({"reduce_through": "cluster", "split_k": 2, "cluster_n": 2}, "a cluster already"),
        ({"reduce_through": "cluster", "split_k": 2, "specialise": False},
         "where warps of their own load"),
        ({"stream_k": True, "split_k": 2}, "both say how CTAs share tiles"),
        ({"persistent": False, "stream_k": True}, "has no other to share with"),
        ({"persistent": False, "cluster_m": 2}, "has no other to share with"),
        ({"specialise": False, "cluster_m": 2}, "share neither loads nor steps"),
    ],
)
def test_what_is_illegal(change: dict[str, int], reason: str) -> None:
    config = replace(Config(), **change)
    assert reason in config.why_not(_LARGE)
    with pytest.raises(IllegalCombination, match=reason):
        config.check(_LARGE)


def test_values_of_config() -> None:
    config = Config(64, 128, swap_ab=True)
    assert Config.of(config.values()) == config
    assert all(isinstance(value, int) for value in config.values().values())
    with pytest.raises(IllegalCombination, match="'colour' is no choice"):
        Config.of({"colour": 1})
    with pytest.raises(IllegalCombination, match="stages = 0"):
        Config(stages=0)


def test_candidates_are_legal_and_different() -> None:
    for m, n, k in itertools.product((1, 100, 4096), (256, 4096), (64, 4096)):
        problem = replace(_LARGE, m=m, n=n, k=k)
        found = list(candidates(problem))
        assert found and len(set(found)) == len(found)
        assert all(one.why_not(problem) is None for one in found)


def test_sums_are_split_only_where_tiles_are_few_and_sums_long() -> None:
    """Each part has two steps, and all parts together take two waves at most."""
    split = 0
    for m, n, k in itertools.product((1, 1000), (128, 4096), (64, 512, 4096)):
        for one in candidates(replace(_LARGE, m=m, n=n, k=k)):
            if one.split_k > 1:
                split += 1
                count = -(-m // one.tile_m) * -(-n // one.tile_n)
                assert count * one.split_k <= 2 * H200.sms, (m, n, k, one)
                assert k // one.split_k >= 2 * one.tile_k, (m, n, k, one)
    assert split > 100


def test_measured_config_go_before_predictions() -> None:
    """A number of rows has a kernel of its own if another config was measured for it."""
    problem = replace(_LARGE, m=None)
    usual = choose(problem)
    other = replace(usual, stages=usual.stages - 1)
    limit = ROW_LIMITS[1]
    for measured, expected in ((other, [limit, None]), (usual, [None])):
        known = {one: usual for one in (None, *ROW_LIMITS)} | {limit: measured}
        found = choose_by_rows(problem, known=lambda one, known=known: known[one.m])
        # Below the limit the usual config is another kernel again.
        assert [one for one, _ in found if one is None or one >= limit] == expected
        assert dict(found)[None] == usual and dict(found).get(limit, usual) == measured


def test_the_choice_is_the_best_prediction() -> None:
    times = [time for time, _ in ranked(_LARGE)]
    assert times == sorted(times)
    assert choose(_LARGE) == ranked(_LARGE)[0][1]
    assert times[0] == predict(_LARGE, choose(_LARGE)).total


def test_more_work_takes_longer() -> None:
    for name, problem in {
        "m": replace(_LARGE, m=8192), "n": replace(_LARGE, n=8192), "k": replace(_LARGE, k=8192),
        "batch": replace(_LARGE, batch=2), "products": replace(_LARGE, products=2),
    }.items():  # fmt: skip
        config = Config(tile_n=128)
        assert predict(problem, config).total > predict(_LARGE, config).total, name


def test_few_rows_are_transposed_and_many_are_not() -> None:
    assert choose(replace(_LARGE, m=8)).swap_ab
    assert choose(_LARGE).accumulator[0] * choose(_LARGE).accumulator[1] >= 128 * 128


def test_a_kernel_for_each_number_of_rows() -> None:
    limits = [limit for limit, _ in choose_by_rows(replace(_LARGE, m=None))]
    assert limits[-1] is None and limits[:-1] == sorted(limits[:-1]) and len(limits) > 1
    assert [limit for limit, _ in choose_by_rows(_LARGE)] == [None]


def test_a_large_cluster_takes_as_many_turns_as_there_are_places() -> None:
    problem = replace(_LARGE, m=1024, n=1024, k=1024)  # 8 x 8 tiles of 128 x 128, 8 x 16 of half
    for cluster, columns, waves in ((1, 64, 1), (2, 64, 1), (4, 64, 2), (8, 64, 2), (8, 128, 1)):
        config = Config(128, columns, cluster_m=max(1, cluster // 2), cluster_n=min(cluster, 2))
        assert predict(problem, config).waves == waves
        assert fits_at_once(problem, config) == (waves == 1)


def test_what_ctas_share_are_whole_atoms() -> None:
    narrow = Config(136, 192, consumers=3, swap_ab=True, cluster_n=2)
    assert narrow.multicast(_LARGE) == (1, 1)
    assert replace(narrow, cluster_n=1, cluster_m=2).multicast(_LARGE) == (1, 2)
    assert replace(narrow, tile_m=144, cluster_m=2).multicast(_LARGE) == (2, 2)
    # Rows of what is loaded of a transposed A are steps of K.
    assert narrow.multicast(replace(_LARGE, layout="TT")) == (2, 1)
    ragged = replace(_LARGE, m=3001, k=4104)
    shared, alone = (predict(ragged, replace(narrow, tile_m=m)).l2 for m in (144, 136))
    assert alone > 1.1 * shared


def test_large_gemms_are_not_transposed() -> None:
    for m, n, k in ((8192, 10240, 8192), (4096, 4096, 4096), (3001, 5000, 4104)):
        best = choose(replace(_LARGE, m=m, n=n, k=k))
        assert not best.swap_ab
    best = choose(replace(_LARGE, m=777, n=4104, k=2056))
    assert best.swap_ab and -(-777 // best.tile_m) * best.tile_m < 820


@pytest.mark.parametrize("m", [1, 16, 128, 129, 4096])
def test_products_that_stream_weights_warm_the_cache(m: int) -> None:
    few = replace(_LARGE, m=m, n=4096, k=4096)
    assert choose(few).prefetch_l2 == (m <= 128)
    small = {"a_dtype": "float8_e4m3fn", "b_dtype": "float8_e4m3fn", "a_bits": 8, "b_bits": 8}
    assert not choose(replace(few, **small)).prefetch_l2
    prefetches, seldom = draws(few), draws(replace(few, m=4096))
    assert prefetches.values["prefetch_l2"] == (0, 1)
    assert prefetches.weights["prefetch_l2"][1] >= seldom.weights["prefetch_l2"][1]


def test_nothing_legal() -> None:
    gemm = recognise(gemm_functions.dequantised().func)
    with pytest.raises(IllegalCombination, match="no legal config"):
        choose(replace(gemm.problem, computed=(True, True)))


#: 4-bit weights in natural order with a scale for 128.
_WEIGHTS = replace(_LARGE, m=16, n=8192, k=8192, b_bits=4 + 16 / 128, computed=(False, True))


#: Microseconds that were measured, by how many warpgroups share the steps. What a launch costs
#: beside the kernel is in all of them alike: kernels did not start early then.
_MEASURED_BY_SLICES = {1: 22.5, 2: 17.9, 3: 16.8}


def test_what_turns_save_where_an_operand_is_computed_is_what_was_measured() -> None:
    predicted = {}
    for slices in _MEASURED_BY_SLICES:
        config = Config(16, 64, 256, 6, consumers=1, swap_ab=True, slice_k=slices)
        assert config.why_not(_WEIGHTS) is None
        predicted[slices] = predict(_WEIGHTS, config).total
    # Kernels did not start early then, which costs up to 0.6 us of a launch.
    for slices, measured in _MEASURED_BY_SLICES.items():
        print(f"{slices}: {predicted[slices]:.2f} us, measured {measured:.2f}")
        assert 0.85 < predicted[slices] / (measured - 0.6) < 1.05
    assert predicted[1] > 1.2 * max(predicted[2], predicted[3])


def test_warpgroups_take_turns_where_an_operand_is_computed_for_few_rows() -> None:
    best = choose(_WEIGHTS)
    assert best.slice_k == 3 and best.stages % 3 == 0
    assert all(one.slice_k == 1 for one in candidates(replace(_LARGE, m=16)))


def test_sums_of_turns_count_as_shared_memory() -> None:
    config = Config(16, 64, 256, 6, consumers=1, swap_ab=True)
    more = [replace(config, slice_k=slices).shared_bytes(_WEIGHTS) for slices in (1, 2, 3)]
    assert more[2] - more[1] == more[1] - more[0] == 64 * 16 * 4


@pytest.mark.parametrize(("m", "n"), [(4096, 2112), (3001, 5000), (128, 24576), (640, 8192)])
@pytest.mark.parametrize("rows", [64, 128, 192, 256])
def test_fitted_widths_fill_whole_turns(m: int, n: int, rows: int) -> None:
    for width in fitted(m, n, rows):
        count = -(-m // rows) * -(-n // width)
        narrower = -(-m // rows) * -(-n // (width - 16))
        assert -(-count // H200.sms) < -(-narrower // H200.sms), "a narrower one needs more waves"


def test_a_width_is_chosen_that_saves_a_wave() -> None:
    # Tiles of 176 rows or columns fill three waves, and leave 1 of 396 places idle.
    config = choose(replace(_LARGE, n=2112, k=7168))
    rows, columns = (2112, 4096) if config.swap_ab else (4096, 2112)
    assert config.accumulator[1] in fitted(rows, columns, config.accumulator[0]) - set(COLUMNS)


@pytest.mark.parametrize("size", [(128, 4096, 4096), (4096, 128, 4096), (1000, 3000, 512)])
def test_warpgroups_alternate_where_there_are_more_tiles_than_multiprocessors(size):
    m, n, k = size
    problem = replace(_LARGE, m=m, n=n, k=k)
    for config in candidates(problem):
        tiles = math.ceil(size[0] / config.tile_m) * math.ceil(size[1] / config.tile_n)
        assert tiles > H200.sms or not config.ping_pong, config


def test_some_warpgroups_alternate():
    assert any(one.ping_pong for one in candidates(replace(_LARGE, m=8192, n=8192)))
