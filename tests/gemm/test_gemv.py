"""GEMVs of packed weights: right on the emulator, for layouts of weights and for configs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import te
from tvm.s_tir import Schedule

from tests.shared import gemm_functions
from tests.shared.gemm_functions import Function
from tests.shared.machine_code import listing_of, needs_disassembler
from tests.shared.packed_weights import Packed
from warploom import emulator
from warploom.decide import Config
from warploom.decide.gemv import gemv_configs
from warploom.decide.gemv_rules import step_of, why_no_gemv
from warploom.decide.ranking import ranked
from warploom.errors import Decline, IllegalCombination
from warploom.gemm import recognise
from warploom.gemm.annotations import annotate
from warploom.gemm.gemv import gemv_kernel
from warploom.gemm.gemv.kernel import CONSTANT
from warploom.gemm.gemv.lanes import Lanes
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.records import Record
from warploom.relax.decisions import decisions_of


def config(function: Function, columns: int = 16, stages: int = 2, **more: int) -> Config:
    step = step_of(recognise(function.func).problem)
    return Config(8, columns, step, stages, consumers=1, swap_ab=True, persistent=False,
                  specialise=False, gemv=True, **more)  # fmt: skip


def check(function: Function, chosen: Config, rng: np.random.Generator, **sizes: int) -> None:
    kernel = gemv_kernel(recognise(function.func), chosen).with_attr("global_symbol", "main")
    arguments = function.arguments(rng, **sizes)
    found = emulator.run(kernel, arguments).outputs
    print(function, chosen)
    function.assert_right(found[len(found) - function.outputs :], arguments)


@pytest.mark.parametrize(
    ("case", "columns"),
    [
        (Packed(1, 32), 16),
        (Packed(8, 64, group=128, after="add"), 32),
        (Packed(5, 32, bits=8), 16),
        (Packed(2, 32, after="gate"), 16),
        (Packed(3, 64, order="kn"), 32),
        (Packed(1, 64, order="kn", bits=8, after="gate"), 32),
        (Packed(4, 64, order="kn", group=128, zeros=True), 16),
        (Packed(4, 64, order="kn", bits=8, zeros=True), 32),
        (Packed(2, 64, order="along n", group=64, zeros=True), 64),
        (Packed(2, 64, order="along n", bits=8, group=128), 32),
        (Packed(7, 48, dtype="bfloat16", after="add"), 16),
        (Packed(1, 64, order="kn", bits=8, dtype="bfloat16"), 64),
        (Packed(8, 32, group=16), 16),
        (Packed(6, 32, bits=8, group=16), 32),
    ],
    ids=str,
)
@pytest.mark.some(4)
def test_layouts_of_weights(case: Packed, columns: int, rng: np.random.Generator) -> None:
    function = case.function()
    check(function, config(function, columns), rng)


@pytest.mark.parametrize(
    ("steps", "stages", "groups"),
    [(1, 1, 1), (4, 1, 1), (8, 2, 1), (11, 2, 1), (7, 4, 2), (9, 7, 1), (25, 2, 3), (3, 2, 2)],
)
@pytest.mark.some(3)
def test_steps_that_warps_do_not_share_evenly(
    steps: int, stages: int, groups: int, rng: np.random.Generator
) -> None:
    function = gemm_functions.dequantised(m=3, n=32, k=128 * steps)
    check(function, config(function, stages=stages, slice_k=groups), rng)


@pytest.mark.parametrize("rows", [1, 8, 9, 19])
@pytest.mark.some(2)
def test_any_number_of_rows(rows: int, rng: np.random.Generator) -> None:
    function = Packed(None, 32, after="add").function()
    check(function, config(function), rng, m=rows)


@pytest.mark.parametrize("stored", ["uint8", "uint32"])
def test_weights_may_lie_in_bytes(stored: str, rng: np.random.Generator) -> None:
    function = gemm_functions.dequantised(m=2, n=32, k=512, stored=stored)
    check(function, config(function), rng)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_may_be_bytes_with_a_scale_for_each_row(
    dtype: str, rng: np.random.Generator
) -> None:
    m, n, k = 5, 32, 320
    x, w = te.placeholder((m, k), dtype, "X"), te.placeholder((n, k), "int8", "W")
    s = te.placeholder((n,), dtype, "S")
    decoded = te.compute((n, k), lambda j, r: w[j, r].astype(dtype) * s[j], "decode")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(x[i, r] * decoded[j, r], r), "matmul")

    def expected(x: Any, w: Any, s: Any, *_: Any) -> list[np.ndarray]:
        weights = (w.astype(np.float64) * s.astype(np.float64)[:, None]).astype(s.dtype)
        return [x.astype(np.float64) @ weights.astype(np.float64).T]

    function = Function(te.create_prim_func([x, w, s, c]), expected)
    check(function, config(function), rng)


def test_random_configs(rng: np.random.Generator) -> None:
    function = Packed(int(rng.integers(1, 9)), 64, 1024).function()
    found = list(gemv_configs(recognise(function.func).problem))
    check(function, found[rng.integers(len(found))], rng)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_lanes_have_each_element_once(blocks: int, together: bool, bits: int) -> None:
    lanes = Lanes(blocks, bits, 4 * 128 // bits, together)
    rows = sorted(lanes.row(slot, group) for group in range(8) for slot in range(lanes.rows))
    assert rows == list(range(16 * blocks))
    assert sorted(k for pair in lanes.pairs for k in pair) == list(range(lanes.share))
    assert all((high - low) * bits == 16 for low, high in lanes.pairs)


def test_few_rows_are_a_gemv_and_more_are_none() -> None:
    gemm = recognise(Packed(None, 4096, 4096).function().func)
    decisions = decisions_of(gemm)
    assert [limit for limit, one in decisions if one.gemv] == [8]
    assert decisions[-1][0] is None
    assert all(one.why_not(gemm.problem) is None for _, one in decisions)


def test_measured_configs_go_first_but_where_a_gemv_is_predicted_to_be_faster() -> None:
    few = recognise(Packed(1, 4096, 4096).function().func).problem
    many = replace(few, m=64)
    for problem, wanted in ((few, None), (many, ranked(many)[3][1])):
        config = wanted or next(one for _, one in ranked(problem) if not one.gemv)
        record = Record(problem, config, 1e-5, "sm_90a", False, None)
        assert Lookup([record]).config(problem) == wanted


def test_a_function_has_a_kernel_for_few_rows_and_one_for_more(rng: np.random.Generator) -> None:
    function = Packed(None, 64, 512, after="add").function()
    sch = Schedule(function.func)
    block = sch.get_sblock(recognise(function.func).anchor)
    annotate(sch, block, config(function).values(), 8)
    annotate(sch, block, Config(16, 64, 64, 2, consumers=1, swap_ab=True).values())
    for rows in (4, 24):
        arguments = function.arguments(rng, m=rows)
        found = emulator.run(sch.mod, arguments, kernel="main").outputs
        function.assert_right(found[-1:], arguments)


def test_what_is_no_gemv_says_why() -> None:
    wide = recognise(gemm_functions.matmul(8, 64, 128).func).problem
    assert "4 or 8 bits" in str(why_no_gemv(wide))
    short = Packed(2, 64, 192).function()
    assert "multiple of the 128" in str(why_no_gemv(recognise(short.func).problem))
    narrow = recognise(Packed(2, 24, 512).function().func).problem
    assert "multiple of 16" in str(why_no_gemv(narrow))
    function = Packed(2, 64, 512).function()
    gemm = recognise(function.func)
    for changes, words in (
        ({"tile_k": 64}, "tile_k = 64"), ({"tile_n": 48}, "tile_n = 48"),
        ({"persistent": True}, "a CTA for each tile"), ({"stages": 12, "tile_n": 64}, "registers"),
    ):
        with pytest.raises(IllegalCombination, match=words):
            gemv_kernel(gemm, config(function).replace(**changes))


def test_weights_that_are_no_integers_are_declined() -> None:
    x = te.placeholder((2, 256), "float16", "X")
    w = te.placeholder((64, 256), "float8_e4m3fn", "W")
    r = te.reduce_axis((0, 256), "r")
    c = te.compute((2, 64), lambda i, j: te.sum(x[i, r] * w[j, r].astype("float16"), r), "matmul")
    gemm = recognise(te.create_prim_func([x, w, c]))
    chosen = next(gemv_configs(gemm.problem))
    with pytest.raises(Decline, match="W is not computed in pairs"):
        gemv_kernel(gemm, chosen)
    assert not any(one.gemv for _, one in decisions_of(gemm))


@needs_disassembler
@pytest.mark.parametrize("after", ["", "add"])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("k", [512, 4096])
def test_what_other_kernels_write_is_loaded_behind_the_wait(
    k: int, constant: bool, after: str
) -> None:
    """The compiler moves loads of what it takes for constant, and reads it through L1."""
    function = Packed(1, 64, k, after=after).function()
    func = function.func
    if constant:
        func = func.with_attr(CONSTANT, list(range(len(func.params))))
    kernel = gemv_kernel(recognise(func), config(function, stages=3))
    listing = listing_of(kernel)
    before, _, behind = listing.partition("ACQBULK")
    assert behind and "CONSTANT" not in listing
    # Weights do not stay in the L1 cache (NA); X does.
    assert bool(re.search(r"LDG\.E\.NA\.128", before)) == constant
    assert not re.search(r"LDG\.E\.128", before) and re.search(r"LDG\.E\.128", behind)
