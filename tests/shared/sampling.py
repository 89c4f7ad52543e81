"""Long lists of parameters, of which every run of the tests takes some."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
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


def covering(
    cases: Iterable[Any], traits: Callable[[Any], Iterable[Hashable]]
) -> tuple[list[Any], list[Any]]:
    """Few cases that together have every trait that any case has, and the other cases.

    Of cases that add as many new traits, the first is taken: cheap ones should come first.
    """
    others = list(cases)
    missing = {trait for one in others for trait in traits(one)}
    always = []
    while missing:
        best = max(others, key=lambda one: len(missing & set(traits(one))))
        missing -= set(traits(best))
        others.remove(best)
        always.append(best)
    return always, others


def either(always: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Parameters: those that always run, and those that are marked ``slow``."""
    return [*always, *(pytest.param(one, marks=pytest.mark.slow) for one in others)]
