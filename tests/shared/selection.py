"""Which of many similar tests a run takes: another part for every commit."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

#: So many tests are drawn: together they take about three quarters of a minute of one core.
DRAWN = 45


def commit_seed(folder: Path) -> int:
    """The first digits of the checked-out commit, or 0 where there is no git checkout."""
    command = ["git", "-C", str(folder), "rev-parse", "--short=8", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return int(found.stdout.strip()[:8], 16) if found.returncode == 0 else 0
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return 0


def seed_of(config: pytest.Config) -> int:
    """``--slow-seed``, else ``WARPLOOM_SLOW_SEED``, else the commit."""
    chosen = config.getoption("slow_seed")
    if chosen is None and "WARPLOOM_SLOW_SEED" in os.environ:
        chosen = int(os.environ["WARPLOOM_SLOW_SEED"])
    return commit_seed(config.rootpath) if chosen is None else chosen


def takes_all(config: pytest.Config) -> bool:
    """Whether no test is left out: because of ``--slow``, or because tests are named by id."""
    by_name = any("::" in one for one in config.args)
    wanted = config.getoption("slow") or os.environ.get("WARPLOOM_SLOW_TESTS") == "1"
    return wanted or by_name


def drawn(names: Sequence[str], seed: int, count: int = DRAWN) -> set[str]:
    """``count`` of the names; the same for the same seed, in whatever order they come."""
    ordered = sorted(names)
    return set(random.Random(seed).sample(ordered, min(count, len(ordered))))


def mark_cases(items: Sequence[pytest.Item], seed: int) -> None:
    """Mark as ``slow`` what the seed does not choose of ``some(n)`` and ``in_turn(n)``.

    Of the cases of a function marked ``some(n)`` it chooses ``n``; of tests marked ``in_turn(n)``
    one in ``n``.
    """
    functions: dict[str, list[pytest.Item]] = {}
    for one in items:
        if one.get_closest_marker("some") and not one.get_closest_marker("slow"):
            functions.setdefault(one.nodeid.partition("[")[0], []).append(one)
    for cases in functions.values():
        (count,) = cases[0].get_closest_marker("some").args
        taken = drawn([one.nodeid for one in cases], seed, count)
        for one in cases:
            if one.nodeid not in taken:
                one.add_marker(pytest.mark.slow)
    for one in items:
        turn = one.get_closest_marker("in_turn")
        if turn and random.Random(f"{seed} {one.nodeid}").randrange(*turn.args):
            one.add_marker(pytest.mark.slow)


def left_out(items: Sequence[pytest.Item], seed: int) -> list[pytest.Item]:
    """The tests that a run does not take: those marked ``long``, and ``slow`` ones not drawn."""
    slow = [one for one in items if one.get_closest_marker("slow")]
    candidates = [one.nodeid for one in slow if not one.get_closest_marker("long")]
    taken = drawn(candidates, seed)
    return [
        one
        for one in items
        if one.get_closest_marker("long")
        or (one.get_closest_marker("slow") and one.nodeid not in taken)
    ]
