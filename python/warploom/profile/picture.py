"""A timeline as a picture: a row for each stream, a bar for each span."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from warploom import plotting
from warploom.profile.span_kinds import CATEGORIES

if TYPE_CHECKING:
    from warploom.profile.streams import Streams

#: Colours of the categories, told apart by everyone (Okabe and Ito).
_COLOURS = dict(
    zip(CATEGORIES, ("#bbbbbb", "#0072b2", "#d55e00", "#009e73", "#f0e442"), strict=True)
)
_OTHER = "#cc79a7"
_INCHES_A_ROW, _WIDTH = 0.35, 14


def draw(timeline: Streams, pyplot: Any, ctas: int = 2, until: float | None = None) -> Any:
    """The figure.

    Parameters
    ----------
    timeline : Streams
    pyplot : module
        ``matplotlib.pyplot``.
    ctas : int
        CTAs that are shown: the first ones that multiplied, loaded or computed something.
    until : float, optional
        End of the time axis, in the timeline's unit; where the last span ends without it.

    Returns
    -------
    matplotlib.figure.Figure
    """
    shown = sorted(timeline.busy_ctas or {stream.cta for stream in timeline.streams})[:ctas]
    rows = [stream for stream in timeline.streams if stream.cta in shown]
    figure, axes = pyplot.subplots(figsize=(_WIDTH, 1.2 + _INCHES_A_ROW * len(rows)))
    seen: dict[str, Any] = {}
    for number, stream in enumerate(rows):
        for category in dict.fromkeys(span.category for span in stream.spans):
            bars = [(s.begin, s.length) for s in stream.spans if s.category == category]
            colour = _COLOURS.get(category, _OTHER)
            seen[category] = axes.broken_barh(bars, (number - 0.4, 0.8), facecolors=colour)
    ends = [span.end for row in rows for span in row.spans]
    axes.set_xlim(0, until if until is not None else max(ends, default=1.0))
    axes.set_yticks(range(len(rows)), [f"CTA {row.cta}: {row.name}" for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("instructions of the emulator" if timeline.emulated else "ns")
    names = list(dict.fromkeys(category for category in (*CATEGORIES, *seen) if category in seen))
    place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": max(1, len(names))}
    axes.legend([seen[name] for name in names], names, **place)
    figure.tight_layout()
    return figure


def write_picture(timeline: Streams, path: Path, ctas: int = 2, until: float | None = None) -> None:
    """Write :func:`draw` as PNG.

    Raises
    ------
    WarploomError
        If matplotlib is not installed.
    """
    pyplot = plotting.pyplot()
    figure = draw(timeline, pyplot, ctas, until)
    figure.savefig(path, dpi=120, format="png")
    pyplot.close(figure)
