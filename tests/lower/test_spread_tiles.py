"""Programs without an MMA on both architectures: right for all sizes, and without spills."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.lower import row_programs
from tests.lower.row_programs import PROGRAMS
from tests.shared.lowered_programs import check, hinted, local_memory, worst_error
from tests.shared.tile_programs.case import Case
from warploom import language as wl
from warploom import lower_trace
from warploom.errors import Decline
from warploom.layout.thread_grid import ThreadGrid
from warploom.lower.analysis.choose_threads import choose_threads
from warploom.lower.lowerings import lower
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.spread_tiles import plan_threads, spread_tiles
from warploom.tile.read import read

ARCHS = ("sm_90a", "sm_100a")
DTYPES = ("float16", "bfloat16", "float32")


def decisions(case: Case, arch: str = "sm_90a") -> list[str]:
    return [line for step in lower_trace(case.func, arch) for line in step.decisions]


def random_case(name: str, rng: np.random.Generator) -> Case:
    """Sizes around those of words, warps and warpgroups; ragged rows and CTAs."""
    rows = int(rng.choice([1, 2, 3, 4, 7, 8, 16, 64]))
    n = int(rng.choice([1, 2, 8, 31, 40, 64, 129, 256, 768, 1000]))
    if rows * n > 8192:
        n = 8192 // rows
    m = int(rng.integers(1, 2 * rows + 2))
    return PROGRAMS[name](m, n, rows, str(rng.choice(DTYPES)))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.some(14)
def test_programs_of_any_size(name, seed, arch, rng):
    case = random_case(name, rng)
    assert not [line for line in decisions(case, arch) if "declines" in line]
    check(case, rng, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    ("name", "m", "n", "rows", "dtype"),
    [
        ("softmax", 2, 4096, 1, "float16"),  # several warpgroups a row
        ("softmax", 9, 1024, 64, "float32"),  # rows of a tile for several CTAs
        ("softmax", 1, 65536, 1, "float16"),  # read again
        ("layer_norm", 1, 40003, 1, "float32"),  # read again, ragged
        ("sums_of_columns", 4, 8, 512, "float32"),
        ("transposed", 33, 50, 16, "float16"),
    ],
)
@pytest.mark.some(4)
def test_sizes_that_are_lowered_in_their_own_way(name, m, n, rows, dtype, arch, rng):
    check(PROGRAMS[name](m, n, rows, dtype), rng, arch)


def test_a_shared_tile_is_transposed_by_one_warpgroup_or_more(rng):
    for consumers in (1, 2):
        case = row_programs.transposed(20, 30, 16, "float16", through="shared")
        func = hinted(case.func, consumers=consumers)
        check(dataclasses.replace(case, func=func), rng, "sm_100a")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("name", ["softmax", "masked_log_softmax", "add_in_place"])
@pytest.mark.some(3)
def test_fragments_of_the_tensor_core_hold_tiles_too(name, specialise, arch, rng):
    """As a hint wants it: 64 rows a warpgroup, also where accumulators lie in tensor memory."""
    check(PROGRAMS[name](70, 40, 64, "float32"), rng, arch, specialise=specialise)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_passes_keep_the_sequential_meaning(name, rng):
    case = PROGRAMS[name](5, 72, 4, "float32")
    arguments = case.arguments(rng)
    program = canonicalize(read(case.func).replace(passes=True))
    for change in (plan_threads, spread_tiles):
        program = change(program)
        after = [np.copy(value) for value in arguments]
        wl.interpret(program.to_func(), after)
        assert worst_error(case, arguments, after) <= 1, change


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [512, 1024, 5120, 8192, 16384, 32768, 65536])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
@pytest.mark.some(4)
def test_rows_do_not_spill(name, n, dtype, arch):
    func = PROGRAMS[name](4, n, 1, dtype).func
    assert local_memory(func, arch)[1:] == (0, 0)


def grid_of(case: Case) -> ThreadGrid:
    return choose_threads(canonicalize(read(case.func).replace(passes=True)))


def test_the_grid_of_threads_follows_from_the_program():
    softmax = row_programs.softmax
    # A warp for each row, 16 bytes for each thread; a row of one CTA has all of its threads.
    assert grid_of(softmax(64, 256, 4, "float32")) == ThreadGrid(4, 32, 4)
    assert grid_of(softmax(64, 256, 4, "float16")) == ThreadGrid(4, 32, 8)
    assert grid_of(softmax(64, 1024, 1, "float16")) == ThreadGrid(1, 128, 8)
    # Long rows have more warpgroups; short ones share a warp.
    assert grid_of(softmax(64, 16384, 1, "float16")).threads == 1024
    assert grid_of(softmax(64, 16, 64, "float32")).across == 4
    # Rows that do not begin with words are read element by element.
    assert grid_of(softmax(64, 1001, 1, "float16")).vector == 1
    assert grid_of(softmax(64, 1002, 1, "float16")).vector == 2
    # As many rows as columns: what is stored for each row says nothing of neighbours.
    assert grid_of(row_programs.masked_log_softmax(64, 64, 64, "float32")).vector == 4
    # Halves of a row lie with the same threads, if that costs no registers.
    assert 256 % grid_of(row_programs.gated(8, 256, 8, "float32")).columns == 0


@pytest.mark.parametrize(
    ("n", "dtype", "word"),
    [
        (1024, "float16", '"v4", "u32"'), (1000, "float32", '"v4", "u32"'),
        (1002, "bfloat16", '"", "u32"'), (1001, "float32", None),
    ],
)  # fmt: skip
def test_neighbours_move_together(n, dtype, word):
    """Rows of words of up to 16 bytes are read and written by such words alone."""
    lines = lower(row_programs.softmax(4, n, 1, dtype).func).script().splitlines()
    accesses = [line for line in lines if "X[" in line or "Y[" in line]
    assert accesses
    if word is None:
        assert not any("T.ptx" in line for line in accesses)
    else:
        assert all("T.ptx" in line and word in line for line in accesses)


def test_what_is_decided_is_said():
    assert any("64 threads a row" in line for line in decisions(row_programs.softmax(
        4, 1024, 2, "float16")))  # fmt: skip
    rows = decisions(row_programs.softmax(64, 2048, 64, "float32"))
    assert any("as registers do not hold 64" in line for line in rows)
    again = decisions(row_programs.softmax(1, 65536, 1, "float32"))
    assert any("read again for each use, 8192 elements at a time" in line for line in again)
    apart = decisions(row_programs.gated(1, 100, 1, "float16"))
    assert any("x: elements of other threads come through shared memory" in line for line in apart)


def test_hints_are_followed():
    case = row_programs.softmax(8, 256, 4, "float32")
    for hint, expected in (
        ({"consumers": 2}, "threads: 2 warpgroups"),
        ({"persistent": True}, "grid: as many persistent CTAs"),
    ):
        steps = lower_trace(hinted(case.func, **hint), "sm_100a")
        assert any(expected in line for step in steps for line in step.decisions), hint
    with pytest.raises(Decline, match="3 warpgroups are no power of two"):
        lower(hinted(case.func, consumers=3))
    with pytest.raises(Decline, match="asks for tiles beside the warp that multiplies"):
        lower(hinted(case.func, scheduler="clc", specialise=True), "sm_100a")


def test_rows_that_may_change_are_not_read_again():
    """A kernel that stores the sum with a residual first may do so in place."""
    case = row_programs.layer_norm(1, 65536, 1, "float32", sum_first=True)
    with pytest.raises(Decline, match="what they depend on may have changed; store results last"):
        lower(case.func)
