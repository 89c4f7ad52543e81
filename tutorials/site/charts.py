"""Bar charts as SVG."""

from __future__ import annotations

from collections.abc import Sequence

from tutorials.site.svg import Drawing

_ROW, _LABELS, _BARS, _TOP = 22, 250, 420, 42


def bars(rows: Sequence[tuple[str, float]], title: str) -> str:
    """Horizontal bars with a line at 1.

    Parameters
    ----------
    rows : sequence of (str, float)
        Labels, and values of at least 0.
    title : str

    Returns
    -------
    str
        An SVG picture.

    Examples
    --------
    >>> bars([("4096 x 4096 x 4096", 1.02)], "Speed").count("<rect")
    2
    """
    largest = max([1.0, *(value for _, value in rows)]) * 1.08
    scale = _BARS / largest
    drawing = Drawing(_LABELS + _BARS + 60, _TOP + _ROW * len(rows) + 12, title)
    drawing.text(8, 20, title, "title")
    line = f"M{_LABELS + scale:.1f} {_TOP - 6}V{drawing.height - 6}"
    drawing.parts.append(f'<path class="line dash" d="{line}"/>')
    for index, (label, value) in enumerate(rows):
        y = _TOP + _ROW * index
        kind = "faster" if value >= 1 else "slower"
        drawing.text(_LABELS - 8, y + 12, label, "end small")
        drawing.parts.append(
            f'<rect class="{kind}" x="{_LABELS}" y="{y}" width="{value * scale:.1f}" height="16"/>'
        )
        drawing.text(round(_LABELS + value * scale + 5, 1), y + 12, f"{value:.3f}", "small halo")
    return drawing.svg()
