"""Random tile programs, lowered both ways, on the emulator with its checks, against the model."""

from __future__ import annotations

import numpy as np
import pytest

from tests.shared import tile_programs
from tests.shared.lowered_programs import check
from warploom.errors import Decline

#: Programs for each lowering in every run, and where asked for; one process of many.
SAMPLE, ALL, SHARE = 12, 2000, 20
#: Why warps of their own do not load a random program's tiles: then all threads do.
BY_THREADS = "Threads copy it, and the thread that loads cannot alone"


def run_seed(seed: int, specialise: bool) -> None:
    """Run the program of a seed."""
    rng = np.random.default_rng(seed)
    case = tile_programs.random_program(rng)
    prefetch = seed % 3 == 0 or None
    try:
        check(case, rng, specialise=specialise, prefetch_l2=prefetch)
    except Decline as reason:
        if not specialise or BY_THREADS not in str(reason):
            raise
        check(case, rng, prefetch_l2=prefetch)


@pytest.mark.parametrize("specialise", [True, False], ids=["warp_specialised", "multistage"])
@pytest.mark.parametrize("seed", range(SAMPLE))
@pytest.mark.some(6)
def test_random_programs_are_right_and_free_of_races(seed, specialise):
    # The two lowerings see different programs.
    run_seed(2 * seed + specialise, specialise)


@pytest.mark.long
@pytest.mark.parametrize("specialise", [True, False], ids=["warp_specialised", "multistage"])
@pytest.mark.parametrize("start", range(0, ALL, ALL // SHARE))
def test_two_thousand_random_programs(start, specialise):
    for seed in range(10_000 + start, 10_000 + start + ALL // SHARE):
        run_seed(seed, specialise)
