"""Long lists of parameters, of which every run of the tests takes some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """Parameters of which one in ``every`` always runs, and the others are marked ``slow``.

    A tuple becomes several parameters, as in ``pytest.mark.parametrize``.
    """
    return [
        pytest.param(*(one if isinstance(one, tuple) else (one,)),
                     marks=[pytest.mark.slow] if number % every else [])
        for number, one in enumerate(cases)
    ]  # fmt: skip
