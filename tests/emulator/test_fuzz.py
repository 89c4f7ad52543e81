"""Damaged PTX never crashes the process and never hangs it: it is refused, fails or runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.shared.paths import ROOT


def _run(seed: int, count: int) -> dict[str, int]:
    print(f"python -m tests.emulator.fuzz {seed} {count}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.emulator.fuzz", str(seed), str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600 + count,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    words = done.stdout.splitlines()[-1].split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


@pytest.mark.parametrize(
    "count", [pytest.param(400, id="some"), pytest.param(20_000, id="many", marks=pytest.mark.long)]
)
def test_damaged_ptx_is_refused_fails_or_runs(rng, count):
    outcomes = _run(int(rng.integers(1 << 31)), count)
    assert sum(outcomes.values()) == count
    assert min(outcomes.values()) > 0  # mutations reach the loader, the executor and neither
