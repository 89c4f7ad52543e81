"""Random tile programs, lowered both ways, on the emulator with its checks, against the model."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from tests.shared import tile_programs
from tests.shared.lowered_programs import check
from warploom.errors import Decline

#: Programs for each lowering in every run, and where asked for; one process of many.
SAMPLE, ALL, SHARE = 12, 2000, 20
#: Why a random program may be declined, and how often at most: matrices of one row, where TVM's
#: TMA copy takes the row for the whole matrix and has no stride.
ALLOWED_DECLINES = {"has an extent of 1 where the tile has": 0.02}


def run_seed(seed: int, specialise: bool) -> str | None:
    """Run the program of a seed; the allowed reason that it was declined for, if it was."""
    rng = np.random.default_rng(seed)
    case = tile_programs.random_program(rng)
    try:
        check(case, rng, specialise=specialise, prefetch_l2=seed % 3 == 0 or None)
    except Decline as reason:
        allowed = next((one for one in ALLOWED_DECLINES if one in str(reason)), None)
        if allowed is None:
            raise
        return allowed
    return None


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
    seeds = range(10_000 + start, 10_000 + start + ALL // SHARE)
    declines = collections.Counter(run_seed(seed, specialise) for seed in seeds)
    for reason, share in ALLOWED_DECLINES.items():
        assert declines[reason] <= 1 + share * len(seeds), declines
