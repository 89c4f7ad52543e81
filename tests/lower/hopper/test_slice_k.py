"""Warpgroups that share the steps of a loop (slice-K): right for every count, or declined."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.shared import tile_programs
from tests.shared.lowered_programs import after_passes, check, hinted
from tests.shared.sampling import sampled
from tests.shared.tile_programs.orchestrated import prefetched_residual
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.hopper.slice_k import SLICE_STEP, slice_k
from warploom.lower.lowerings import lower
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.infer_layouts import infer_layouts
from warploom.lower.passes.resolve_scopes import resolve_scopes
from warploom.lower.passes.stage_stores import stage_stores
from warploom.lower.trace import lower_trace

TILE = (64, 64, 32)
#: Name -> the program for a number of steps and of stages.
PROGRAMS = {
    "gemm": lambda steps, stages: tile_programs.gemm(
        130, 136, 32 * steps, TILE, out_dtype="float16", stages=stages
    ),
    "ragged": lambda steps, stages: tile_programs.gemm(
        70, 72, 32 * steps - 8, TILE, symbolic=True, stages=stages
    ),
    "128 rows": lambda steps, stages: tile_programs.gemm(
        200, 72, 32 * steps, (128, 64, 32), out_dtype="bfloat16", stages=stages
    ),
    "two products": lambda steps, stages: tile_programs.swiglu(100, 72, 32 * steps, stages=stages),
    "two outputs": lambda steps, stages: tile_programs.two_outputs(k=32 * steps, stages=stages),
    "row sums": lambda steps, stages: tile_programs.row_sums(k=32 * steps, stages=stages),
    **{
        f"epilogue {kind}": lambda steps, stages, kind=kind: tile_programs.epilogue(
            kind, k=32 * steps, stages=stages
        )
        for kind in tile_programs.EPILOGUES
    },
    "dequantised": lambda steps, stages: tile_programs.dequantised(
        4, k=64 * steps, through="fragment", stages=stages
    ),
    "packed": lambda steps, stages: tile_programs.packed(k=128 * steps, stages=stages),
}
#: Counts of steps around those of warpgroups and stages; clusters of the grid, None for one a tile.
STEPS, STAGES, GRIDS = (1, 2, 3, 4, 5, 7), (1, 2, 3, 5, 6), (None, 1, 3)
STRUCTURES = (
    {}, {"cluster": (2, 1)}, {"raster": "rows"}, {"persistent": False}, {"split_k": 2},
    {"stream_k": True, "ctas": 3}, {"split_k": 2, "reduce_through": "cluster"},
)  # fmt: skip
CONFIGURATIONS = [
    (steps, *others, structure)
    for steps, *others, structure in itertools.product(STEPS, STAGES, GRIDS, (2, 3), STRUCTURES)
    if structure.get("split_k", 1) <= steps
]


def configured() -> list:
    """A configuration of each program, another for each."""
    order = random.Random(3).sample(CONFIGURATIONS, len(PROGRAMS))
    return list(zip(PROGRAMS, order, strict=True))


@pytest.mark.parametrize(("name", "configuration"), sampled(configured(), 2))
@pytest.mark.some(3)
def test_slices_are_right_and_free_of_races(name, configuration, grid_of, rng):
    steps, stages, grid, slices, structure = configuration
    grid_of(grid)
    # Without another lowering to fall back to.
    check(PROGRAMS[name](steps, stages), rng, slice_k=slices, specialise=True, **structure)


#: Every configuration is for so many of the programs.
PROGRAMS_EACH = 3


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_slices_in_all_configurations(name, grid_of):
    first, step = list(PROGRAMS).index(name), len(PROGRAMS) // PROGRAMS_EACH
    for number in range(first % step, len(CONFIGURATIONS), step):
        steps, stages, grid, slices, structure = CONFIGURATIONS[number]
        grid_of(grid)
        rng = np.random.default_rng(number)
        check(PROGRAMS[name](steps, stages), rng, slice_k=slices, specialise=True, **structure)


@pytest.mark.parametrize("seed", range(4, 8))
def test_random_programs_with_slice_k(seed):
    """Those whose steps cannot be shared are lowered without."""
    rng = np.random.default_rng(500 + seed)
    check(tile_programs.random_program(rng), rng, slice_k=2)


@pytest.mark.parametrize(
    ("stages", "slices", "expected"), [(4, 2, 4), (5, 2, 4), (1, 2, 2), (7, 3, 6), (2, 3, 3)]
)
def test_each_stage_belongs_to_one_warpgroup(stages, slices, expected):
    """One warpgroup gives it back, and its number of stages is a multiple of the warpgroups."""
    func = tile_programs.gemm(128, 128, 512, TILE, stages=stages).func
    trace = lower_trace(hinted(func, slice_k=slices))
    decided = [sentence for step in trace for sentence in step.decisions]
    sentence = f"slice_k: each of {slices} warpgroups computes one step of {slices}"
    assert any(one.startswith(sentence) for one in decided)
    assert any(f"ring of A_s, B_s: {expected} stages" in sentence for sentence in decided)
    script = trace[-1].func.script()
    inits = [line for line in script.splitlines() if '"init"' in line]
    assert len(inits) == 2 and all("T.uint32(1)" in line for line in inits), "full and empty"


@pytest.mark.parametrize("hint", [{"specialise": False}, {}])
def test_other_lowerings_say_that_they_share_no_steps(hint):
    func = hinted(tile_programs.gemm(64, 64, 64, (64, 64, 64)).func, slice_k=2, **hint)
    trace = lower_trace(func, "sm_90a" if hint else "sm_100a")
    sentences = [sentence for step in trace for sentence in step.decisions]
    assert any(sentence.startswith("slice_k: not followed") for sentence in sentences)


def after_slice_k(func: PrimFunc) -> Any:
    passes = (canonicalize, infer_layouts, resolve_scopes, stage_stores, slice_k)
    return after_passes(func, *passes)


def shares_steps(func: PrimFunc) -> bool:
    return f'"{SLICE_STEP}":' in after_slice_k(func).to_func().script()


def test_one_slice_changes_nothing():
    assert not shares_steps(hinted(tile_programs.gemm(64, 64, 64, TILE).func, slice_k=1))


def loop(fault: str) -> PrimFunc:
    """A program that two warpgroups could share by steps, but for one thing."""

    @T.prim_func
    def program(
        A: T.Buffer((128, 256), "float16"), V: T.Buffer((64,), "float32"),
        C: T.Buffer((128, 64), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        rows = T.meta_var(128 if fault == "rows" else 64)
        A_s = T.alloc_buffer((rows, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        other = T.alloc_buffer((64, 64), "float16", scope="shared")
        made = T.alloc_buffer((rows, 64), "float16", scope="fragment")
        acc = T.alloc_buffer((rows, 64), "float32", scope="accumulator")
        sums = T.alloc_buffer((rows,), "float32", scope="fragment")
        Tx.cta.zero(sums)
        if fault == "start":
            for i, j in T.grid(rows, 64):
                acc[i, j] = V[j]
        elif fault == "shared before":
            Tx.cta.zero(other)
        elif fault == "zeroed":
            Tx.cta.zero(acc)
        if fault == "no loads":
            Tx.cta.copy_async(B_s, A[0:64, 0:64])
            Tx.cta.zero(made)
        for k in wl.pipelined(4, 2):
            if fault != "no loads":
                Tx.cta.copy_async(A_s, A[0:rows, k * 64 : k * 64 + 64])
                Tx.cta.copy_async(B_s, A[0:64, k * 64 : k * 64 + 64])
                for i, j in T.grid(rows, 64):
                    made[i, j] = A_s[i, j]
            if fault == "carried":
                Tx.cta.sum(sums, made, axes=(1,), accum=True)
            if fault == "shared":
                Tx.cta.zero(other)
            if fault == "branch":
                for _ in T.serial(2):
                    Tx.cta.gemm_async(acc, made, B_s, accum=True)
            if fault in ("start", "zeroed"):
                Tx.cta.gemm_async(acc, made, B_s, accum=True)
            elif fault == "form":
                Tx.cta.gemm_async(acc, made, B_s, accum=k > 1)
            else:
                Tx.cta.gemm_async(acc, made, B_s, accum=k > 0)
            if fault == "changed":
                for i, j in T.grid(rows, 64):
                    acc[i, j] = acc[i, j] * T.float32(2)
        for i, j in T.grid(rows, 64):
            acc[i, j] = acc[i, j] + sums[i]
        if fault == "after":
            for i, j in T.grid(rows, 64):
                acc[i, j] = acc[i, j] + T.cast(made[i, j], "float32")
        Tx.cta.copy(C[0:rows, 0:64], acc)

    return hinted(program, slice_k=2, **({"consumers": 2} if fault == "rows" else {}))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("rows", "2 warpgroups share the rows of tiles, so they cannot share its steps; drop the"),
        ("start", "A statement before the loop uses acc, and does not only set it to 0"),
        ("shared before", "A statement before the loop writes other to memory that warpgroups"),
        ("carried", "sums goes from one iteration of the loop over k to the next.*; warpgroups"),
        ("shared", "A statement of the loop writes other to memory that warpgroups share"),
        ("branch", "An MMA in the loop over k stands in another loop or branch; warpgroups"),
        ("form", "The MMA into acc.*does not add to what the iterations before have summed"),
        ("changed", "uses the accumulator acc inside the loop; warpgroups that share steps have"),
        ("after", "made is used in the loop over k and after it"),
        ("no loads", "The loop loads nothing, so no stages tell which warpgroup computes a step"),
    ],
)
def test_declines(fault, message):
    with pytest.raises(Decline, match=message):
        after_slice_k(loop(fault))


@pytest.mark.parametrize("fault", ["none", "zeroed"])
def test_what_is_not_declined_is_lowered(fault):
    assert shares_steps(loop(fault))
    assert "acc_sums" in lower(loop(fault)).script()


def test_programs_without_such_a_loop_are_declined():
    func = hinted(tile_programs.grouped().func, slice_k=2)
    with pytest.raises(Decline, match="No pipelined loop has an MMA whose steps warpgroups"):
        after_slice_k(func)


def test_phases_that_the_author_counts_are_not_shared_out():
    func = hinted(prefetched_residual(tile=(64, 64, 64)).func, slice_k=2)
    with pytest.raises(Decline, match="The program operates mbarriers itself"):
        after_slice_k(func)
