"""The families of ``bench judge``: random cases, configs, programs, and right results."""

from __future__ import annotations

import argparse
import random
from dataclasses import asdict, replace
from math import inf

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi

from tests.shared.wild_configs import wild_config
from warploom.decide.config import Config
from warploom.decide.legality import deepest, why_not
from warploom.errors import WarploomError
from warploom.layout.weight_order import pack_weights
from warploom.meta_schedule import Builder, Runner, reference
from warploom.meta_schedule.measure import poison
from warploom.meta_schedule.plain_schedule import scheduled_apart
from warploom.programs import attention, gemm_block_scaled, gemm_grouped, gemm_quantised
from warploom.target.tvm_target import cuda_target, default_target
from warploom_bench import judge
from warploom_bench.attention import AttentionShape
from warploom_bench.block_scaled import BlockScaledShape
from warploom_bench.dequant import DequantShape
from warploom_bench.judging import references
from warploom_bench.judging.cases import FAMILIES, wanted_cases
from warploom_bench.judging.changes import each, near_to
from warploom_bench.judging.families import FAMILIES as PROGRAMS
from warploom_bench.judging.final import run_final
from warploom_bench.judging.gemms import Convolution, GemmCase
from warploom_bench.judging.programs import ProgramCase
from warploom_bench.judging.sampled import attention_result, sampled_queries
from warploom_bench.judging.scaled import UnevenGroups
from warploom_bench.judging.search import Search, run_round
from warploom_bench.judging.verdict import verdicts

SMALL = {
    "quantised": DequantShape("g", 5, 128, 512, 4),
    "block-scaled": BlockScaledShape("g", 70, 192, 384),
    "grouped": UnevenGroups("g", 4, 150, 192, 128, seed=3),
    "attention": AttentionShape("g", 150, 64, 4, True, kv_heads=2),
    "convolution": Convolution("g", 2, 9, 7, 64, 40, 3, 2, 1),
}
#: The program that a user gets, who names no config.
DEFAULTS = {
    "quantised": lambda s: gemm_quantised(s.n, s.k, s.m, s.bits),
    "block-scaled": lambda s: gemm_block_scaled(s.n, s.k, s.m),
    "grouped": lambda s: gemm_grouped(s.groups, s.n, s.k, s.m, s.dtype),
    "attention": lambda s: attention(
        s.tokens, s.head_dim, s.heads, s.shared_heads, s.batch, s.causal
    ),
}


def case_of(family: str, sizes=None):
    sizes = sizes or SMALL[family]
    if family == "convolution":
        return GemmCase(family, sizes, sizes.function)
    return ProgramCase(family, sizes)


def options(*words: str) -> argparse.Namespace:
    return judge.parser().parse_args(words)


@pytest.fixture(scope="module")
def machines():
    builder, runner = Builder(1), Runner()
    target, _ = default_target()
    with target:
        yield builder, [runner], target
    builder.close()
    runner.close()


@pytest.mark.in_turn(5)
@pytest.mark.parametrize("family", sorted(SMALL))
def test_a_family_from_end_to_end(family, machines) -> None:
    search = Search(case_of(family), random.Random(1))
    lines = list(run_round([search], 3, "round 1", *machines, inf))
    assert len(lines) == 3 and sum(line.choice for line in lines) == 1
    assert all(line.predicted > 0 for line in lines)
    assert all(line.us is not None or "Decline" in line.error for line in lines)
    ((first, *others),) = run_final([search], 1, *machines, inf)
    assert first.choice and others and all(line.us > 0 for line in [first, *others])
    (verdict,) = verdicts([asdict(line) for line in [*lines, first, *others]])
    assert verdict.family == family and verdict.ratio > 0


@pytest.mark.in_turn(5)
@pytest.mark.parametrize("family", sorted(PROGRAMS))
def test_what_rules_let_pass_computes_the_right_results(family, machines) -> None:
    search, rng = Search(case_of(family), random.Random(5)), random.Random(family)
    problem, drawn = PROGRAMS[family].problem(SMALL[family]), []
    while len(drawn) < 3:
        config = deepest(problem, wild_config(search.case.liked[:8], rng.choice))
        if config is not None and config not in search.case.liked:
            drawn.append(config)
    search.next = lambda count: drawn
    for line in run_round([search], 3, "round 1", *machines, inf):
        assert line.us is not None, (line.config, line.error)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("family", sorted(PROGRAMS))
