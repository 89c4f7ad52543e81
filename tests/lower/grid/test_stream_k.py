"""CTAs that share tiles: every step once, the right sums, no race; what cannot be shared declines.

The emulator starts CTAs in the order of their numbers, and those that are waited for have the lower
ones. Where waiting itself is the point, numbers are turned round.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from tests.shared import tile_programs
from tests.shared.lowered_programs import (
    check,
    exact,
    hinted,
    last_cta_first,
    local_memory,
    run,
    worst_error,
)
from tests.shared.sampling import sampled
from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import emulator
from warploom import language as wl
from warploom.errors import Decline, IllegalCombination, TileProgramError
from warploom.language.interpreter import statements
from warploom.lower.grid.split_tiles import split_tiles
from warploom.lower.lowerings import lower
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.squeeze_vectors import squeeze_vectors
from warploom.tile.program import TileProgram
from warploom.tile.read import is_tile_program, read

#: Programs of the random tests in every run, and where asked for; one process of many.
SAMPLE, ALL, SHARE = 3, 1000, 10
#: Why a random program may be declined: it uses the MMA of each step, has too few steps, or CTAs of
#: it end early.
ALLOWED_DECLINES = (
    "uses the accumulator part inside the loop", "best goes from one iteration",
    "a part needs one at least", "The program has MMAs in no loop of its own",
    "the thread that loads cannot alone",
)  # fmt: skip
#: Of the programs in every run: the seed of those that are declined, and why.
DECLINED = {1: "best goes from one iteration", 2: "best goes from one iteration"}

hows = st.one_of(st.just({"stream_k": True}), st.integers(2, 5).map(lambda n: {"split_k": n}))


def shared(case: Case, ctas: int, **hints: Any) -> TileProgram:
    """A program after its tiles have been shared out, still sequential."""
    program = squeeze_vectors(canonicalize(read(hinted(case.func, **hints))))
    return split_tiles(program, ctas, 2)


# --- sequential meaning -----------------------------------------------------------------------


@limit(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 3), columns=st.integers(1, 2), steps=st.integers(1, 9),
    ctas=st.integers(1, 9), how=hows, seed=st.integers(0, 99),
)  # fmt: skip
def test_the_interpreter_gets_the_same_result(rows, columns, steps, ctas, how, seed):
    # CTA after CTA: what one takes from the workspace has been put there, and none waits.
    case = tile_programs.gemm(2 * rows, 3 * columns, steps, (2, 3, 1), out_dtype="float32")
    if how.get("split_k", 1) > steps:
        with pytest.raises(Decline, match=f"has {steps} steps, and a part needs one"):
            shared(case, ctas, **how)
        return
    program = shared(case, ctas, **how)
    arguments = case.arguments(np.random.default_rng(seed))
    after = [np.copy(one) for one in arguments]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statements, "wait_until", has_happened)
        wl.interpret(program.to_func(), after)
    assert worst_error(case, arguments, after) <= 1


def has_happened(happened: Callable[[], bool], event: str) -> tuple[()]:
    """For a wait: it is over at once."""
    assert happened(), event
    return ()


# --- kernels ----------------------------------------------------------------------------------

SIZES = {
    "as many tiles as CTAs": ((128, 128, 256), (64, 64, 64), 4, {}),
    "fewer tiles": ((64, 64, 1024), (64, 64, 64), 7, {}),
    "more tiles, ragged": ((300, 200, 520), (64, 64, 64), 6, {"symbolic": True}),
    "more CTAs than steps": ((64, 128, 192), (64, 64, 64), 11, {}),
    "one step": ((130, 72, 40), (64, 64, 64), 5, {}),
    "two warpgroups": ((200, 128, 448), (128, 64, 64), 3, {}),
}
HOWS = [{"stream_k": True}, {"split_k": 3}]


@pytest.mark.parametrize("how", HOWS, ids=str)
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.some(3)
def test_shapes(rng, name, how):
    size, tile, ctas, options = SIZES[name]
    case = tile_programs.gemm(*size, tile, out_dtype="float16", stages=3, **options)
    if how.get("split_k", 1) > -(-size[2] // tile[2]) and not options:
        with pytest.raises(Decline, match="has 1 steps, and a part needs one at least"):
            lower(hinted(case.func, ctas=ctas, **how))
        return
    check(case, rng, ctas=ctas, **how)


@pytest.mark.parametrize("arch", ["multistage", "sm_100a"])
@pytest.mark.parametrize(("name", "how"), sampled(zip(SIZES, HOWS * 3, strict=True), 2))
@pytest.mark.some(3)
def test_other_lowerings(rng, name, how, arch):
    size, tile, ctas, options = SIZES[name]
    case = tile_programs.gemm(*size, tile, out_dtype="float16", stages=3, **options)
    hints = {**how, "ctas": ctas, "specialise": arch != "multistage"}
    check(case, rng, "sm_100a" if arch == "sm_100a" else "sm_90a", **hints)


@pytest.mark.parametrize("ctas", [2, 6])
@pytest.mark.parametrize("how", HOWS, ids=str)
def test_clusters_share_loads_and_tiles(rng, how, ctas):
    case = tile_programs.gemm(300, 136, 328, (64, 64, 64), out_dtype="float16", stages=3)
    check(case, rng, cluster=(2, 1), ctas=ctas, **how)


@pytest.mark.parametrize(("stages", "how"), [(1, HOWS[0]), (3, HOWS[0]), (2, HOWS[1])])
@pytest.mark.some(1)
def test_trip_counts_of_the_device(rng, how, stages):
    """A loop whose extent is an argument, over accumulators that are zero before."""

    @T.prim_func
    def program(
        A: T.Buffer((128, 320), "float16"), B: T.Buffer((64, 320), "float16"),
        C: T.Buffer((128, 64), "float32"), steps: T.int32,
    ):  # fmt: skip
        T.device_entry()
        i = T.cta_id([2])
        A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 32), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        Tx.cta.zero(acc)
        for k in wl.pipelined(steps, stages):
            Tx.cta.copy_async(A_s, A[i * 64 : i * 64 + 64, k * 32 : k * 32 + 32])
            Tx.cta.copy_async(B_s, B[0:64, k * 32 : k * 32 + 32])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        Tx.cta.copy(C[i * 64 : i * 64 + 64, 0:64], acc)

    kernel = lower(hinted(program, ctas=5, **how))
    a, b = (random_values(rng, (rows, 320), "float16") for rows in (128, 64))
    for steps in (0, 1, stages, stages + 1, 10):
        after = run(kernel, [a, b, poisoned((128, 64), "float32"), steps])
        expected = wide(a)[:, : steps * 32] @ wide(b)[:, : steps * 32].T
        np.testing.assert_allclose(after[2], expected, rtol=1e-4, atol=1e-3)


EPILOGUES = {
    "bias": partial(tile_programs.epilogue, "bias row"),
    "residual by TMA": partial(tile_programs.epilogue, "residual"),
    "two outputs": tile_programs.two_outputs,
    "row sums": tile_programs.row_sums,
    "two accumulators": tile_programs.swiglu,
    "int4 weights": partial(tile_programs.dequantised, 4, tile=(128, 64, 64)),
    "int4 weights through registers": partial(
        tile_programs.dequantised, 4, tile=(16, 64, 64), through="fragment"
    ),
}


@pytest.mark.parametrize(("arch", "how"), [("sm_90a", HOWS[0]), ("sm_100a", {"split_k": 2})])
@pytest.mark.parametrize("name", sampled(EPILOGUES, 2))
@pytest.mark.some(3)
def test_programs(rng, name, how, arch):
    check(EPILOGUES[name](), rng, arch, ctas=5, **how)


def test_owners_wait_for_others_that_come_later(rng):
    case = tile_programs.gemm(192, 64, 704, (64, 64, 64), out_dtype="float32", stages=2)
    arguments = exact(case.arguments(rng))
    for how in ({"stream_k": True}, {"split_k": 4}):
        func = last_cta_first(hinted(case.func, ctas=5, **how))
        after = run(func, [np.copy(one) for one in arguments])
        assert worst_error(case, arguments, after) <= 1


@pytest.mark.in_turn(3)
def test_results_do_not_depend_on_who_is_first(rng):
    case = tile_programs.gemm(64, 64, 1024, (64, 64, 64), out_dtype="float32", stages=2)
    arguments = case.arguments(rng)
    func = hinted(case.func, stream_k=True, ctas=6)
    kernels = [lower(func), last_cta_first(func)]
    results = [
        emulator.run(
            kernel.with_attr("global_symbol", "main"), [np.copy(one) for one in arguments],
            seed=seed, schedule=schedule,
        ).outputs[2]
        for kernel in kernels
        for seed, schedule in ((1, "random"), (2, "late"), (3, "round-robin"))
    ]  # fmt: skip
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def random_shared(seed: int) -> str | None:
    """Run the program of a seed with a random way to share tiles; the reason if it is declined."""
    rng = np.random.default_rng(seed)
    case = tile_programs.random_program(rng)
    how = {"stream_k": True} if rng.integers(2) else {"split_k": int(rng.integers(2, 6))}
    arch = ("sm_90a", "sm_100a")[rng.integers(2)]
    hints = {"specialise": bool(rng.integers(2)), "ctas": int(rng.integers(1, 14))}
    try:
        check(case, rng, arch, persistent=None, **hints, **how)
    except Decline as reason:
        if not any(one in str(reason) for one in ALLOWED_DECLINES):
            raise
        return str(reason)
    return None


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_random_programs(seed):
    reason, expected = random_shared(5002 + seed), DECLINED.get(seed)
    assert reason is None if expected is None else expected in str(reason), reason


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, ALL, ALL // SHARE))
def test_a_thousand_random_programs(start):
    seeds = range(20_000 + start, 20_000 + start + ALL // SHARE)
    declined = collections.Counter(random_shared(seed) is not None for seed in seeds)
    assert declined[True] <= 0.4 * len(seeds), declined


def test_registers_suffice():
    case = tile_programs.gemm(512, 512, 512, (128, 256, 64), out_dtype="float16", stages=3)
    assert local_memory(hinted(case.func, stream_k=True), "sm_90a") == (0, 0, 0)


# --- decisions and declines -------------------------------------------------------------------


def test_decisions_are_said():
    case = tile_programs.gemm(128, 128, 512, (64, 64, 64), out_dtype="float16", stages=3)
    steps = warploom.lower_trace(hinted(case.func, split_k=4, ctas=16))
    said = [one for step in steps for one in step.decisions]
    assert "grid: 16 persistent CTAs, no clusters, tiles in groups of 8 rows" in said
    assert (
        "split: tiles shared by CTAs, each in 4 parts; sums of acc pass through 16 slots of a "
        "workspace"
    ) in said
    assert any(one.startswith("flags: 16 x 1, one for each warpgroup and slot") for one in said)
    assert not is_tile_program(steps[-1].func)


def test_one_part_is_no_split():
    case = tile_programs.gemm(stages=2)
    script = lower(hinted(case.func, split_k=1)).script()
    assert "of_others" not in script


@pytest.mark.parametrize(
    ("hints", "reason"),
    [
        ({"persistent": False}, "wait for each other, so all must be on the GPU at a time"),
        ({"ctas": 133}, "133 CTAs that share tiles wait for each other, and no GPU holds more"),
    ],
)
def test_ctas_that_wait_must_be_resident(hints, reason):
    func = tile_programs.gemm(stages=2).func
    with pytest.raises(Decline, match=reason):
        lower(hinted(func, stream_k=True, **hints))


def test_two_ways_at_once():
    with pytest.raises(IllegalCombination, match="stream_k True with split_k 2: both say how"):
        wl.hints(split_k=2, stream_k=True)


def program_with(**changes: str) -> Any:
    """An MMA with other statements, which CTAs that share a tile cannot do."""
    lines = dict.fromkeys(("before", "start", "end", "after"), "T.evaluate(0)")
    lines |= {"accum": "k > 0", "extent": "10"} | changes
    return tvm.script.from_source(
        f"""
