"""What ended each wait of a timeline: the span of another role that had to end first."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warploom.profile.span_kinds import WAIT

if TYPE_CHECKING:
    from warploom.profile.streams import Stream, Streams


#: How far behind a wait, in terms of its length, the span may end that has ended it.
_BEHIND = 0.05


@dataclass(frozen=True)
class Arrow:
    """A wait and what ended it.

    Attributes
    ----------
    cta : int
    source, target : str
        Streams: of what ended the wait, and of the wait.
    begin, end : float
        The end of the span that it waited for, and that of the wait.
    waited : float
        How long the wait was.
    """

    cta: int
    source: str
    target: str
    begin: float
    end: float
    waited: float


def arrows_of(timeline: Streams, ctas: Sequence[int]) -> list[Arrow]:
    """An arrow for each wait whose end a span of the same CTA explains.

    It is the span of a role that completes the barrier's phases whose end is nearest to that of the
    wait: in the wait, or a moment after it, since a span ends behind its arrival. A wait that found
    its phase complete has none: nobody waited.
    """
    found = []
    for cta in ctas:
        streams = [stream for stream in timeline.streams if stream.cta == cta]
        ends = {stream.name: _ends(stream) for stream in streams}
        for stream in streams:
            for span in stream.spans:
                barrier = span.name.removeprefix(WAIT).strip()
                roles = timeline.subject.suppliers.get(barrier, ())
                if span.category != WAIT or not roles:
                    continue
                near = [
                    (abs(time - span.end), time, other.name) for other in streams
                    if other.role in roles and other.name != stream.name
                    for time in _around(ends[other.name], span.end)
                    if span.begin <= time <= span.end + _BEHIND * span.length
                ]  # fmt: skip
                if near:
                    _, time, source = min(near)
                    begin = min(time, span.end)
                    found.append(Arrow(cta, source, stream.name, begin, span.end, span.length))
    return found


def _ends(stream: Stream) -> list[float]:
    return sorted(span.end for span in stream.spans if span.category != WAIT)


def _around(ends: Sequence[float], time: float) -> Sequence[float]:
    """The neighbours of a time among sorted ones."""
    place = bisect.bisect_right(ends, time)
    return ends[max(place - 1, 0) : place + 1]