def test_every_draw_of_a_search_is_legal(family) -> None:
    with cuda_target("h200"):
        for sizes in PROGRAMS[family].drawn("unseen:17:6"):
            search = Search(ProgramCase(family, sizes), random.Random(3))
            problem = PROGRAMS[family].problem(sizes)
            for number in range(3):
                drawn = search.next(8)
                assert all(why_not(problem, config) is None for config in drawn), (problem, drawn)
                search.times |= {config: float(number) for config in drawn}


@pytest.mark.in_turn(3)
def test_a_wrong_result_of_some_queries_is_found(machines) -> None:
    builder, runners, target = machines
    masked = case_of("attention", replace(SMALL["attention"], tokens=70))
    other = case_of("attention", replace(SMALL["attention"], tokens=70, causal=False))
    other._prepare(builder, target)
    masked._facts, masked._reference = other._facts, other._reference
    search = Search(masked, random.Random(1))
    (line,) = run_round([search], 1, "round 1", builder, runners, target, inf)
    assert line.us is None and "is wrong" in line.error


@pytest.mark.parametrize("family", sorted(DEFAULTS))
def test_the_choice_is_the_program_that_names_no_config(family) -> None:
    with cuda_target("h200"):
        for sizes in PROGRAMS[family].drawn("unseen:5:6"):
            case = ProgramCase(family, sizes)
            mine, wanted = (
                program.with_attr("global_symbol", "main")  # the names have the arguments in them
                for program in (
                    PROGRAMS[family].program(sizes, case.liked[0]), DEFAULTS[family](sizes)
                )
            )  # fmt: skip
            assert tvm_ffi.structural_equal(mine, wanted), str(case)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"gemm"}))
def test_random_cases_follow_from_the_seed(family) -> None:
    with cuda_target("h200"):
        mine, again, other = (
            [case.shape for case in wanted_cases(options("--family", family, "--suite", suite))]
            for suite in ("unseen:5:4", "unseen:5:4", "unseen:6:4")
        )
    assert mine == again != other and len(mine) == 4
    groups = {shape["group"] for shape in mine}
    assert len(groups) > 1
    wanted = options("--family", family, "--suite", "unseen:5:4", "--group", min(groups))
    with cuda_target("h200"):
        assert {case.shape["group"] for case in wanted_cases(wanted)} == {min(groups)}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("family", sorted(PROGRAMS))
def test_programs_can_be_made_of_random_cases_and_their_neighbours(family) -> None:
    rng = random.Random(9)
    with cuda_target("h200"):
        for sizes in PROGRAMS[family].drawn("unseen:9:4"):
            case, seen = ProgramCase(family, sizes), set()
            near = case.neighbours(case.liked[:1], 6, seen, rng)
            assert 2 <= len(near) <= 6 and set(near) == seen
            for config in near:
                program = PROGRAMS[family].program(sizes, config)
                shapes = [tuple(map(int, buffer.shape)) for buffer in program.params]
                assert shapes == [shape for shape, _ in case.arguments]


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--family", "grouped", "--dtype", "bfloat16"), "--dtype is for --family gemm"),
     (("--family", "attention", "--suite", "public"), "no suite of random shapes"),
     (("--family", "quantised", "--group", "many"), "no group 'many' of quantised")],
)  # fmt: skip
def test_options_that_a_family_lacks_are_refused(words, message) -> None:
    with pytest.raises(WarploomError, match=message):
        wanted_cases(options(*words))


def test_neighbours_of_tile_programs_change_once_or_twice() -> None:
    near, rng = Config(64, 64, 64, stages=4), random.Random(2)
    changes = (*each("tile_n", 32, 128), *each("stream_k", True), *each("slice_k", 2, 99))
    seen = {near}
    drawn = near_to([near], changes, lambda config: config, 100, seen, rng)
    assert len(set(drawn)) == len(drawn) > 5 and seen == {near, *drawn}
    for config in drawn:
        assert 1 <= sum(v != getattr(near, n) for n, v in vars(config).items()) <= 2
    assert all(config.slice_k in (1, 2) for config in drawn), "an illegal value is no config"


def test_groups_have_all_rows(rng) -> None:
    for even in (False, True):
        seed = int(rng.integers(99))
        sizes = np.diff(UnevenGroups("g", 16, 4000, 64, 64, even=even, seed=seed).starts)
        assert sizes.sum() == 4000 and len(sizes) == 16 and (sizes >= 0).all()
        assert (sizes.std() < 60) == even, sizes


