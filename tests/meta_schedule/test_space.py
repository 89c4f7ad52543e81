"""The design space of MetaSchedule: one draw a choice, mutations, what is made legal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from tests.meta_schedule.tuning import context_of
from warploom.decide.config import Config
from warploom.decide.draws import draws, starts
from warploom.decide.repair import TILE, why_not_search
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
@pytest.mark.some(2)
def test_samples_become_legal_and_differ(size):
    context = context_of(matmul(*size))
    problem = recognise(context.mod["main"]).problem
    (postproc,) = context.space_generator.postprocs
    spaces = context.space_generator.generate_design_space(context.mod)
    legal, drawn_legal, distinct = 0, 0, set()
    for number in range(200):
        sch = Schedule(context.mod, seed=number + 1)
        # Without decisions they are drawn anew, as the search does for its first generation.
        trace = Trace(list(spaces[number % len(spaces)].trace.insts), {})
        trace.apply_to_schedule(sch, remove_postproc=True)
        drawn_legal += why_not_search(problem, config_of(sch.mod["main"], problem)) is None
        sch.enter_postproc()
        if postproc.apply(sch):
            config = config_of(sch.mod["main"], problem)
            legal += why_not_search(problem, config) is None
            distinct.add(config)
    print(f"legal as drawn: {drawn_legal} of 200; as measured: {legal}; distinct {len(distinct)}")
    assert legal >= 195
    assert len(distinct) > 60
    if min(size[:2]) > 16 and size[2] > 1000:
        assert {(one.split_k > 1, one.stream_k) for one in distinct} >= {(0, 0), (1, 0), (0, 1)}


@pytest.mark.parametrize("size", SIZES[:2], ids=str)
def test_the_best_candidates_of_the_model_are_where_searches_begin(size):
    problem = recognise(matmul(*size)).problem
    allowed = draws(problem)
    found = starts(problem, 4)
    assert found and len({tuple(getattr(one, n) for n in TILE) for one in found}) == len(found)
    for config in found:
        assert allowed.has(config) and allowed.legal(config) == config
        around, numbers = allowed.around(config), config.values()
        assert around.values == allowed.values, "mutations lead from one space to all others"
        for name, values in around.values.items():
            weights = around.weights[name]
            assert sum(weights) == pytest.approx(1)
            assert weights[values.index(numbers[name])] == max(weights)


def test_mutations_change_one_choice_and_equal_kernels_look_equal():
    context = context_of(matmul(*SIZES[0]))
    space, problem = context.space_generator, recognise(context.mod["main"]).problem
    (mutator,), (postproc,) = list(space.mutator_probs), list(space.postprocs)
    trace = space.generate_design_space(context.mod)[0].trace
    legal = rewritten = 0
    seen: dict[Config, dict[str, int]] = {}
    for _ in range(150):
        changed = mutator.apply(trace)
        before, after = (_values(one) for one in (trace, changed))
        assert sum(before[name] != after[name] for name in before) == 1
        sch = Schedule(context.mod)
        changed.apply_to_schedule(sch, remove_postproc=True)
        drawn = annotations_of(sch.mod["main"])
        sch.enter_postproc()
        if postproc.apply(sch):
            legal += 1
            trace = changed
            written, config = annotations_of(sch.mod["main"]), config_of(sch.mod["main"], problem)
            assert seen.setdefault(config, written) == written
            assert {name: config.values()[name] for name in written} == written
            rewritten += drawn != written
    assert legal >= 145 and rewritten > 0


def _values(trace) -> dict[str, int]:
    drawn, found = {}, {}
    for one in trace.insts:
        if one.kind.name == "SampleCategorical":
            drawn[one.outputs[0]] = int(one.attrs[0][int(trace.decisions[one])])
        elif one.kind.name == "Annotate":
            found[str(one.attrs[0])] = drawn[one.inputs[1]]
    return found


def test_a_record_has_what_was_measured_and_not_what_was_drawn():
    context = context_of(matmul(*SIZES[0]))
    (postproc,) = context.space_generator.postprocs
    sch = context.space_generator.generate_design_space(context.mod)[0]
    trace = sch.trace
    samples = [one for one in trace.insts if one.kind.name == "SampleCategorical"]
    names = [str(one.attrs[0]) for one in trace.insts if one.kind.name == "Annotate"]
    drawn = samples[names.index(PREFIX + "consumers")]
    for place in range(len(drawn.attrs[0])):
        changed = trace.with_decision(drawn, place, remove_postproc=True)
        sch = Schedule(context.mod)
        changed.apply_to_schedule(sch, remove_postproc=True)
        sch.enter_postproc()
        assert postproc.apply(sch)
        again = Schedule(context.mod)
        sch.trace.apply_to_schedule(again, remove_postproc=False)
        assert annotations_of(again.mod["main"]) == annotations_of(sch.mod["main"])


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    "values",
    [{}, {"tile_m": 7}, {"nonsense": 1}, {"tile": 0}, {"tile": 210163204, "fewer_stages": 99},
     {"tile": 210163204, "grid": 31}, {"stages": 0}, {"reduce_through": 7}],
    ids=str,
)
def test_the_postproc_rejects_what_somebody_wrote_and_never_raises(values):
    context = context_of(matmul(*SIZES[0]))
    (postproc,) = context.space_generator.postprocs
    sch = Schedule(context.mod)
    for name, value in values.items():
        sch.annotate(sch.get_sblock("matmul"), PREFIX + name, value)
    assert not postproc.apply(sch)


def test_records_of_the_space_are_short():
    context = context_of(matmul(*SIZES[0]))
    sch = context.space_generator.generate_design_space(context.mod)[-1]
    problem = recognise(context.mod["main"]).problem
    assert set(annotations_of(sch.mod["main"])) == set(draws(problem).values)
    assert len(str(sch.trace.as_json())) < 12000


def test_large_clusters_are_for_few_tiles():
    few = recognise(matmul(*SIZES[2])).problem
    # 14 x 8 tiles are 14 clusters, of 15 that run at a time; 16 x 8 would be 16.
    config = Config(72, 128, cluster_m=2, cluster_n=4, swap_ab=True)
    assert why_not_search(few, config) is None
    assert "leave SMs idle" in why_not_search(few, replace(config, tile_m=64))
    beyond = replace(config, cluster_m=1, cluster_n=8, tile_n=256)
    assert "Half of a cluster" in why_not_search(few, beyond)
