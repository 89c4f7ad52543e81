"""Programs with one random fault: the interpreter and both lowerings agree on every one of them.

Either all refuse it with the same sentence, or the interpreter takes it, and kernels, where a
lowering takes it too, compute the same on the emulator with its checks.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.language.mutate_programs import CHANGES, mutant
from tests.shared.lowered_programs import exact, run
from warploom import emulator
from warploom import language as wl
from warploom.errors import Decline, TileProgramError
from warploom.language.interpreter.storage import Storage
from warploom.language.values import dtypes
from warploom.lower.lowerings import lower
from warploom.tile.program import allocations

#: Mutants in every run, those of them that are executed, all of them, and those of one process.
SAMPLE, EXECUTED, ALL, SHARE = 60, 2, 2000, 40
#: Mutants with scales in every run; one of them is executed.
SCALED = 20
ARCHS = ("sm_90a", "sm_100a")
#: Bytes of integers that nobody wrote, of either sign.
POISONS = (0xA5, 0x5A)
#: What sums that are rounded in each step may lose, of the largest result; nests may have made of
#: small differences between large sums what they like.
LOST = {
    "float16": 2.0**-5, "bfloat16": 2.0**-4, "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3,
}  # fmt: skip


class Interpreted:
    """What the interpreter makes of a program, whatever memory holds that nobody wrote.

    Attributes
    ----------
    arguments : list of list
        The arguments after it, once for each content of that memory.
    reads_unwritten : bool
        Whether something of that memory is read, though no result may depend on it.
    asserts : str
        The assertion that does not hold, where the program ends with one: a kernel that compiles.
    """

    def __init__(self, func: Any, arguments: list[Any]) -> None:
        self.reads_unwritten = False
        self.arguments: list[list[Any]] = []
        self.asserts = ""
        try:
            for poison in POISONS:
                self.arguments.append(self._run(func, arguments, poison))
            self.arguments.append(after(func, arguments, poison=False))
        except TileProgramError as ended:
            if not str(ended).startswith("device_assert: "):
                raise
            self.asserts = str(ended)

    def _run(self, func: Any, arguments: list[Any], poison: int) -> list[Any]:
        def watched(method: Callable) -> Callable:
            def read(storage: Storage, *where: Any) -> np.ndarray:
                found = method(storage, *where)
                unwritten = dtypes.poisoned((1,), found.dtype)[0]
                same = np.isnan(found) if found.dtype.kind not in "iub" else found == unwritten
                self.reads_unwritten |= storage.scope != "global" and bool(np.any(same))
                return found

            return read

        with (
            mock.patch.object(dtypes, "_POISON", poison),
            mock.patch.object(Storage, "read", watched(Storage.read)),
            mock.patch.object(Storage, "gather", watched(Storage.gather)),
        ):
            return after(func, arguments, poison=True)

    def results(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For each array what it has to hold, where that is defined, and where it has to be NaN."""
        for every in zip(*self.arguments, strict=True):
            if isinstance(every[0], np.ndarray):
                first, *others = (np.asarray(one, np.float64) for one in every)
                same = np.logical_and.reduce([first == other for other in others])
                nan = np.logical_and.reduce([np.isnan(one) for one in (first, *others)])
                yield first, same & np.isfinite(first), nan


def after(func: Any, arguments: list[Any], poison: bool) -> list[Any]:
    """The arguments after the interpreter has executed a program."""
    copies = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
    wl.interpret(func, copies, poison=poison)
    return copies


def rounding(func: Any) -> float:
    """What sums lose, relative to the largest result, in registers of fewer than 32 bits."""
    tiles = [(str(tile.dtype), tile.scope()) for tile in allocations((func.body,))]
    lost = [
        LOST.get(dtype, 0.0) for dtype, scope in tiles
        if scope == "accumulator" or (scope == "fragment" and "float8" in dtype)
    ]  # fmt: skip
    return 4 * max(lost, default=0.0)


def outcome(seed: int, execute: bool, scaled: bool = False) -> tuple[str, str]:
    """The change of a seed, and what all made of it; disagreements are failures."""
    name, func, case = mutant(seed, scaled=scaled)
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
        meant = Interpreted(func, arguments)
    except TileProgramError as refusal:
        assert sentences == dict.fromkeys(ARCHS, str(refusal)), f"{told}{refusal}\n{sentences}"
        return name, "refused"
    assert not sentences, f"{told}{sentences}"
    if not execute:
        return name, "taken"
    tolerance = 2 * case.tolerance + 2e-5 + rounding(func)
    for arch, kernel in kernels.items():
        copies = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
        try:
            found = run(kernel, copies, arch)
        except emulator.EmulatorError as error:
            unwritten = meant.reads_unwritten and "uninitialised read" in str(error)
            asserts = meant.asserts and "trap" in str(error)
            assert unwritten or asserts, f"{told}{arch}: {error}"
            continue
        if meant.asserts:  # what it asserts may be about memory that nobody wrote
            assert meant.reads_unwritten, f"{told}{arch} goes on after {meant.asserts}"
            continue
        arrays = [one for one in found if isinstance(one, np.ndarray)]
        for one, wanted in zip(arrays, meant.results(), strict=True):
            require_equal(np.asarray(one, np.float64), *wanted, tolerance, f"{told}{arch}")
    return name, f"executed on {len(kernels)}"


def require_equal(
    found: np.ndarray, meant: np.ndarray, defined: np.ndarray, nan: np.ndarray,
    tolerance: float, told: str,
) -> None:  # fmt: skip
    """Elements are what the interpreter says, where that is defined."""
    allowed = tolerance * np.abs(meant[defined]).max(initial=0)
    error = np.abs(found[defined] - meant[defined]).max(initial=0)
    assert error <= allowed, f"{told}: error {error}, allowed {allowed}"
    assert np.isnan(found[nan]).all(), f"{told}: NaN is missing"


def test_a_sample_of_mutants():
    start = random.SystemRandom().randrange(10**6)
    print(f"mutants from seed {start} on")
    found = collections.Counter()
    for seed in range(start, start + SAMPLE):
        found[outcome(seed, found["taken"] + found["executed"] in range(EXECUTED))[1][:8]] += 1
    assert found["refused"] >= SAMPLE // 4, found


def test_a_sample_of_mutants_with_scales():
    start = random.SystemRandom().randrange(10**6)
    print(f"mutants with scales from seed {start} on")
    found = collections.Counter()
    for seed in range(start, start + SCALED):
        found[outcome(seed, not found["executed"], scaled=True)[1][:8]] += 1
    assert found["refused"] >= SCALED // 4, found


@pytest.mark.parametrize("seed", [358521])
def test_mutants_that_once_differed(seed):
    """An assertion of the program's own fails."""
    outcome(seed, True)


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
