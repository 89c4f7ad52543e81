"""Results of functions that are no GEMMs: what they are compared with, and how closely."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import RunnerInput
from tvm.script import tirx as T

import warploom
from tests.meta_schedule.tuning import context_of
from tests.shared import gemm_functions
from warploom import meta_schedule as wms
from warploom.decide.selector import choose
from warploom.gemm import recognise
from warploom.gemm.annotations import annotate, has_decisions
from warploom.meta_schedule import originals
from warploom.meta_schedule.artifact import read_facts
from warploom.meta_schedule.builder import facts_of
from warploom.meta_schedule.measure import poison
from warploom.meta_schedule.reference import exact_input, is_wrong, outputs_of, updated_of
from warploom.meta_schedule.workloads import matmul

ROWS = 96


@T.prim_func(s_tir=True)
def update(a: T.Buffer((ROWS, 40), "float32"), b: T.Buffer((ROWS, 40), "float32")):
    """b = exp(a) + 2 b, in place."""
    T.func_attr({"global_symbol": "main"})
    for i, j in T.grid(ROWS, 40):
        with T.sblock("update"):
            y, x = T.axis.remap("SS", [i, j])
            b[y, x] = T.exp(a[y, x]) + b[y, x] * 2.0


def _append(factor: float):
    """The last rows of b become exp(a) factor; the first remain."""

    @T.prim_func(s_tir=True)
    def append(a: T.Buffer((ROWS, 40), "float32"), b: T.Buffer((ROWS + 8, 40), "float32")):
        T.func_attr({"global_symbol": "main"})
        for i, j in T.grid(ROWS, 40):
            with T.sblock("append"):
                y, x = T.axis.remap("SS", [i, j])
                b[y + 8, x] = T.exp(a[y, x]) * T.float32(factor)

    return append


def _softmax():
    a = te.placeholder((ROWS, 40), "float16", name="A")
    k = te.reduce_axis((0, 40), name="k")
    total = te.compute((ROWS,), lambda i: te.sum(te.exp(a[i, k].astype("float32")), k), name="sum")
    b = te.compute(
        (ROWS, 40), lambda i, j: (te.exp(a[i, j].astype("float32")) / total[i]).astype("float16")
    )
    return te.create_prim_func([a, b]).with_attr("global_symbol", "main")


def _gather():
    table = te.placeholder((2, 40), "float32", name="table")
    which = te.placeholder((ROWS,), "int64", name="which")
    b = te.compute((ROWS, 40), lambda i, j: table[which[i], j], name="rows")
    return te.create_prim_func([table, which, b]).with_attr("global_symbol", "main")


def test_what_is_updated_is_known():
    assert outputs_of(update) == (1,) == updated_of(update)
    for func in (_softmax(), _append(2.0), _gather(), matmul(64, 48, 136)):
        assert len(outputs_of(func)) == 1 and updated_of(func) == ()


def _candidates(func, count: int = 2) -> list[tvm.IRModule]:
    """What the design space makes of a function, post-processed as a search does it."""
    context = context_of(func)
    space = context.space_generator
    (postproc,) = list(space.postprocs)
    found = []
    for seed in range(20 * count):
        sch = Schedule(context.mod, seed=seed + 1)
        one = space.generate_design_space(context.mod)[0]
        type(one.trace)(list(one.trace.insts), {}).apply_to_schedule(sch, remove_postproc=True)
        if postproc.apply(sch):
            found.append(sch.mod)
        if len(found) == count:
            return found
    pytest.fail("the design space has no candidates")


def test_candidates_of_tvms_rules_are_marked_with_their_origin():
    func = _softmax()
    (mod,) = _candidates(func, 1)
    found = originals.original_of(mod)
    assert tvm_ffi.structural_equal(found["main"], func)
    assert not has_decisions(mod["main"]) and originals.original_of(found) is None


@pytest.mark.in_turn(3)
@pytest.mark.gpu
def test_wrong_candidates_of_tvms_rules_are_refused():
    functions = (_softmax(), _append(2.0), _gather())
    mods = [_candidates(one, 1)[0] for one in functions]
    wrong, unknown = (Schedule(_append(3.0)) for _ in range(2))
    for sch in (wrong, unknown):
        sch.bind(sch.get_loops("append")[0], "threadIdx.x")
    originals.mark(wrong, originals.remember(tvm.IRModule({"main": functions[1]})))
    functions += (functions[1],) * 2
    builder, runner = wms.Builder(1), wms.Runner(timeout_sec=60)
    try:
        target = warploom.cuda_target("h200")
        built = builder.build(
            [BuilderInput(mod, target, None) for mod in (*mods, wrong.mod, unknown.mod)]
        )
        assert [one.error_msg for one in built] == [None] * 5
        facts = [read_facts(str(one.artifact_path)) for one in built]
        futures = runner.run([
            RunnerInput(str(one.artifact_path), "cuda", ArgInfo.from_prim_func(func))
            for one, func in zip(built, functions, strict=True)
        ])  # fmt: skip
        found = [one.result() for one in futures]
    finally:
        builder.close()
        runner.close()
    assert [one.outputs for one in facts] == [(1,), (1,), (2,), (1,), ()]
    assert [one.updated for one in facts] == [(1,), (1,), (2,), (1,), ()]
    assert [one.error_msg is None for one in found] == [True, True, True, False, True]
    assert "Parameter 1 is wrong: " in str(found[3].error_msg)


@pytest.mark.parametrize(("dtype", "part"), [("float32", 1e-4), ("float16", 0.005)])
def test_results_that_are_not_exact_may_differ_by_rounding(dtype, part, rng):
    right = rng.standard_normal((30, 50)).astype(dtype)
    right[0, :3] = np.inf, -np.inf, np.nan
    near = (right * (1 + part)).astype(dtype)
    near[0, 2] = -np.float32(np.nan)
    assert is_wrong(near, right, exact=False) is None and is_wrong(near, right) is not None
    far = right.copy()
    far[7, 9] += dtype == "float16" or 0.1
    assert "1 of 1500 elements differ; the worst, at (7, 9)" in is_wrong(far, right, exact=False)
    far = right.copy()
    far[0, 0] = 1.0
    assert "at (0, 0), is 1 and should be inf" in is_wrong(far, right, exact=False)
    unwritten = poison(right)
    assert "1499 of 1500" in is_wrong(unwritten, right, exact=False), "one is no number anyway"


def test_whole_numbers_and_truth_values_are_exact(rng):
    right = rng.integers(0, 9, (4, 5))
    assert is_wrong(right + 1, right, exact=False) is not None
    truth = right > 4
    assert is_wrong(truth.copy(), truth, exact=False) is None
    assert is_wrong(~truth, truth, exact=False) is not None
    assert poison(truth).all()


@pytest.mark.parametrize("shape", [(3,), (5, 7), (4, 8), (1, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "int8", "float32", "bool"])
def test_every_element_counts(shape, dtype):
    right = np.ones(shape, dtype)
    assert is_wrong(right.copy(), right) is None
    for place in np.ndindex(*shape):
        found = right.copy()
        found[place] = 0
        assert "1 of " in is_wrong(found, right)


@pytest.mark.parametrize(
    ("function", "rounded"),
    [(gemm_functions.dequantised(), True), (gemm_functions.half_accumulation(), False),
     (gemm_functions.matmul(), False)],
)  # fmt: skip
def test_sums_of_dequantised_weights_in_16_bits_are_rounded(function, rounded) -> None:
    """Sums of other operands in 16 bits are exact for the inputs of checks."""
    bare = tvm.IRModule({"main": function.func})
    sch = Schedule(bare)
    gemm = recognise(function.func)
    annotate(sch, sch.get_sblock(gemm.anchor, "main"), choose(gemm.problem).values())
    assert facts_of(sch.mod, bare, "0", None).rounded == rounded


def test_a_reference_that_rounds_its_sums_still_shows_a_step_left_out(rng) -> None:
    m, n, k, group = 8, 64, 16384, 128
    x, words, scales = (
        exact_input(shape, dtype, rng)
        for shape, dtype in (
            ((m, k), "float16"), ((n, k // 8), "uint32"), ((n, k // group), "float16")
        )
    )
    fields = (words[:, :, None] >> (np.arange(8) * 4).astype("uint32") & 15).reshape(n, k)
    weights = (fields.astype("float16") - np.float16(7)) * np.repeat(scales, group, 1)
    sums = np.zeros((m, n), "float16")
    for r in range(k):
        sums += x[:, r : r + 1] * weights[None, :, r]
    right = x.astype("float64") @ weights.T.astype("float64")
    assert is_wrong(right.astype("float16"), sums, exact=True), "else nothing need be allowed"
    assert is_wrong(right.astype("float16"), sums, exact=False) is None
    for step in range(0, k, 4096):
        part = slice(step, step + 64)
        less = right - x[:, part].astype("float64") @ weights[:, part].T.astype("float64")
        assert is_wrong(less.astype("float16"), sums, exact=False)
