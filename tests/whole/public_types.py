"""A user's program for mypy: it is checked, and never executed.

``assert_type`` says what a type checker has to know of public names; a name without a type would
be ``Any`` there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

import numpy as np

import warploom
from warploom import emulator, profile, sparse
from warploom import language as wl
from warploom import meta_schedule as wms
from warploom.errors import Decline, WarploomError
from warploom.lower.trace import Step
from warploom.target import ARCHS, GPUS, Arch, Gpu, Swizzle, box_error, swizzle_chunks


def kernels(program: Any, a: np.ndarray) -> None:
    """Calls, traces and measurements of a program."""
    assert_type(warploom.lower_trace(program), list[Step])
    assert_type(warploom.__version__, str)
    assert_type(wl.interpret(program, [a]), bool)
    assert_type(wl.Hints(stages=4), wl.Hints)


def runs(program: Any, a: np.ndarray) -> None:
    """The emulator and timelines."""
    result = emulator.run(program, [a], checks=True)
    assert_type(result, emulator.Result)
    assert_type(result.launches, tuple[emulator.LaunchReport, ...])
    assert_type(emulator.is_enabled(), bool)
    assert_type(emulator.launch_reports(), list[emulator.LaunchReport])
    timeline = profile.instrument(program).emulate([a])
    assert_type(timeline, profile.Timeline)
    assert_type(timeline.streams[0].spans[0].begin, float)


def searches() -> None:
    """Databases and their records."""
    found = wms.shipped()
    assert_type(found, wms.Shipped)
    assert_type(found.skipped, tuple[str, ...])
    assert_type(wms.merge(["a"], "b", best=1), int)


def facts() -> None:
    """Targets, layouts and operands."""
    assert_type(ARCHS["sm_90a"], Arch)
    assert_type(GPUS["h200"], Gpu)
    assert_type(Swizzle.B128.apply(128), int)
    assert_type(box_error("float16", (64, 64), Swizzle.B128), str | None)
    assert_type(swizzle_chunks(176, 2), list[int])
    assert_type(sparse.sparsity("float16"), sparse.Sparsity)


def errors(error: WarploomError) -> Mapping[str, str]:
    """Errors are exceptions of one family."""
    if isinstance(error, Decline):
        return {"declined": str(error)}
    raise error
