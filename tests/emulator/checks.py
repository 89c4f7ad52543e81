"""Kernels in PTX with one synchronisation too few, and what the checks say about them."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tests.emulator.options import restore_checks
from tests.emulator.run_ptx import EmulatorError, kernel, launch, library


@contextmanager
def checks() -> Iterator[None]:
    """Check launches in this block; later ones are, or are not, as the process began."""
    library().warploom_emulator_set_checks(ctypes.c_int(1))
    library().warploom_emulator_clear_reports()
    try:
        yield
    finally:
        restore_checks()


def reports() -> list[dict[str, str]]:
    """What the checks have found since they were switched on."""
    library().warploom_emulator_reports.restype = ctypes.c_char_p
    return json.loads(library().warploom_emulator_reports())


def changed(text: str, old: str, new: str) -> str:
    """``text`` with its only ``old`` replaced."""
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    return text.replace(old, new)


def run_checked(
    body: str,
    declarations: str,
    arrays: list[np.ndarray],
    *,
    seed: int = 1,
    **geometry,
) -> tuple[list[np.ndarray] | None, list[dict[str, str]], str]:
    """Run a kernel of :func:`run_ptx.kernel`: results, reports and error message."""
    with checks():
        try:
            results = launch(kernel(len(arrays), body, declarations), arrays, seed=seed, **geometry)
            message = ""
        except EmulatorError as error:
            results, message = None, str(error)
        return results, reports(), message
