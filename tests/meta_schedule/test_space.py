"""The design space of MetaSchedule: packed config, samples, mutations, what is rejected."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace
from warploom.decide.packing import (
    CLUSTER,
    GRID,
    SHARING,
    TILE,
    pack,
    pack_cluster,
    pack_tile,
    unpack,
)
from warploom.meta_schedule.options import options, seeds, why_not

from tests.meta_schedule.tuning import context_of
from warploom.decide.candidates import LARGE_CLUSTERS, candidates
from warploom.decide.config import Config
from warploom.errors import IllegalCombination
from warploom.gemm.annotations import PREFIX, annotations_of, config_of
from warploom.gemm.recognition import recognise
from warploom.meta_schedule.workloads import matmul

#: Large, few rows, not a multiple of anything, tiny, 8-bit operands.
SIZES = [
    (4096, 4096, 4096, "float16"),
    (16, 4096, 4096, "float16"),
    (1000, 1000, 1000, "bfloat16"),
    (130, 264, 72, "float16"),
    (512, 2048, 1024, "float8_e4m3fn"),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_packing_and_unpacking_are_inverse(size, rng):
    problem = recognise(matmul(*size)).problem
    legal = list(candidates(problem))
    for config in rng.choice(np.array(legal, object), 200):
        packed = pack(config, problem)
        assert unpack(packed, lambda: problem) == config
        assert all(0 <= value < 2**31 for value in packed.values()), "TVM samples 32-bit integers"


def test_packed_tiles_can_be_read():
    assert pack_tile(Config(128, 256, 64, consumers=2)) == 2_1_0_16_32_04
    assert pack_tile(Config(16, 192, 128, consumers=3, swap_ab=True, ctas_per_sm=2)) == (
        3_2_1_02_24_08
    )


@pytest.mark.parametrize(("consumers", "turns"), [(1, 1), (3, 1), (1, 2), (2, 2), (1, 3)])
def test_turns_of_warpgroups_are_packed_with_consumers(consumers, turns):
    config = Config(16, 64, 64, consumers=consumers, slice_k=turns, swap_ab=True)
    values = {**config.values(), TILE: pack_tile(config)}
    for name in ("tile_m", "tile_n", "tile_k", "consumers", "turns", "swap_ab"):
        del values[name]
    assert unpack(values, lambda: None) == config


@pytest.mark.parametrize(
    "change",
    [
        {"split_k": 4, "reduce_through": "cluster"}, {"stream_k": True, "cluster_n": 2}, {"split_k": 6},
        {"persistent": False}, {"specialise": False, "split_k": 2},
        {"specialise": False, "persistent": False},
        {"store_columns": 16, "persistent": False, "store_buffers": 4}, {"sms": 128},
        {"prefetch_l2": True, "l2_policy": 1, "sms": 128},
    ],
    ids=str,
)  # fmt: skip
def test_ways_to_share_tiles_are_packed(change):
    problem = recognise(matmul(*SIZES[0])).problem
    config = Config(64, 64, 64, consumers=1, **change)
    assert config.why_not(problem) is None
    assert unpack(pack(config, problem), lambda: problem) == config


def test_what_excludes_each_other_is_decided_in_order():
    problem = recognise(matmul(*SIZES[0])).problem
    packed = pack(Config(64, 64, 64, consumers=1, cluster_m=2), problem)
    grids = [*range(4), *options(problem).values[GRID]]
    for sharing, grid in product(options(problem).values[SHARING], grids):
        config = unpack({**packed, SHARING: sharing, GRID: grid}, lambda: problem)
        assert config.why_not(problem) is None
        assert (config.persistent, config.specialise) == (not grid % 2, grid % 10 < 2)


def test_a_tile_that_has_no_short_form_is_an_error():
    with pytest.raises(IllegalCombination, match="no short form"):
        pack_tile(Config(7, 64, 64))
    with pytest.raises(IllegalCombination, match="below 100"):
        pack_tile(Config(64, 64, 1600))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.some(2)
def test_nearly_all_samples_are_legal(size):
    context = context_of(matmul(*size))
    problem = recognise(context.mod["main"]).problem
    spaces = context.space_generator.generate_design_space(context.mod)
    legal, distinct = 0, set()
    for number in range(300):
        sch = Schedule(context.mod, seed=number + 1)
        # Without decisions they are drawn anew, as the search does for its first generation.
        trace = Trace(list(spaces[number % len(spaces)].trace.insts), {})
        trace.apply_to_schedule(sch, remove_postproc=True)
        try:
            config = config_of(sch.mod["main"], problem)
        except IllegalCombination:
            continue
        legal += why_not(problem, config) is None
        distinct.add(config)
    assert legal >= 270
    assert len(distinct) > 30
    if min(size[:2]) > 16 and size[2] > 1000:
        assert {(one.in_cluster, one.stream_k) for one in distinct} == {(0, 0), (1, 0), (0, 1)}


def test_large_clusters_are_for_few_tiles():
    few, many = (recognise(matmul(*size)).problem for size in (SIZES[2], SIZES[0]))
    large = {pack_cluster(Config(cluster_m=m, cluster_n=n)) for m, n in LARGE_CLUSTERS}
    assert large <= {*options(few).values[CLUSTER]}
    assert not large & {*options(many).values[CLUSTER]}
    # 14 x 8 tiles are 14 clusters, of 15 that run at a time; 16 x 8 would be 16.
    config = Config(72, 128, cluster_m=2, cluster_n=4, swap_ab=True)
    assert why_not(few, config) is None
    assert "leave SMs idle" in why_not(few, replace(config, tile_m=64))
    assert "Half of a cluster" in why_not(few, replace(config, cluster_m=1, cluster_n=8, tile_n=256))


@pytest.mark.parametrize("size", SIZES[:2], ids=str)
def test_the_best_candidates_of_the_model_are_where_searches_begin(size):
    problem = recognise(matmul(*size)).problem
    allowed = options(problem)
    found = seeds(problem, 4)
    assert found and len({one[TILE] for one in found}) == len(found)
    for packed in found:
        around = allowed.around(packed)
        assert around.values == allowed.values, "mutations lead from one space to all others"
        for name, value in packed.items():
            weights = around.weights[name]
            assert sum(weights) == pytest.approx(1)
            assert weights[around.values[name].index(value)] == max(weights)


def test_mutations_change_one_choice_and_keep_most_candidates_legal():
    context = context_of(matmul(*SIZES[0]))
    space, problem = context.space_generator, recognise(context.mod["main"]).problem
    (mutator,), (postproc,) = list(space.mutator_probs), list(space.postprocs)
    trace = space.generate_design_space(context.mod)[0].trace
    legal = rewritten = 0
    for _ in range(150):
        changed = mutator.apply(trace)
        before, after = (_values(one) for one in (trace, changed))
        assert sum(before[name] != after[name] for name in before) == 1
        sch = Schedule(context.mod)
        changed.apply_to_schedule(sch, remove_postproc=True)
        drawn = sch.mod["main"]
        sch.enter_postproc()
        if postproc.apply(sch):
            legal += 1
            trace = changed
            config = config_of(drawn, problem)
            assert annotations_of(sch.mod["main"]) == pack(config, problem), "equal ones look equal"
            rewritten += annotations_of(drawn) != annotations_of(sch.mod["main"])
    assert legal >= 120 and rewritten > 0


def _values(trace) -> dict[str, int]:
    drawn, found = {}, {}
    for one in trace.insts:
        if one.kind.name == "SampleCategorical":
            drawn[one.outputs[0]] = int(one.attrs[0][int(trace.decisions[one])])
        elif one.kind.name == "Annotate":
            found[str(one.attrs[0])] = drawn[one.inputs[1]]
    return found


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    "values",
    [{}, {"tile_m": 7}, {"nonsense": 1}, {"tile": 0}, {"tile": 210163204, "fewer_stages": 99},
     {"tile": 210163204, "grid": 31}],
    ids=str,
)
def test_the_postproc_rejects_and_never_raises(values):
    context = context_of(matmul(*SIZES[0]))
    (postproc,) = context.space_generator.postprocs
    sch = Schedule(context.mod)
    for name, value in values.items():
        sch.annotate(sch.get_sblock("matmul"), PREFIX + name, value)
    assert not postproc.apply(sch)


def test_records_of_the_space_are_short():
    context = context_of(matmul(*SIZES[0]))
    sch = context.space_generator.generate_design_space(context.mod)[-1]
    assert set(annotations_of(sch.mod["main"])) == set(
        options(recognise(context.mod["main"]).problem).values
    )
    assert len(str(sch.trace.as_json())) < 6200
