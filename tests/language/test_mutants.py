"""Programs with one random fault: the interpreter and both lowerings agree on every one of them.

Either all refuse it with the same sentence, or the interpreter takes it, and kernels, where a
lowering takes it too, compute the same on the emulator with its checks.
"""

from __future__ import annotations

import collections
import random
from typing import Any

import numpy as np
import pytest

from tests.language.mutate_programs import CHANGES, mutant
from tests.shared.lowered_programs import exact, run
from warploom import emulator
from warploom import language as wl
from warploom.errors import Decline, TileProgramError
from warploom.lower.lowerings import lower

#: Mutants in every run, those of them that are executed, all of them, and those of one process.
SAMPLE, EXECUTED, ALL, SHARE = 60, 2, 2000, 40
ARCHS = ("sm_90a", "sm_100a")


def interpreted(func: Any, arguments: list[Any], poison: bool) -> list[Any]:
    """The arguments after the interpreter has executed a program."""
    after = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
    wl.interpret(func, after, poison=poison)
    return after


def outcome(seed: int, execute: bool) -> tuple[str, str]:
    """The change of a seed, and what all made of it; disagreements are failures."""
    name, func, case = mutant(seed)
    arguments = exact(case.arguments(np.random.default_rng(seed)))
    kernels, sentences = {}, {}
    for arch in ARCHS:
        try:
            kernels[arch] = lower(func, arch)
        except TileProgramError as refusal:
            sentences[arch] = str(refusal)
        except Decline:
            pass
    told = f"seed {seed}, {name}:\n{func.script()}\n"
    try:
        meant = interpreted(func, arguments, poison=True)
    except TileProgramError as refusal:
        assert sentences == dict.fromkeys(ARCHS, str(refusal)), f"{told}{refusal}\n{sentences}"
        return name, "refused"
    assert not sentences, f"{told}{sentences}"
    if not execute:
        return name, "taken"
    # Where these differ, something was read that nobody wrote.
    other = interpreted(func, arguments, poison=False)
    both = [
        [np.asarray(one, np.float64) for one in pair] for pair in zip(meant, other, strict=True)
    ]
    undefined = not all(np.array_equal(*pair, equal_nan=True) for pair in both)
    for arch, kernel in kernels.items():
        copies = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
        try:
            found = run(kernel, copies, arch)
        except emulator.EmulatorError as error:
            assert undefined and "uninitialised read" in str(error), f"{told}{arch}: {error}"
            continue
        for one in zip(meant, other, found, strict=True):
            if isinstance(one[0], np.ndarray):
                require_equal(*one, case.tolerance, f"{told}{arch}")
    return name, f"executed on {len(kernels)}"


def require_equal(meant: Any, other: Any, found: Any, tolerance: float, told: str) -> None:
    """Elements are what the interpreter says, where that is defined."""
    meant, other, found = (np.asarray(one, np.float64) for one in (meant, other, found))
    defined = (meant == other) & np.isfinite(meant)
    allowed = (2 * tolerance + 2e-5) * np.abs(meant[defined]).max(initial=0)
    error = np.abs(found[defined] - meant[defined]).max(initial=0)
    assert error <= allowed, f"{told}: error {error}, allowed {allowed}"
    unwritten = np.isnan(meant) & np.isnan(other)
    assert np.isnan(found[unwritten]).all(), f"{told}: NaN is missing"


def test_a_sample_of_mutants():
    start = random.SystemRandom().randrange(10**6)
    print(f"mutants from seed {start} on")
    found = collections.Counter()
    for seed in range(start, start + SAMPLE):
        found[outcome(seed, found["taken"] + found["executed"] in range(EXECUTED))[1][:8]] += 1
    assert found["refused"] >= SAMPLE // 4, found


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("start", range(0, ALL, SHARE))
def test_two_thousand_mutants(start):
    found = collections.Counter(outcome(seed, True) for seed in range(start, start + SHARE))
    print("\n".join(f"{count:4} {name}: {what}" for (name, what), count in sorted(found.items())))


def test_every_change_gives_mutants_that_are_refused():
    """No class of fault is only in name."""
    missing = set(CHANGES)
    for seed in range(400):
        name, func, _ = mutant(seed, missing)
        try:
            lower(func, "sm_80")
        except TileProgramError:
            missing.discard(name)
        except Decline:
            pass
        if not missing:
            return
    raise AssertionError(f"nothing refuses these: {missing}")