@T.prim_func
def program(A: T.Buffer((128, 320), "float16"), B: T.Buffer((64, 320), "float16"),
            Row: T.Buffer((64,), "float32"), Count: T.Buffer((1, 16), "int32"),
            C: T.Buffer((128, 64), "float32")):
    T.device_entry()
    wl.hints(stream_k=True)
    i = T.cta_id([2])
    A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
    B_s = T.alloc_buffer((64, 32), "float16", scope="shared")
    acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
    best = T.alloc_buffer((64, 64), "float32", scope="fragment")
    {lines["before"]}
    for k in wl.pipelined({lines["extent"]}, 2):
        {lines["start"]}
        Tx.cta.copy_async(A_s, A[i * 64 : i * 64 + 64, k * 32 : k * 32 + 32])
        Tx.cta.copy_async(B_s, B[0:64, k * 32 : k * 32 + 32])
        Tx.cta.gemm_async(acc, A_s, B_s, accum={lines["accum"]})
        {lines["end"]}
    {lines["after"]}
    Tx.cta.copy(C[i * 64 : i * 64 + 64, 0:64], acc)
""",
        {"T": T, "Tx": Tx, "wl": wl},
    )


@pytest.mark.parametrize(
    ("line", "where", "reason"),
    [
        ("Tx.cta.fill(acc, T.float32(1))", "before", "uses acc, and does not only set it to 0"),
        ("Tx.cta.add(best, best, T.float32(1))", "end", "best goes from one iteration of the loop"),
        ("Tx.cta.mul(acc, acc, T.float32(2))", "end", "uses the accumulator acc inside the loop"),
        ("Tx.cta.cast(best, acc)", "end", "uses the accumulator acc inside the loop"),
        ("for y, x in T.grid(64, 64):\n            C[y, x] = T.float32(0)", "end",
         "stores into C inside the loop"),
        ("for y, x in T.grid(64, 4):\n            best[y, x + k * 4] = T.float32(0)", "start",
         "writes a part of best that depends on the iteration"),
        ("k != 1", "accum", "acc is read before anything is written to it"),
        ("True", "accum", "acc is read before anything is written to it"),
        ("k > 1", "accum", "The MMA into acc, .*, does not add to what"),
        ("5 + i", "extent", "The extent of the loop over k depends on i, so that tiles may have"),
        ("Count[0, 0]", "extent", "The extent of the loop over k depends on Count"),
        ("Tx.cta.zero(best)\n    Tx.cta.copy(C[i * 64 : i * 64 + 64, 0:64], best)", "before",
         "stores to global memory before the loop"),
    ],
)  # fmt: skip
def test_loops_that_do_more_are_declined(line, where, reason):
    before = {"before": "Tx.cta.zero(best)"} if where != "before" and "best, best" in line else {}
    with pytest.raises((Decline, TileProgramError), match=reason):
        lower(program_with(**{**before, where: line}))


def test_what_outlives_an_iteration_is_declined():
    fill = "Tx.cta.fill(best, T.float32(1))"
    lower(program_with(end=fill))  # nobody uses it
    with pytest.raises(Decline, match="best is used in the loop over k and after it, in acc"):
        lower(program_with(end=fill, after="Tx.cta.add(acc, acc, best)"))
    with pytest.raises(Decline, match="best is used in the loop over k and before it"):
        lower(program_with(before=fill, end=fill))


@pytest.mark.parametrize("make", [tile_programs.attention, tile_programs.block_scaled])
def test_sums_of_other_kinds_are_declined(make):
    with pytest.raises(Decline, match=r"from one iteration|inside the loop"):
        lower(hinted(make().func, stream_k=True))


def test_loops_inside_others_are_declined():
    @T.prim_func
    def twice(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float32")):
        T.device_entry()
        i = T.cta_id([1])
        A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        for _again in T.serial(2):
            for k in wl.pipelined(2, 2):
                Tx.cta.copy_async(A_s, A[0:64, k * 32 : k * 32 + 32])
                Tx.cta.gemm_async(acc, A_s, A_s, accum=k > 0)
        Tx.cta.copy(C[i * 64 : i * 64 + 64, 0:64], acc)

    with pytest.raises(Decline, match="An MMA in the loop over _again stands in another loop"):
        lower(hinted(twice, split_k=2))
