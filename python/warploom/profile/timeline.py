"""Spans of a launch, decoded from its records."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np

from warploom.errors import WarploomError
from warploom.pictures import Picture, svg, write
from warploom.profile.groups import Group
from warploom.profile.picture import draw
from warploom.profile.recording import HEADER_ROWS, ROW_BITS
from warploom.profile.streams import Span, Stream, Streams, Subject
from warploom.profile.trace import write_trace

_LOW = 0xFFFFFFFF


class Timeline(Streams):
    """All streams of a launch; with the attributes of :class:`Streams`, to be written and drawn.

    Examples
    --------
    >>> timeline = profile.instrument(program).emulate([a, b, c])  # doctest: +SKIP
    >>> timeline.write("trace.json")  # doctest: +SKIP
    >>> timeline.plot("timeline.png")  # doctest: +SKIP
    """

    def write(self, path: str | Path) -> None:
        """Write a trace that Perfetto and chrome://tracing load (:mod:`warploom.profile.trace`)."""
        write_trace(self, Path(path))

    def plot(self, path: str | Path, ctas: int = 2, until: float | None = None) -> None:
        """Write :meth:`picture` as SVG or PNG, by the suffix of the file.

        Raises
        ------
        WarploomError
            If the suffix is another one; or matplotlib is not installed, for PNG.
        """
        write(self.picture(ctas, until), path)

    def picture(self, ctas: int = 2, until: float | None = None) -> Picture:
        """A picture; arguments are those of :func:`warploom.profile.picture.draw`."""
        return draw(self, ctas, until)

    def _repr_html_(self) -> str:
        return f"<div>{svg(self.picture())}<pre>{escape(self.summary())}</pre></div>"


def decode(
    records: np.ndarray, streams: Sequence[str], groups: Sequence[Group], capacity: int,
    emulated: bool, subject: Subject | None = None,
) -> Timeline:  # fmt: skip
    """The timeline that a matrix of records holds (:mod:`warploom.profile.recording`).

    ``streams`` are names of the streams of a CTA, ``groups`` the meaning of records; ``capacity``
    is that of the recording; ``subject`` says what was recorded.

    Raises
    ------
    WarploomError
        If no stream has begun and ended: the kernel has not run, or not to its end.
    """
    words = records.astype(np.uint64, copy=False)
    low, high = (words & _LOW).astype(np.int64), (words >> np.uint64(32)).astype(np.int64)
    used = [c for c in range(words.shape[1]) if high[1, c] and words[2, c]]
    if not used:
        raise WarploomError(
            "The timeline has no record; run the kernel to its end before its records are read."
        )
    clocks = {c: int(low[3, c] - low[1, c]) % (1 << 32) for c in used}
    times = {c: int(words[2, c] - words[0, c]) for c in used}
    gigahertz = 1.0
    if not emulated:
        gigahertz = _gigahertz([clocks[c] for c in used], [times[c] for c in used])
    first = min(int(words[0, c]) for c in used)
    decoded = []
    for column in used:
        begin = int(words[0, column]) - first
        start = int(low[1, column])
        count = int(high[3, column]) & ((1 << ROW_BITS) - 1)
        rows = slice(HEADER_ROWS, HEADER_ROWS + count)
        recorded = np.stack([low[rows, column], high[rows, column]], axis=1).ravel().tolist()

        def at(clock: int, begin: int = begin, start: int = start) -> float:
            return begin + (clock - start) % (1 << 32) / gigahertz

        spans = tuple(
            Span(span.name, span.category, at(clocks_of_it[span.begin]), at(clocks_of_it[span.end]))
            for group, clocks_of_it in _split(recorded, groups)
            for span in group.spans
        )
        decoded.append(
            Stream(
                streams[column % len(streams)],
                int(high[1, column]) - 1,
                int(high[3, column] >> ROW_BITS),
                float(begin),
                begin + clocks[column] / gigahertz,
                spans[:capacity],
                len(spans) >= capacity,
            )
        )
    return Timeline(tuple(decoded), gigahertz, emulated, subject or Subject())


def _split(words: list[int], groups: Sequence[Group]) -> Iterator[tuple[Group, list[int]]]:
    """The groups of a stream and the clocks of each."""
    at = 0
    while at < len(words):
        group = groups[words[at]]
        yield group, words[at + 1 : at + 1 + group.clocks]
        at += 2 * group.rows


def _gigahertz(clocks: Sequence[int], nanoseconds: Sequence[int]) -> float:
    """Clocks in a nanosecond: the timer ticks seldom, so the longest streams tell it best."""
    longest = max(nanoseconds)
    rates = [c / t for c, t in zip(clocks, nanoseconds, strict=True) if t and 2 * t >= longest]
    return statistics.median(rates) if rates else 1.0
