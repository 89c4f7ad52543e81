"""Random tile programs, lowered both ways, on the emulator with its checks, against the model."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import tile_programs
from lowered_programs import check
from warploom.transform.decline import Decline

#: Programs for each lowering in every run, and where asked for; one process of many.
SAMPLE, ALL, SHARE = 24, 2000, 20
#: Why a random program may be declined. None is, at present: each of these would be a sentence.
ALLOWED_DECLINES: tuple[str, ...] = ()


def run_seed(seed: int, specialise: bool) -> str | None:
    """Run the program of a seed; why it was declined, if it was for an allowed reason."""
    rng = np.random.default_rng(seed)
    case = tile_programs.random_program(rng)
    try:
        check(case, rng, specialise=specialise)
    except Decline as reason:
        if not any(allowed in str(reason) for allowed in ALLOWED_DECLINES):
            raise
        return str(reason)
    return None


@pytest.mark.parametrize("specialise", [True, False], ids=["warp_specialised", "multistage"])
@pytest.mark.parametrize("seed", range(SAMPLE))
def test_random_programs_are_right_and_free_of_races(seed, specialise):
    # The two lowerings see different programs.
    assert run_seed(2 * seed + specialise, specialise) is None


@pytest.mark.slow
@pytest.mark.parametrize("specialise", [True, False], ids=["warp_specialised", "multistage"])
@pytest.mark.parametrize("start", range(0, ALL, ALL // SHARE))
def test_two_thousand_random_programs(start, specialise):
    seeds = range(10_000 + start, 10_000 + start + ALL // SHARE)
    declines = collections.Counter(run_seed(seed, specialise) for seed in seeds)
    assert declines[None] == len(seeds), declines