def attention_in_double(shape, q, k, v):
    k, v = (np.repeat(x.astype("float64"), shape.heads // shape.shared_heads, 1) for x in (k, v))
    logits = q.astype("float64") @ k.transpose(0, 1, 3, 2) / shape.head_dim**0.5
    if shape.causal:
        logits = np.where(np.tri(shape.tokens, dtype=bool), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("causal", [False, True])
def test_sampled_queries_of_attention(causal, rng) -> None:
    shape = AttentionShape("g", 130, 64, 4, causal, kv_heads=2, batch=2)
    q, k, v = (
        rng.standard_normal((2, heads, 130, 64)).astype("float16") for heads in (4, 2, 2)
    )
    found = attention_result(shape, [q, k, v, np.zeros_like(q)])
    rows = sampled_queries(130, causal)
    np.testing.assert_allclose(
        found[:, :, rows].astype("float64"), attention_in_double(shape, q, k, v)[:, :, rows],
        atol=1e-3,
    )  # fmt: skip
    others = np.delete(found, rows, axis=2).copy()
    assert others.tobytes() == poison(others).tobytes()


@pytest.mark.parametrize("tokens", [1, 7, 16, 17, 4096])
@pytest.mark.parametrize("causal", [False, True])
def test_queries_are_drawn_from_all_parts(tokens, causal) -> None:
    rows = sampled_queries(tokens, causal)
    assert (np.diff(rows) > 0).all() and rows[-1] == tokens - 1
    assert len(rows) == min(16, tokens - (tokens // 8 if causal else 0))
    assert np.diff(rows).max(initial=0) <= 2 * -(-tokens // 16)


def quantised_case(m, rng):
    shape = DequantShape("g", m, 128, 256, 4)
    weights = rng.integers(-8, 8, (shape.n, shape.k))
    x, scale = (reference.exact_input(s, "float16", rng) for s in ((m, 256), (2, 128)))
    wide = weights * np.repeat(scale.astype("float64"), 128, 0).T
    return references.quantised(shape), [x, pack_weights(weights), scale], x @ wide.T, "float16"


def block_scaled_case(m, rng):
    shape = BlockScaledShape("g", m, 192, 208)
    a, b = (reference.exact_input((rows, 208), "float8_e4m3fn", rng) for rows in (m, 192))
    scale_a, scale_b = (reference.exact_input(s, "float32", rng) for s in ((m, 2), (2, 2)))
    wide_a = a.astype("float64") * np.repeat(scale_a, 128, 1)[:, :208]
    wide_b = b.astype("float64") * np.repeat(np.repeat(scale_b, 128, 0), 128, 1)[:192, :208]
    right = wide_a @ wide_b.T
    return references.block_scaled(shape), [a, b, scale_a, scale_b], right, ml_dtypes.bfloat16


def grouped_case(m, rng):
    shape = UnevenGroups("g", 5, m, 72, 64, seed=int(rng.integers(99)))
    x, w = (reference.exact_input(s, "bfloat16", rng) for s in ((m, 64), (5, 72, 64)))
    group = np.repeat(np.arange(5), np.diff(shape.starts))
    right = np.einsum("mk,mnk->mn", x.astype("float64"), w.astype("float64")[group])
    return references.grouped(shape), [x, w, shape.starts], right, ml_dtypes.bfloat16


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("on_host", [True, False], ids=["CPU", "GPU"])
@pytest.mark.parametrize("m", [1, 5, 70])
@pytest.mark.parametrize("made", [quantised_case, block_scaled_case, grouped_case])
def test_references_compute_what_numpy_does(made, m, on_host, rng, monkeypatch, tmp_path) -> None:
    func, inputs, right, dtype = made(m, rng)
    if not on_host:
        monkeypatch.setattr(reference, "_HOST_OPERATIONS", 0)
    path = tmp_path / "reference.so"
    references.build(func, default_target()[0], made is grouped_case, str(path))
    device = tvm.cpu() if on_host else tvm.cuda(0)
    result = poison(right.astype(dtype))
    tensors = [tvm.runtime.tensor(array, device) for array in [*inputs, result]]
    tvm.runtime.load_module(str(path))["main"](*tensors)
    assert reference.is_wrong(tensors[-1].numpy(), right.astype(dtype)) is None


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("extent", [3, 70])
def test_sums_in_one_dimension_are_scheduled_apart(extent, rng) -> None:
    from tvm import te

    x, along = te.placeholder((extent, 20), "float32", "X"), te.reduce_axis((0, 20), "k")
    total = te.compute((extent,), lambda i: te.sum(x[i, along], along), "total")
    mod = tvm.IRModule({"main": te.create_prim_func([x, total])})
    values = reference.exact_input((extent, 20), "float32", rng)
    result = np.full(extent, np.nan, "float32")
    tensors = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in (values, result)]
    tvm.compile(scheduled_apart(mod), default_target()[0])["main"](*tensors)
    np.testing.assert_array_equal(tensors[1].numpy(), values.sum(1))
