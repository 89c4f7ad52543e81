"""Which tests a run takes, and what ``tests/README.md`` promises of the order and the processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared import selection
from tests.shared.paths import ROOT, TESTS

_FILE = """
import os, random
import pytest

@pytest.mark.parametrize("number", range(200))
@pytest.mark.slow
def test_slow(number):
    pass

@pytest.mark.parametrize("number", [*range(30), pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.some(7)
def test_some(number):
    pass

@pytest.mark.parametrize("number", range(90))
@pytest.mark.in_turn(3)
def test_in_turn(number):
    pass

@pytest.mark.long
def test_long():
    pass

def test_always(rng):
    print("process", os.environ.get("PYTEST_XDIST_WORKER"), rng.integers(1 << 30))
"""


@given(st.permutations(range(300)), st.integers(0, 2**32))
def test_a_seed_draws_the_same_tests_in_any_order(order, seed):
    names = [f"test[{number}]" for number in order]
    found = selection.drawn(names, seed)
    assert found == selection.drawn(sorted(names), seed)
    assert len(found) == selection.DRAWN and found <= set(names)
    assert selection.drawn(names[:7], seed) == set(names[:7])


def test_commits_draw_every_test_in_the_end():
    names = [f"test[{number}]" for number in range(300)]
    found = set().union(*(selection.drawn(names, seed) for seed in range(60)))
    assert found == set(names)


def test_a_folder_without_git_has_seed_0(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert selection.commit_seed(tmp_path) == 0


#: In the place of the package, which takes seconds to load: its emulator.
_EMULATOR = """
def enable_without_gpu(): return True
def is_enabled(): return True
"""


@pytest.fixture
def tests(tmp_path):
    """``tests(*words)`` runs pytest on a file with tests of all kinds; its output."""
    folder, package = tmp_path / "tests", tmp_path / "warploom"
    for path, text in {
        **{
            folder / name: (TESTS / name).read_text()
            for name in ("__init__.py", "conftest.py", "shared/__init__.py", "shared/selection.py")
        },
        folder / "test_it.py": _FILE,
        package / "__init__.py": "",
        package / "emulator.py": _EMULATOR,
        tmp_path / "pyproject.toml": (ROOT / "pyproject.toml").read_text(),
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(*words: str, **environ: str) -> str:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words], cwd=tmp_path,
            env={**inherited, "PYTHONPATH": str(tmp_path), **environ},
            capture_output=True, text=True, timeout=1200,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.in_turn(3)
def test_slow_tests_are_drawn_and_the_seed_repeats_them(tests):
    words = ("-v", "-n", "0", "-p", "no:randomly")
    text = tests(*words, "--slow-seed", "1")
    assert "slow tests: 45 of them, drawn with --slow-seed=1\n" in text
    assert "85 passed, 238 deselected" in text and "test_long" not in text
    chosen = {line.split()[0] for line in text.splitlines() if "PASSED" in line}
    text = tests("--collect-only", "-q", WARPLOOM_SLOW_SEED="1")
    assert chosen == {line for line in text.splitlines() if "::" in line}
    assert "323 passed" in tests(*words, "--slow")
    assert "166 passed" in tests(*words, "--every-case")
    assert "282 passed" in tests(*words, "--slow", "-m", "slow"), "what a run may leave out"
    assert "1 passed" in tests("tests/test_it.py::test_long"), "a test that is named always runs"


@pytest.mark.in_turn(3)
def test_folders_are_tested_in_several_processes_that_draw_alike(tests):
    text = tests("--randomly-seed", "7", PYTEST_XDIST_AUTO_NUM_WORKERS="2")
    assert "created: 2/2 workers" in text and "--randomly-seed=7" in text
    assert "85 passed" in text
    assert "85 passed" in tests("-p", "no:xdist")


def test_the_order_does_not_change_the_data_of_a_test(tests):
    """pytest-randomly seeds the generators of ``random`` and ``numpy.random``, and not ours."""
    lines = [
        [line for line in tests("-s", "tests/test_it.py", *more).splitlines() if "process" in line]
        for more in (["--randomly-seed=1"], ["-p", "no:randomly"])
    ]
    assert len(lines[0]) == 1 and "process None" in lines[0][0], "one file, one process"
    assert lines[0] == lines[1]
