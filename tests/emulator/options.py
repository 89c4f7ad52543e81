"""Options of the emulated driver that :mod:`run_ptx` drives, and what it counts."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Iterator
from typing import Any

from tests.emulator.run_ptx import library

STRATEGIES = ("random", "round-robin", "late", "early", "far-ahead")


def restore_checks() -> None:
    """Launches are checked again, or not, as they were when the process began."""
    on = os.environ.get("WARPLOOM_EMULATOR_CHECK") == "1"
    library().warploom_emulator_set_checks(ctypes.c_int(on))


@contextlib.contextmanager
def options(
    *,
    schedule: str = "random",
    threads: int = 1,
    seconds: float = 0.0,
    explore: int = 0,
    exhaustive: int = 0,
    preemptions: int = 2,
    report: bool = False,
    checks: bool = False,
) -> Iterator[None]:
    """Launches within the block have these options; those after it have the defaults."""
    driver = library()
    assert driver.warploom_emulator_set_schedule(schedule.encode()) == 0
    driver.warploom_emulator_set_threads(ctypes.c_uint32(threads))
    driver.warploom_emulator_set_seconds(ctypes.c_double(seconds))
    driver.warploom_emulator_set_explore(ctypes.c_int64(explore))
    driver.warploom_emulator_set_exhaustive(ctypes.c_int64(exhaustive), preemptions)
    driver.warploom_emulator_set_report(int(report))
    driver.warploom_emulator_clear_launch_reports()
    driver.warploom_emulator_set_checks(int(checks))
    try:
        yield
    finally:
        driver.warploom_emulator_set_schedule(b"random")
        driver.warploom_emulator_set_threads(ctypes.c_uint32(0))
        driver.warploom_emulator_set_seconds(ctypes.c_double(0))
        driver.warploom_emulator_set_explore(ctypes.c_int64(0))
        driver.warploom_emulator_set_exhaustive(ctypes.c_int64(0), 0)
        driver.warploom_emulator_set_report(0)
        restore_checks()


def launch_reports() -> list[dict[str, Any]]:
    """Reports of the launches of the latest block with ``report=True``."""
    function = library().warploom_emulator_launch_reports
    function.restype = ctypes.c_char_p
    return json.loads(function())


def exploration() -> dict[str, Any]:
    """What became of the latest launch under several schedules."""
    function = library().warploom_emulator_exploration
    function.restype = ctypes.c_char_p
    return json.loads(function())
