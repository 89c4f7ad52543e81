"""The result of a run on the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LaunchReport:
    """The counts of one launch on the emulator.

    ``counts`` nests groups (instructions, bytes, bank conflicts, waits, tensor-core work, ...);
    ``str()`` is a table of them.

    Examples
    --------
    >>> result = emulator.run(program, [a, b, c], report=True)  # doctest: +SKIP
    >>> print(result.launches[0])  # doctest: +SKIP
    """

    counts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The counts, as JSON can hold them."""
        return self.counts

    def __str__(self) -> str:
        rows = list(_rows(self.counts))
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(f"{name:{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        cells = (
            f"<td>{escape(name)}</td><td>{escape(value)}</td>" for name, value in _rows(self.counts)
        )
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


@dataclass(frozen=True)
class Result:
    """Outcome of :func:`warploom.emulator.run`.

    Attributes
    ----------
    outputs : tuple of numpy.ndarray
        Every array among the arguments, in order, with its contents after the run.
    launches : tuple of LaunchReport
        One for each launch, if ``report=True``; with several schedules, one for each of them.
    exploration : dict
        If several schedules were executed: how many, and whether they were all there are.

    Examples
    --------
    >>> result = emulator.run(program, [a, b, np.full_like(c, np.nan)])  # doctest: +SKIP
    >>> np.testing.assert_allclose(result.outputs[-1], expected)  # doctest: +SKIP
    """

    outputs: tuple[np.ndarray, ...]
    launches: tuple[LaunchReport, ...] = ()
    exploration: dict[str, Any] | None = None

    @property
    def report(self) -> LaunchReport | None:
        """The report of the first launch; None if none was asked for."""
        return self.launches[0] if self.launches else None


#: Lists that are written as a shape.
_SHAPES = ("grid", "block", "cluster")


def _rows(counts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in counts.items():
        label = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, dict):
            yield from _rows(value, f"{label}: ")
        elif isinstance(value, list) and any(isinstance(row, dict) for row in value):
            for row in value:
                yield label, ", ".join(f"{k} {_number(v)}" for k, v in row.items())
        elif isinstance(value, list) and value:
            yield label, (" x " if name in _SHAPES else ", ").join(map(_number, value))
        elif value not in ("", []):
            yield label, _number(value)


def _number(value: Any) -> str:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_count else str(value)
