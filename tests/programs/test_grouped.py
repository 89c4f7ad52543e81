"""Grouped GEMMs, also with block scales, and the tiles that their groups have."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.script import tirx as T

from tests.programs.test_programs import run
from tests.shared import tile_programs
from tests.shared.lowered_programs import check, worst_error
from tests.shared.lowered_programs import exact as few_bits
from warploom import emulator
from warploom import language as wl
from warploom.decide import choose
from warploom.decide.families.grouped import choose_grouped_by_rows
from warploom.decide.families.grouped_problem import GroupedProblem, consumers_of
from warploom.decide.machines import machine_for
from warploom.decide.price.group_fill import fills
from warploom.errors import IllegalCombination
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.programs import (
    gemm_block_scaled,
    gemm_grouped,
    gemm_grouped_block_scaled,
)
from warploom.programs.group_slots import Slot, slots
from warploom.target import default_target

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((0, 0, 5, 0, 127, 1, 128, 64, 0), {
            "n": 200, "tile": (64, 128, 64), "dtype": "bfloat16", "indptr_dtype": "int64",
            "cluster": (1, 2),
        }),
        ((33,), {"dtype": "float8_e4m3fn", "out_dtype": "bfloat16", "tile": None}),
        ((330, 0, 65, 200, 0), {"n": 136, "tile": (64, 64, 32), "group": 2, "ctas": 5}),
        ((3, 260, 1), {"n": 256, "tile": (64, 64, 32), "cluster": (2, 2), "symbolic": True}),
    ],
)  # fmt: skip
@pytest.mark.some(1)
def test_gemm_grouped(rng, sizes, options):
    case = tile_programs.grouped(sizes, **options)
    arguments = few_bits(case.arguments(rng))
    (exact,) = case.expected(arguments).values()
    by_kernel = run(case.func, arguments)[-1].astype(float)
    wl.interpret(case.func, arguments)
    bound = np.abs(exact).max() * case.tolerance
    assert np.abs(arguments[-1].astype(float) - exact).max() <= bound
    assert np.abs(by_kernel - exact).max() <= bound


CLUSTER = {"reduce_through": "cluster"}


@pytest.mark.parametrize(
    ("sizes", "arch", "options"),
    [
        ((0, 1, 3, 0, 9), "sm_90a", {"tile": (8, 64, 64), "split_k": 3, "ctas": 7}),
        ((1, 1, 0, 17, 0), "sm_90a", {"tile": (16, 128, 32), "split_k": 2, "ctas": 4, **CLUSTER}),
        ((0, 40, 1), "sm_90a", {"tile": (32, 64, 64), "split_k": 4, "ctas": 8, **CLUSTER}),
        ((0, 0, 0, 1), "sm_90a", {"tile": (8, 256, 64), "split_k": 5, "ctas": 3}),
        ((70, 0, 2), "sm_90a", {"tile": (64, 64, 32), "split_k": 4, "ctas": 9, "group": 2}),
        ((3, 0, 2), "sm_90a", {"tile": (64, 64, 64), "split_k": 2, "ctas": 10, "cluster": (1, 2)}),
        ((0, 0), "sm_90a", {"tile": (16, 64, 64), "split_k": 2, "behind": 4, "ctas": 2}),
        ((0, 1, 3, 9), "sm_100a", {"tile": (16, 128, 64), "split_k": 2, "ctas": 5}),
        ((1, 0, 70), "sm_100a", {"tile": (64, 128, 64), "split_k": 3, "ctas": 6}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.some(5)
def test_few_rows_and_split_sums(rng, sizes, arch, options, dtype):
    """Empty groups, groups of a row, uneven ones; rows and K that fill no tile."""
    stages = int(rng.integers(2, 5))
    symbolic = bool(rng.integers(2))
    case = tile_programs.grouped(
        sizes, 136, 264, dtype=dtype, stages=stages, symbolic=symbolic,
        weights_policy="evict_first", **options,
    )  # fmt: skip
    check(case, rng, arch)
    if arch == "sm_90a":
        arguments = case.arguments(rng)
        after = [np.copy(one) for one in arguments]
        wl.interpret(case.func, after)
        assert worst_error(case, arguments, after) <= 1


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])
@pytest.mark.some(3)
def test_parts_of_as_many_steps_as_stages_and_others(rng, steps):
    """Parts of no step, of fewer steps than stages, of as many, and of more."""
    parts, k = min(3, steps), 64 * (steps - 1) + 24
    case = tile_programs.grouped(
        (2, 0, 1), 72, k, (8, 64, 64), stages=2, split_k=parts, ctas=2 * parts
    )
    check(case, rng)


@pytest.mark.parametrize("how", [{}, CLUSTER])
def test_sums_do_not_depend_on_which_part_ends_first(rng, how):
    hints = {"stages": 2, "split_k": 4, "ctas": 4, **how}
    case = tile_programs.grouped((1, 0, 2), 64, 520, (8, 64, 64), **hints)
    arguments = case.arguments(rng)
    kernel = lower(case.func).with_attr("global_symbol", "main")
    results = [
        emulator.run(
            kernel, [np.copy(one) for one in arguments], seed=seed, schedule=schedule
        ).outputs[3]
        for seed, schedule in ((1, "random"), (2, "late"))
    ]  # fmt: skip
    assert worst_error(case, arguments, [*arguments[:3], results[0]]) <= 1
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("m", [None, 1, 1000, 100000])
@pytest.mark.parametrize(("groups", "n", "k"), [(1, 8, 16), (8, 28672, 4096), (64, 2000, 7168)])
@pytest.mark.some(6)
def test_tiles_for_groups_are_those_of_the_first_lowering(groups, n, k, m, dtype):
    config = choose(GroupedProblem(groups, m, n, k, dtype, "bfloat16"))
    func = gemm_grouped(groups, n, k, m, dtype, "bfloat16")
    decided = [d for step in lower_trace(func) for d in step.decisions]
    assert not any("declines" in sentence for sentence in decided)
    assert any(f": {config.stages} stages" in sentence for sentence in decided)
    assert config.consumers == consumers_of(config.tile_m, config.tile_n)
    assert any(f" {config.consumers} computing" in sentence for sentence in decided)


@pytest.mark.parametrize("mean", [3, 64, 128, 157, 1000])
@pytest.mark.parametrize("rows", [64, 128, 192, 256])
def test_groups_have_about_as_many_tiles_as_expected(rng, mean, rows):
    groups = 1000
    even = np.full(groups, 1 / groups)
    for shares, fill in zip(
        (even, rng.dirichlet(np.ones(groups))), fills(groups, groups * mean, rows), strict=True
    ):
        sizes = rng.multinomial(groups * mean, shares)
        needed, filled = int((-(-sizes // rows)).sum()), int((sizes > 0).sum())
        assert fill.row_tiles == pytest.approx(needed, rel=0.05)
        assert fill.groups == pytest.approx(filled, rel=0.05)


@pytest.mark.parametrize("m", [1, 5, 300, 4096])
def test_few_groups_have_whole_tiles(m):
    assert fills(1, m, 128)[0].row_tiles == -(-m // 128)
    assert all(1 <= fill.groups <= 4 and fill.row_tiles >= fill.groups for fill in fills(4, m, 64))


@pytest.mark.parametrize(("scale_layout", "tile"), [("MK", None), ("KM", (128, 192))])
def test_gemm_grouped_block_scaled(rng, scale_layout, tile):
    sizes, n, k = (40, 0, 1, 130), 200, 272
    m, blocks = sum(sizes), 3
    func = gemm_grouped_block_scaled(
        len(sizes), n, k, m, scale_layout=scale_layout, tile=tile, stages=2
    )
    x, w = (rng.integers(-4, 5, shape) / 2 for shape in ((m, k), (len(sizes), n, k)))
    sx, sw = (rng.uniform(0.5, 2, shape) for shape in ((m, blocks), (len(sizes), 2, blocks)))
    indptr = np.cumsum((0, *sizes))
    exact = np.concatenate([
        (x[first:end] * np.repeat(sx[first:end], 128, 1)[:, :k])
        @ (w[g] * np.repeat(np.repeat(sw[g], 128, 0), 128, 1)[:n, :k]).T
        for g, (first, end) in enumerate(itertools.pairwise(indptr))
    ])  # fmt: skip
    scales = sx if scale_layout == "MK" else sx.T
    arguments = [
        *(one.astype(ml_dtypes.float8_e4m3fn) for one in (x, w)),
        *(np.ascontiguousarray(one, np.float32) for one in (scales, sw)),
        indptr.astype(np.int32), np.full((m, n), np.nan, np.float32).astype(ml_dtypes.bfloat16),
    ]  # fmt: skip
    got = run(func, arguments)[-1].astype(float)
    assert np.abs(got - exact).max() <= np.abs(exact).max() * 2**-8


def test_sizes_of_groups_are_known_on_the_device_alone(rng):
    """One kernel, called from Relax, for any sizes; rows of no group keep what they had."""
    groups, n, k = 5, 72, 64
    rows = tvm.tirx.Var("rows", "int64")
    args = [
        relax.Var(name, relax.TensorType(shape, dtype))
        for name, shape, dtype in (
            ("x", (rows, k), "float16"), ("w", (groups, n, k), "float16"),
            ("indptr", (groups + 1,), "int32"), ("c", (rows, n), "float16"),
        )
    ]  # fmt: skip
    builder = relax.BlockBuilder()
    with builder.function("main", args):
        func = gemm_grouped(groups, n, k, tile=(128, 64, 64), stages=2)
        experts = builder.add_func(func, "experts")
        shape = relax.TensorType((rows, n), "float16")
        call = relax.op.call_tir_inplace(experts, args, 3, shape)
        with builder.dataflow():
            out = builder.emit_output(builder.emit(call))
        builder.emit_func_output(out)
    machine = relax.VirtualMachine(
        relax.build(builder.finalize(), default_target()[0]), tvm.cuda(0)
    )
    for sizes, behind in (((70, 0, 64, 129, 0), 3), ((0,) * groups, 1), ((1, 1, 1, 1, 128), 0)):
        case = tile_programs.grouped(sizes, n, k, behind=behind, symbolic=True)
        arguments = case.arguments(rng)
        (exact,) = case.expected(arguments).values()
        got = machine["main"](*[tvm.runtime.tensor(one, tvm.cuda(0)) for one in arguments])
        bound = np.abs(exact).max() * case.tolerance
        assert np.abs(got.numpy().astype(float) - exact).max() <= bound


@pytest.mark.parametrize("more", [None, -1, 0, 1])
@pytest.mark.some(2)
def test_few_rows_have_a_kernel_of_their_own(rng, more):
    groups, n, k = 2, 1536, 64
    by_rows = choose_grouped_by_rows(GroupedProblem(groups, None, n, k), machine_for())
    limit, last = (limit for limit, _ in by_rows)
    assert last is None and limit in [groups << doubled for doubled in range(10)]
    rows = 0 if more is None else limit + more
    func = gemm_grouped(groups, n, k)
    x, w = (few_bits([rng.standard_normal(s).astype("float16")])[0]
            for s in ((rows, k), (groups, n, k)))  # fmt: skip
    middle = int(rng.integers(rows + 1))
    first = np.array([0, middle, rows], "int32")
    parts = zip((x[:middle], x[middle:]), w, strict=True)
    exact = np.concatenate([a.astype(float) @ b.T.astype(float) for a, b in parts])
    found = run(func, [x, w, first, np.full((rows, n), np.nan, "float16")])[-1]
    assert np.abs(found - exact).max(initial=0) <= 2e-2 * np.abs(exact).max(initial=1)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=20), st.sampled_from([64, 128]))
def test_groups_have_slots_for_all_of_their_tiles(sizes, rows):
    needed = sum(-(-size // rows) for size in sizes)
    assert needed <= int(slots(sum(sizes), len(sizes), rows))


def found_tiles(groups: int, rows: int, columns: int, band: int, numbers: int) -> tvm.tirx.PrimFunc:
    """Writes the tile of each number: group, first row, rows and column."""

    @T.prim_func
    def kernel(
        indptr: T.Buffer((groups + 1,), "int32"), out: T.Buffer((numbers, 4), "int32")
    ):
        T.device_entry()
        number = T.cta_id([numbers])
        thread = T.thread_id([32])
        tile = Slot(indptr, groups, rows, columns, band)
        tile.find(number)
        if thread == 0:
            out[number, 0] = tile.group
            out[number, 1] = tile.row
            out[number, 2] = tile.count
            out[number, 3] = tile.column

    return kernel


@pytest.mark.parametrize(("rows", "columns", "band"), [(16, 3, 2), (24, 1, 4), (16, 2, 100)])
def test_tiles_of_groups_are_in_order_and_without_gaps(rng, rows, columns, band):
    groups, total = 6, 200
    numbers = int(slots(total, groups, rows)) * columns + 3
    kernel = found_tiles(groups, rows, columns, band, numbers)
    random = [rng.integers(0, total + 1, groups - 1) for _ in range(3)]
    for cuts in ([0, 0, 33, 33, 34], [total] * (groups - 1), *random):
        indptr = np.array([0, *np.sort(cuts), total], np.int32)
        print("indptr", indptr)
        expected = []
        for group, (first, end) in enumerate(itertools.pairwise(indptr.tolist())):
            starts = range(first, end, rows)
            for top in range(0, len(starts), band):
                expected += [
                    [group, start, min(end - start, rows), column]
                    for column in range(columns) for start in starts[top : top + band]
                ]  # fmt: skip
        poisoned = np.full((numbers, 4), -7, np.int32)
        found = emulator.run(kernel, [indptr, poisoned], arch="sm_90a").outputs[1]
        assert found[: len(expected)].tolist() == expected
        assert (found[len(expected) :, 2] == 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": 0}, "groups is 0; there must be at least one"),
        ({"k": 100}, "k 100 of float16 are rows of 200 bytes; TMA wants multiples of 16"),
        ({"n": 4}, "n 4 of float16"),
        ({"indptr_dtype": "uint8"}, "must be one of 'int32', 'int64'"),
    ],
)
def test_impossible_groups_are_refused(changes, message):
    with pytest.raises(IllegalCombination, match=message):
        gemm_grouped(**{"groups": 2, "n": 64, "k": 64, **changes})


@pytest.mark.parametrize(
    "make",
    [
        lambda columns: gemm_grouped(
            4, 512, 128, 512, tile=(64, columns, 64), stages=2, consumers=1, ctas_per_sm=2
        ),
        lambda columns: gemm_block_scaled(
            512, 256, 512, tile=(64, columns, 128), stages=2, consumers=1, ctas_per_sm=2
        ),
        lambda columns: gemm_grouped(
            4, 512, 128, 512, tile=(192, columns, 64), stages=2, consumers=3
        ),
    ],
)
def test_mmas_that_lack_registers_at_the_launch_are_declined(make):
    """ptxas ends with an error there, whatever ``setmaxnreg`` moves later."""

    def decided(columns):
        return [d for step in lower_trace(make(columns)) for d in step.decisions]

    (reason,) = (d for d in decided(256) if "registers of a thread at the launch" in d)
    assert "warp specialisation declines" in reason and "256 columns" in reason
    assert "ctas_per_sm" in reason
    assert not any("at the launch" in d for d in decided(192))
