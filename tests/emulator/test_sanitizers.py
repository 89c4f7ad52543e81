"""The emulator built with sanitizers: hostile inputs, and threads that use its driver together.

The inputs are those of ``tests/emulator/corpus``, and random changes of them; the programs are in
``src/emulator/fuzz``. The build takes most of the time: which of the sanitizers runs is decided by
the commit, and ``--slow`` runs all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared.paths import ROOT

CORPUS = ROOT / "tests" / "emulator" / "corpus"
SANITIZERS = ("address", "thread")
#: Random changes of each input.
MUTANTS = 3


def _run(*command: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        **options,
    )


def _of_this_commit() -> str:
    """The sanitizer that runs; the first one outside of a repository."""
    commit = _run("git", "-C", ROOT, "rev-parse", "HEAD").stdout.strip()
    try:
        return SANITIZERS[int(commit, 16) % len(SANITIZERS)]
    except ValueError:
        return SANITIZERS[0]


def _require(sanitizer: str, folder: Path) -> None:
    """Skip where the tools or the sanitizer's runtime are missing."""
    for tool in ("cmake", "ninja", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    source = folder / "empty.cc"
    source.write_text("int main() { return 0; }\n")
    done = _run("c++", f"-fsanitize={sanitizer}", source, "-o", folder / "empty")
    if done.returncode == 0:
        done = _run(folder / "empty")
    if done.returncode != 0:
        last = done.stdout.strip().splitlines()[-1:]
        pytest.skip(f"the compiler has no runtime of -fsanitize={sanitizer} that works: {last}")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[] if name == _of_this_commit() else pytest.mark.slow)
        for name in SANITIZERS
    ],
)
def programs(request, tmp_path_factory) -> tuple[str, Path]:
    """The sanitizer, and the folder with warploom_fuzz and warploom_threads."""
    folder = tmp_path_factory.mktemp(request.param)
    _require(request.param, folder)
    configure = _run(
        *("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None"),
        *(f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_CXX_FLAGS=-O0"),
        *(f"-DWARPLOOM_SANITIZE={request.param}", "-DWARPLOOM_FUZZ=ON"),
    )
    assert configure.returncode == 0, configure.stdout[-3000:]
    jobs = len(os.sched_getaffinity(0))
    target = ("warploom_fuzz", "warploom_threads")
    build = _run("cmake", "--build", folder, "-j", jobs, "--target", *target)
    assert build.returncode == 0, build.stdout[-3000:]
    return request.param, folder


def test_hostile_inputs(programs, rng):
    sanitizer, folder = programs
    seed = int(rng.integers(1 << 31))
    inputs = sorted(CORPUS.iterdir())
    done = _run(folder / "warploom_fuzz", "--mutants", MUTANTS, seed, *inputs)
    assert done.returncode == 0, f"{sanitizer}, seed {seed}: {done.stdout[-5000:]}"
    assert done.stdout.endswith(f"{len(inputs)} inputs, {MUTANTS} mutants of each\n")


def test_threads_that_load_launch_and_change_options(programs):
    sanitizer, folder = programs
    done = _run(folder / "warploom_threads", 60)
    assert done.returncode == 0, f"{sanitizer}: {done.stdout[-5000:]}"
    assert done.stdout.endswith("2 threads, 60 rounds\n")
