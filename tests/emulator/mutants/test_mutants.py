"""Every planted synchronisation bug is reported with its cause, and correct kernels are silent."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest

from tests.emulator.mutants.drawn_tiles import DRAWN_TILE_MUTANTS
from tests.emulator.mutants.emitter import EMITTER_MUTANTS
from tests.emulator.mutants.mutation import execute
from tests.emulator.mutants.programs import PROGRAMS, Product, Source
from tests.emulator.mutants.rows import ROW_MUTANTS
from tests.emulator.mutants.shared_tiles import SHARED_TILE_MUTANTS
from tests.emulator.mutants.sm90 import MUTANTS, Mutant
from tests.emulator.mutants.sm90_programs import SM90_PROGRAM_MUTANTS
from tests.emulator.mutants.sm90_small import SM90_SMALL_MUTANTS
from tests.emulator.mutants.sm100 import SM100_MUTANTS
from tests.emulator.mutants.sm100_programs import SM100_PROGRAM_MUTANTS
from tests.shared.sampling import sampled
from warploom import emulator
from warploom.emulator.settings import SCHEDULES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not emulator.is_enabled(), reason="bugs are for the emulator only"),
]

ALL_MUTANTS = (
    *MUTANTS, *SM90_SMALL_MUTANTS, *SM90_PROGRAM_MUTANTS, *SHARED_TILE_MUTANTS,
    *DRAWN_TILE_MUTANTS, *SM100_MUTANTS,
    *SM100_PROGRAM_MUTANTS, *EMITTER_MUTANTS, *ROW_MUTANTS,
)  # fmt: skip
#: A bug may need a certain schedule to show.
SEEDS = (1, 2, 3)
#: Of correct kernels: one seed of each strategy, and 100 of each with ``--slow``.
SAMPLE, ALL = range(7, 8), range(1, 101)


@functools.cache
def program(name: str) -> Product | Source:
    return PROGRAMS[name]()


@pytest.mark.parametrize("mutant", sampled(ALL_MUTANTS, 3), ids=str)
@pytest.mark.some(18)
def test_mutant_is_reported_with_its_cause(mutant: Mutant):
    launch = program(mutant.program).build(mutant.edits)
    outcomes = []
    for seed in SEEDS:
        outcomes.append(execute(launch, seed))
        if outcomes[-1].shows(mutant.kind, mutant.words):
            return
    shown = "\n".join(map(str, outcomes))
    pytest.fail(f"expected [{mutant.kind}] with {mutant.words}, got\n{shown}")


def silent(name: str, seeds: Sequence[int]) -> None:
    launch = program(name).build(())
    for schedule in SCHEDULES:
        for seed in seeds:
            outcome = execute(launch, seed, schedule)
            assert not outcome.error and not outcome.reports, f"{schedule} {seed}:\n{outcome}"


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.some(7)
def test_correct_programs_are_silent(name: str):
    silent(name, SAMPLE)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_correct_programs_are_silent_under_100_seeds(name: str):
    silent(name, ALL)


def test_mutants_are_distinct():
    assert len({(m.program, m.edits) for m in ALL_MUTANTS}) == len(ALL_MUTANTS)
    assert len({str(m) for m in ALL_MUTANTS}) == len(ALL_MUTANTS)
