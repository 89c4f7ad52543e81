"""Spans of a launch, decoded from its records."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from warploom.errors import WarploomError
from warploom.profile.groups import Group
from warploom.profile.recording import HEADER_ROWS, ROW_BITS

_LOW = 0xFFFFFFFF


@dataclass(frozen=True)
class Span:
    """One span.

    Attributes
    ----------
    name, category : str
    begin, end : float
        Nanoseconds since the first begin of any recorded stream; instructions on the emulator.
    """

    name: str
    category: str
    begin: float
    end: float

    @property
    def length(self) -> float:
        """``end - begin``."""
        return self.end - self.begin


@dataclass(frozen=True)
class Stream:
    """What one thread of a CTA has recorded.

    Attributes
    ----------
    name : str
        Its role.
    cta, sm : int
        The number of its CTA in the grid, and of the multiprocessor that it ran on.
    begin, end : float
        As those of a span.
    spans : tuple of Span
        In the order of their ends.
    full : bool
        Whether there was no room for further spans.
    """

    name: str
    cta: int
    sm: int
    begin: float
    end: float
    spans: tuple[Span, ...]
    full: bool

    @property
    def recorded_until(self) -> float:
        """The time up to which spans are known."""
        return max((one.end for one in self.spans), default=self.begin) if self.full else self.end


@dataclass(frozen=True)
class Timeline:
    """All streams of a launch.

    Attributes
    ----------
    streams : tuple of Stream
        By CTA, then in the order of the roles.
    gigahertz : float
        Clocks in a nanosecond, as the records tell; 1 on the emulator.
    emulated : bool
        Whether times are instructions of the emulator, which counts those of each cluster.
    """

    streams: tuple[Stream, ...]
    gigahertz: float
    emulated: bool = False

    @property
    def length(self) -> float:
        """Nanoseconds from the first begin to the last end."""
        return max(one.end for one in self.streams)

    @property
    def busy_ctas(self) -> set[int]:
        """The recorded CTAs that have a span."""
        return {one.cta for one in self.streams if one.spans}

    def shares(self) -> dict[str, dict[str, float]]:
        """For each role the part of its recorded time that it spends in spans of each category.

        Spans within others count once; warpgroups of a role count together. CTAs that found
        nothing to do are left out, and roles (or warps) without a span.
        """
        spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        total: dict[str, float] = defaultdict(float)
        busy = self.busy_ctas
        for stream in self.streams:
            if stream.cta not in busy:
                continue
            role = stream.name if stream.name.startswith("warp ") else stream.name.split()[0]
            total[role] += stream.recorded_until - stream.begin
            for span in outermost(stream.spans):
                spent[role][span.category] += span.length
        return {
            role: {kind: time / total[role] for kind, time in spent[role].items()}
            for role in total if spent[role]
        }  # fmt: skip

    def summary(self) -> str:
        """The shares as a table, and what was recorded."""
        shares = self.shares()
        names = list(dict.fromkeys(kind for one in shares.values() for kind in one))
        width = max(map(len, [*shares, "role"]))
        lines = [f"{'role':{width}}  " + "  ".join(f"{name:>8}" for name in names)]
        for role, parts in shares.items():
            cells = [f"{100 * parts.get(name, 0.0):6.1f} %" for name in names]
            lines.append(f"{role:{width}}  " + "  ".join(cells))
        spans = sum(len(one.spans) for one in self.streams)
        full = sum(one.full for one in self.streams)
        rest = f"; {full} streams have recorded their beginning only" if full else ""
        lines.append(f"{spans} spans of {len(self.busy_ctas)} CTAs{rest}")
        return "\n".join(lines)

    def write(self, path: str | Path) -> None:
        """Write a trace that Perfetto and chrome://tracing load (:mod:`warploom.profile.trace`)."""
        from warploom.profile.trace import write_trace

        write_trace(self, Path(path))

    def plot(self, path: str | Path, ctas: int = 2, until: float | None = None) -> None:
        """Write a picture as PNG; :func:`warploom.profile.picture.write_picture`."""
        from warploom.profile.picture import write_picture

        write_picture(self, Path(path), ctas, until)


def outermost(spans: Sequence[Span]) -> list[Span]:
    """The spans that are in no other one."""
    found: list[Span] = []
    for one in sorted(spans, key=lambda one: (one.begin, -one.end)):
        if not found or one.begin >= found[-1].end:
            found.append(one)
    return found


def decode(
    records: np.ndarray, streams: Sequence[str], groups: Sequence[Group], capacity: int,
    emulated: bool,
) -> Timeline:  # fmt: skip
    """The timeline that a matrix of records holds (:mod:`warploom.profile.recording`).

    ``streams`` are names of the streams of a CTA, ``groups`` the meaning of records; ``capacity``
    is that of the recording.

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
    found = []
    for column in used:
        begin = int(words[0, column]) - first
        start = int(low[1, column])
        count = int(high[3, column]) & ((1 << ROW_BITS) - 1)
        rows = slice(HEADER_ROWS, HEADER_ROWS + count)
        recorded = np.stack([low[rows, column], high[rows, column]], axis=1).ravel().tolist()

        def at(clock: int, begin: int = begin, start: int = start) -> float:
            return begin + (clock - start) % (1 << 32) / gigahertz

        spans = tuple(
            Span(one.name, one.category, at(clocks_of_it[one.begin]), at(clocks_of_it[one.end]))
            for group, clocks_of_it in _split(recorded, groups)
            for one in group.spans
        )
        found.append(
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
    return Timeline(tuple(found), gigahertz, emulated)


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
