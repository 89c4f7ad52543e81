"""Operands in shared memory that threads compute: two copies, around which they meet once."""

from __future__ import annotations

import pytest

from tests.lower.nests.test_word_loads import cuda
from tests.shared import tile_programs
from tests.shared.lowered_programs import check

MEET = "bar_sync_count_sync((uint)15"


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.some(4)
def test_they_are_right(tiles, steps, arch, rng):
    check(tile_programs.computed_operand(tiles, steps), rng, arch)


def test_threads_meet_once_in_a_step_and_once_before_the_loop():
    source = cuda(tile_programs.computed_operand().func, "sm_90a").split("__global__")[-1]
    before, loop = source.split("for (int s_1 = 0;")
    assert (before.count(MEET), loop.count(MEET)) == (1, 1)


def test_threads_meet_twice_around_a_single_copy():
    # One iteration needs one copy.
    source = cuda(tile_programs.computed_operand(steps=1).func, "sm_90a").split("__global__")[-1]
    assert source.count(MEET) == 2


def test_they_meet_where_one_warpgroup_reads_what_it_has_computed(rng):
    case = tile_programs.computed_operand(2, 2)
    check(case, rng, consumers=1)
