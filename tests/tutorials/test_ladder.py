"""Every step of the ladder runs as it stands, and bugs planted in it are reported."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from tests.shared.paths import ROOT
from tests.tutorials.ladder_mutants import MUTANTS, Mutant
from warploom import emulator
from warploom.emulator import EmulatorError
from warploom.tutorials import check_assembled, check_matmul

TUTORIALS = ROOT / "tutorials"
STEPS = sorted(TUTORIALS.glob("ladder_*/v*.py"))
ARCHS = {"ladder_hopper": "sm_90a", "ladder_blackwell": "sm_100a"}
#: The others take too long for every run.
ALWAYS = {
    "v04_tma: the parity is always that of the first round",
    "v04_tma: no fence before the store",
    "v01_one_tile: columns are given back while warps load from them",
}

pytestmark = pytest.mark.gpu


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", STEPS, ids=name_of)
@pytest.mark.some(6)
def test_step_is_right(path):
    """The kernel of each step, for the largest of its cases."""
    names = runpy.run_path(str(path))
    check_matmul(names["gemm"], names["CASES"][-1:], ARCHS[path.parent.name])


@pytest.mark.slow
@pytest.mark.parametrize("path", STEPS, ids=name_of)
def test_step_runs(path, capsys):
    """All that a reader runs: every case; and the assembler has nothing to say against it."""
    names = runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.count("relative error") == len(names["CASES"]) >= 1
    arch = ARCHS[path.parent.name]
    assert printed.count(f"assembled for {arch}") == (arch == "sm_100a")
    check_assembled(names["gemm"](*names["CASES"][-1]), arch)


@pytest.mark.long
@pytest.mark.parametrize("path", STEPS, ids=name_of)
def test_step_is_right_under_every_schedule(path, rng):
    """20 orders of warps and copies, which must not change a bit of the result."""
    names, arch = runpy.run_path(str(path)), ARCHS[path.parent.name]
    case = names["CASES"][-1]
    m, n, k = case[:3]
    a, b = (rng.standard_normal((rows, k)).astype(np.float16) for rows in (m, n))
    c = np.full((m, n), np.nan, np.float16)
    emulator.explore(names["gemm"](*case), [a, b, c], 20, arch=arch)


def test_every_ladder_has_the_same_steps():
    numbers = [f"v{number:02}" for number in range(1, 12)]
    for folder in ARCHS:
        steps = [path.stem for path in STEPS if path.parent.name == folder]
        assert [step[:3] for step in steps] == numbers


@pytest.mark.skipif(not emulator.is_enabled(), reason="bugs are for the emulator only")
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(m, id=str(m), marks=() if str(m) in ALWAYS else pytest.mark.slow)
        for m in MUTANTS
    ],
)
def test_mutant_is_reported(mutant: Mutant, tmp_path):
    script = tmp_path / f"{mutant.step.rpartition('/')[2]}.py"
    script.write_text(mutant.apply((TUTORIALS / f"{mutant.step}.py").read_text()))
    names = runpy.run_path(str(script))
    # The last case goes through every hand-over.
    with pytest.raises(EmulatorError) as caught:
        check_matmul(names["gemm"], names["CASES"][-1:], ARCHS[mutant.step.partition("/")[0]])
    missing = [word for word in mutant.words if word not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"


def test_mutants_are_distinct():
    assert {str(m) for m in MUTANTS} >= ALWAYS
    assert len({(m.step, m.old, m.new, m.after) for m in MUTANTS}) == len(MUTANTS)
    assert all(all(m.words) and m.words for m in MUTANTS)
