"""A timeline as a picture: a row for each stream, a bar for each span.

Bars have their words in them where there is room. Waits are hatched, since nothing happens in
them; an arrow leads to the end of a wait from the end of the span that another role had to
finish for it. Where most bars are too narrow, a second panel shows the beginning, enlarged.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from warploom.pictures import Line, Picture, Rect, Words
from warploom.pictures.chart import Axis
from warploom.pictures.palette import BLUE, GREEN, GREY, INK, PINK, RED, RULE, WHITE, YELLOW, ink_on
from warploom.pictures.shapes import LARGE, SMALL, TINY, fitted, text_width
from warploom.profile.arrows import Arrow, arrows_of
from warploom.profile.span_kinds import CATEGORIES, COMPUTE, EPILOGUE, LOAD, MMA, WAIT

if TYPE_CHECKING:
    from warploom.profile.streams import Span, Stream, Streams

_COLOURS = {WAIT: WHITE, LOAD: BLUE, MMA: RED, COMPUTE: GREEN, EPILOGUE: YELLOW}
_MEANS = {
    WAIT: "waits", LOAD: "starts loads", MMA: "MMAs under way", COMPUTE: "works on registers",
    EPILOGUE: "epilogue",
}  # fmt: skip
_OTHER = PINK
#: Pixels: of the picture, of names on the left and shares on the right, of rows and their bars,
#: of a CTA's heading, of the axis below a panel.
_WIDTH, _LEFT, _RIGHT, _ROW, _BAR, _HEADING, _BELOW = 1200, 112, 118, 30, 20, 24, 62
#: Bars of MMAs that are narrower are shown enlarged, so many of a stream.
_NARROW, _SHOWN = 30.0, 10
#: Most arrows of a panel.
_MOST_ARROWS = 60


def draw(timeline: Streams, ctas: int = 2, until: float | None = None) -> Picture:
    """The picture.

    Parameters
    ----------
    timeline : Streams
    ctas : int
        CTAs that are shown: the first ones that multiplied, loaded or computed something.
    until : float, optional
        End of the time axis, in the timeline's unit; where the last span ends without it.
    """
    shown = sorted(timeline.busy_ctas or {stream.cta for stream in timeline.streams})[:ctas]
    rows = [stream for stream in timeline.streams if stream.cta in shown]
    spans = [span for row in rows for span in row.spans]
    end = until if until is not None else max((span.end for span in spans), default=1.0)
    name = timeline.subject.kernel or "a kernel"
    made = Picture(_WIDTH, 0, f"timeline of {name}")
    title = fitted(f"Timeline of {name}", _WIDTH - 28, LARGE)
    made.add(Words(14, 22, title, size=LARGE, bold=True))
    made.add(Words(14, 43, fitted(_about(timeline, shown), _WIDTH - 28), GREY))
    _legend(made, 66, spans)
    top, arrows = 88.0, arrows_of(timeline, shown)
    panel = _Panel(made, timeline, rows, 0.0, end)
    part = None if until is not None else _enlarged(rows, end)
    top = panel.draw(top, "", [] if part else arrows)
    if part is not None:
        near = _Panel(made, timeline, rows, *part)
        words = f"The same from {part[0]:,.0f} to {part[1]:,.0f}, enlarged"
        top = near.draw(top + 26, words, arrows)
    made.height = top
    return made


def _about(timeline: Streams, shown: Sequence[int]) -> str:
    count = len(timeline.busy_ctas) or len({stream.cta for stream in timeline.streams})
    ctas = f"{len(shown)} of {count} recorded CTAs" if len(shown) < count else f"{count} CTAs"
    place = "run by the emulator, which counts instructions and no time" if timeline.emulated else (
        f"{timeline.length / 1000:,.1f} us in all, clock {timeline.gigahertz:.2f} GHz"
    )  # fmt: skip
    return "   ·   ".join([", ".join(timeline.subject.parameters) or "its arguments", ctas, place])


def _legend(made: Picture, y: float, spans: Sequence[Span]) -> None:
    x, seen = 14.0, {span.category for span in spans}
    for category in [*(c for c in CATEGORIES if c in seen), *sorted(seen - {*CATEGORIES})]:
        made.add(_box(category, x, y - 6, 20, 12))
        words = _MEANS.get(category, category)
        made.add(Words(x + 26, y, words))
        x += 26 + text_width(words) + 24
    if WAIT in seen:
        made.add(Line(((x, y), (x + 24, y)), INK, arrow=True))
        made.add(Words(x + 30, y, "ends a wait of another role"))


def _box(category: str, x: float, y: float, width: float, height: float, tip: str = "") -> Rect:
    colour = _COLOURS.get(category, _OTHER)
    waits = category == WAIT
    edge = RULE if waits else WHITE if width > 3 else ""
    return Rect(x, y, width, height, colour, edge, hatch=waits, tip=tip)


def _enlarged(rows: Sequence[Stream], end: float) -> tuple[float, float] | None:
    """The part of the time that a second panel shows; None if bars are wide enough."""
    work = [[span for span in row.spans if span.category in (MMA, COMPUTE)] for row in rows]
    steps = max(work, key=len, default=[]) or max((list(row.spans) for row in rows), key=len)
    lengths = [span.length for span in steps]
    scale = (_WIDTH - _LEFT - _RIGHT) / (end or 1.0)
    if len(steps) < _SHOWN or statistics.median(lengths) * scale >= _NARROW:
        return None
    first, last = steps[0].begin, steps[_SHOWN - 1].end
    begin = max(first - 0.1 * (last - first), 0.0)
    return (begin, last) if last - begin < 0.6 * end else None


class _Panel:
    """Rows of streams over one part of the time."""

    def __init__(
        self, made: Picture, timeline: Streams, rows: Sequence[Stream], begin: float, end: float
    ) -> None:
        self.made, self.timeline, self.rows = made, timeline, rows
        self.begin, self.end = begin, end
        self.scale = (_WIDTH - _LEFT - _RIGHT) / ((end - begin) or 1.0)
        #: The middle of each stream's row.
        self.middle: dict[tuple[int, str], float] = {}

    def x(self, time: float) -> float:
        return _LEFT + (min(max(time, self.begin), self.end) - self.begin) * self.scale

    def draw(self, top: float, title: str, arrows: Sequence[Arrow]) -> float:
        """Add it below ``top``; return where it ends."""
        if title:
            self.made.add(Words(14, top, title, size=SMALL + 1, bold=True))
            top += 16
        first, cta = top, None
        for row in self.rows:
            if row.cta != cta:
                cta = row.cta
                heading = f"CTA {cta}" + ("" if self.timeline.emulated else f" on SM {row.sm}")
                self.made.add(Words(14, top + _HEADING / 2, heading, GREY, bold=True))
                top += _HEADING
            self.middle[row.cta, row.name] = top + _ROW / 2
            top += _ROW
        self._axis(first, top)
        for row in self.rows:
            self._row(row)
        self._arrows(arrows)
        return top + _BELOW

    def _axis(self, top: float, bottom: float) -> None:
        micro = not self.timeline.emulated and self.end - self.begin >= 5000
        unit, label = (1000.0, "us") if micro else (1.0, "ns")
        label = "instructions of the emulator" if self.timeline.emulated else label
        axis = Axis(label, self.begin / unit, self.end / unit)
        for value in axis.ticks():
            x = self.x(value * unit)
            self.made.add(Line(((x, top), (x, bottom + 4)), RULE, 0.6))
            self.made.add(Words(x, bottom + 14, f"{value:,g}", GREY, "middle"))
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        self.made.add(Words(middle, bottom + 34, label, GREY, "middle"))

    def _row(self, row: Stream) -> None:
        y = self.middle[row.cta, row.name]
        self.made.add(Words(_LEFT - 10, y, row.name, anchor="end"))
        lived = (self.x(row.begin), y), (self.x(row.recorded_until), y)
        self.made.add(Line(lived, GREY, 1.0))
        for span in sorted(row.spans, key=lambda span: (span.begin, -span.end)):
            if span.end < self.begin or span.begin > self.end:
                continue
            left, right = self.x(span.begin), self.x(span.end)
            width = max(right - left, 0.8)
            tip = f"{span.name}: {span.begin:,.0f} to {span.end:,.0f}"
            self.made.add(_box(span.category, left, y - _BAR / 2, width, _BAR, tip))
            words = _fitting(self._words(span), width - 8)
            if not words:
                continue
            middle, size = left + width / 2, TINY + 0.5
            if span.category == WAIT:  # letters are readable on hatches only with a ground
                room = text_width(words, size) + 6
                self.made.add(Rect(middle - room / 2, y - 7, room, 14, WHITE))
            colour = ink_on(_COLOURS.get(span.category, _OTHER))
            self.made.add(Words(middle, y, words, colour, "middle", size))
        waited = _share(row)
        if waited is not None:
            self.made.add(Words(_WIDTH - _RIGHT + 12, y, f"waits {100 * waited:.0f} %", GREY))

    def _words(self, span: Span) -> tuple[str, ...]:
        """What may stand in a bar, the longest first."""
        if span.category != WAIT:
            return (span.name, span.category)
        barrier = span.name.removeprefix("wait").strip()
        for_whom = ", ".join(self.timeline.subject.suppliers.get(barrier, ()))
        if not for_whom:
            return (span.name, "waits")
        return (f"waits for {for_whom} ({barrier})", f"waits for {for_whom}", "waits")

    def _arrows(self, arrows: Sequence[Arrow]) -> None:
        inside = [
            one for one in arrows
            if self.begin <= one.begin and one.end <= self.end
            and (one.waited * self.scale >= 5 or one.end - one.begin >= 2)
        ]  # fmt: skip
        inside = sorted(inside, key=lambda one: -one.waited)[:_MOST_ARROWS]
        for one in inside:
            ys = [self.middle[one.cta, name] for name in (one.source, one.target)]
            down = 1 if ys[1] > ys[0] else -1
            points = (
                (self.x(one.begin), ys[0] + down * _BAR / 2),
                (self.x(one.end), ys[1] - down * _BAR / 2),
            )
            self.made.add(Line(points, INK, 0.9, arrow=True))


def _fitting(texts: Sequence[str], width: float) -> str:
    return next((text for text in texts if text_width(text, TINY + 0.5) <= width), "")


def _share(row: Stream) -> float | None:
    """The part of its recorded time that a stream waits; None without spans."""
    whole = row.recorded_until - row.begin
    if not row.spans or whole <= 0:
        return None
    return sum(span.length for span in row.spans if span.category == WAIT) / whole
