"""``scheduler="counter"``: CTAs of a persistent grid draw their tiles as the kernel runs."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
import tvm

from tests.lower.blackwell.test_sm100_scheduler import some_tiles
from tests.shared import tile_programs
from tests.shared.lowered_programs import (
    check,
    exact,
    hinted,
    last_cta_first,
    local_memory,
    lower_by,
    run,
    worst_error,
)
from warploom.errors import Decline
from warploom.lower.emit.given_word import GIVEN_WORD
from warploom.lower.lowerings import WARP_SPECIALISED, lower
from warploom.lower.trace import lower_trace

ARCHS = ("sm_90a", "sm_100a")
COUNTER = "counter"
#: Name -> a program for a number of stages.
PROGRAMS = {
    "gemm": partial(tile_programs.gemm, 300, 200, 160, (128, 64, 32), symbolic=True),
    "float16": partial(tile_programs.gemm, 300, 150, 96, (64, 48, 32), out_dtype="float16"),
    "grouped": partial(tile_programs.grouped, (200, 0, 128, 1), tile=(128, 64, 32)),
    "dequantised": partial(tile_programs.dequantised, 8, tile=(128, 64, 64)),
    "attention": partial(tile_programs.attention, 300, tile=(128, 64), causal=True),
}
SEEDS, ALL = range(6), range(300)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.some(4)
def test_programs_are_right_and_free_of_races(rng, name, arch):
    number = list(PROGRAMS).index(name)
    case = PROGRAMS[name](stages=1 + number % 3)
    check(case, rng, arch=arch, scheduler=COUNTER, ctas=(None, 2, 3, 1, 4)[number])


@pytest.mark.parametrize(
    "hints", [{"slice_k": 2, "consumers": 1}, {"order_mmas": True}, {"split_rings": True}]
)
@pytest.mark.some(2)
def test_with_other_choices(rng, hints):
    case = tile_programs.gemm(300, 200, 320, (64, 64, 32), out_dtype="float16", stages=4)
    check(case, rng, scheduler=COUNTER, ctas=3, **hints)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("count, ctas", [(0, 2), (1, 2), (2, 2), (4, 1), (4, 3)])
@pytest.mark.some(4)
def test_few_tiles_or_none(rng, count, ctas, arch):
    a, b = (rng.standard_normal(shape).astype("float16") for shape in ((512, 64), (64, 64)))
    before = rng.standard_normal((512, 64)).astype("float32")
    kernel = lower(hinted(some_tiles, scheduler=COUNTER, ctas=ctas), arch)
    *_, result = run(kernel, [count, a, b, before.copy()], arch)
    rows = 128 * count
    np.testing.assert_array_equal(result[rows:], before[rows:])
    expected = a[:rows].astype("float64") @ b.astype("float64").T
    np.testing.assert_allclose(result[:rows], expected, rtol=0, atol=1e-4)


_ALLOCATED = '\n    tile_counter = T.alloc_buffer((2,), "uint64")'


def with_counter_outside(func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """A lowered program whose last parameter is its flag and its counter."""
    script = func.script()
    assert _ALLOCATED in script
    head = re.search(r"\n(def \w+\(.*)\):", script)[1]
    parameters = f'{head}, tile_counter: T.Buffer((2,), "uint64")'
    return tvm.script.from_source(script.replace(_ALLOCATED, "").replace(head, parameters))


@pytest.mark.parametrize("ctas", [1, 2, 3, 40])
@pytest.mark.some(2)
def test_the_workspace_may_hold_anything_before_and_no_flag_is_left(rng, ctas):
    """The first CTA starts last, so that the others find what memory holds."""
    case = tile_programs.gemm(200, 150, 96, (64, 64, 32), out_dtype="float32", stages=2)
    func = hinted(case.func, scheduler=COUNTER, ctas=ctas)
    kernel = with_counter_outside(last_cta_first(func, behind="SpecializeWarps"))
    near = np.uint64(GIVEN_WORD) ^ (np.uint64(1) << rng.integers(0, 64, 1, np.uint64))
    words = np.append(near, rng.integers(1, 2**63, 1, np.uint64))
    for _ in range(2):
        arguments = exact(case.arguments(rng))
        copies = [np.copy(one) if isinstance(one, np.ndarray) else one for one in arguments]
        *after, words = run(kernel, [*copies, words])
        assert worst_error(case, arguments, after) <= 1
        assert words[0] == 0, "the flag is left set"
        assert words[1] == 12, "each of 4 x 3 tiles lets its CTA draw once"


def check_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = tile_programs.random_program(rng)
    check(case, rng, arch=ARCHS[seed % 2], persistent=None, scheduler=COUNTER, ctas=1 + seed % 5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.some(2)
def test_random_programs(seed):
    check_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
@pytest.mark.some(3)
def test_many_random_programs(seed):
    check_random(seed)


@pytest.mark.parametrize("arch", ARCHS)
def test_nothing_spills(machine_code, arch):
    func = tile_programs.gemm(512, 512, 256, (128, 256, 64), out_dtype="float16").func
    assert local_memory(hinted(func, scheduler=COUNTER), arch) == (0, 0, 0)


def test_the_record_tells_who_hands_out_tiles():
    func = hinted(tile_programs.gemm().func, scheduler=COUNTER)
    found = [line for step in lower_trace(func, "sm_90a") for line in step.decisions]
    assert "tiles: drawn by a warp from a counter, a tile ahead" in found


def test_without_a_warp_for_it_the_grid_is_static(rng):
    case = tile_programs.gemm(200, 96, 96, (64, 48, 32))
    func = hinted(case.func, scheduler=COUNTER, specialise=False, ctas=2)
    with pytest.warns(UserWarning, match="hint scheduler is not followed: no warp is set aside"):
        kernel = lower(func)
    assert "tile_counter" not in kernel.script()


@pytest.mark.parametrize(
    "hints, reason",
    [
        ({"cluster": (2, 1)}, "each CTA draws tiles of its own, and clusters have 2 CTAs"),
        ({"split_k": 2}, "scheduler='counter' gives out whole tiles"),
        ({"ping_pong": True, "consumers": 1}, "does not know which tiles are drawn"),
    ],
)
def test_what_does_not_go_together_declines(hints, reason):
    """Warps without roles compute it then, from a static grid."""
    func = hinted(tile_programs.gemm(256, 256, 512, (64, 64, 64)).func, scheduler=COUNTER, **hints)
    with pytest.raises(Decline, match=reason):
        lower_by(WARP_SPECIALISED, func, "sm_90a")
    with pytest.warns(UserWarning, match=reason):
        assert "tile_counter" not in lower(func).script()
