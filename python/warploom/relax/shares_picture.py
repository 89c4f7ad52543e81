"""The shares of a model's kernels as a picture: a bar for each, coloured by who computes it.

A picture is a list of rectangles and words. An SVG is written as it is; a PNG is drawn by
matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from warploom import plotting
from warploom.relax.shares_table import number, percent
from warploom.relax.time_shares import KINDS, ROWS, TVM, WGMMA, FunctionShares, KernelShare

#: Colours of the kinds, told apart by everyone (Okabe and Ito), and what legends call them.
COLOURS = {WGMMA: "#0072b2", ROWS: "#009e73", TVM: "#d55e00"}
_WORDS = {WGMMA: "tensor cores (wgmma)", ROWS: "rows and copies", TVM: "left to TVM"}
_GREY, _INK, _FAINT, _WHITE = "#767676", "#222222", "#ededed", "#ffffff"
#: Kernels of a function that have bars of their own, and characters of a name.
_MOST, _LETTERS = 12, 36
#: Pixels: of the picture and its margins; where bars begin and end, and where shares, times and
#: calls end; from bar to bar, and of a bar; of a title, and of the strip of kinds below it.
_WIDTH, _MARGIN = 920, 16
_BEGIN, _END, _NUMBERS = 280, 680, (736, 838, 904)
_STEP, _BAR, _TITLE, _STRIP = 26, 18, 40, 26
#: Sizes of letters, and what a letter is wide, at most.
_LARGE, _SMALL, _LETTER = 15, 12, 7


@dataclass(frozen=True)
class Rect:
    """A filled rectangle; pixels from the top left corner."""

    x: float
    y: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True)
class Words:
    """A line of text, ``y`` its middle; ``anchor`` says which end ``x`` is, or the middle."""

    x: float
    y: float
    text: str
    colour: str = _INK
    anchor: str = "start"
    size: int = _SMALL
    bold: bool = False


@dataclass
class Picture:
    """Rectangles and words, the later ones in front."""

    height: float = 0.0
    rects: list[Rect] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)


def draw(functions: Sequence[FunctionShares], gpu: str) -> Picture:
    """For each function a strip of the kinds, and its kernels below, the longest first.

    Parameters
    ----------
    functions : sequence of FunctionShares
    gpu : str
        The GPU that was modelled.
    """
    made, top = Picture(), 8.0
    for shares in functions:
        top = _panel(made, top, shares) + 12
    left = float(_MARGIN)
    for kind in KINDS:
        if any(one.total("calls", kind) for one in functions):
            made.rects.append(Rect(left, top + 8, 12, 12, COLOURS[kind]))
            made.words.append(Words(left + 18, top + 14, _WORDS[kind]))
            left += 18 + _LETTER * len(_WORDS[kind]) + 24
    made.words.append(
        Words(_WIDTH - _MARGIN, top + 14, f"modelled on {gpu}, not measured", _GREY, "end")
    )
    made.height = top + 32
    return made


def svg(picture: Picture) -> str:
    """The text of an SVG file."""
    height = f"{picture.height:g}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="{_SMALL}" fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="{_WHITE}"/>',
    ]
    lines += [
        f'<rect x="{one.x:.1f}" y="{one.y:g}" width="{one.width:.1f}" height="{one.height:g}" '
        f'fill="{one.colour}"/>'
        for one in picture.rects
    ]
    for one in picture.words:
        more = "" if one.colour == _INK else f' fill="{one.colour}"'
        more += "" if one.anchor == "start" else f' text-anchor="{one.anchor}"'
        more += "" if one.size == _SMALL else f' font-size="{one.size}"'
        more += ' font-weight="bold"' if one.bold else ""
        baseline = one.y + 0.35 * one.size
        lines.append(f'<text x="{one.x:.1f}" y="{baseline:.1f}"{more}>{escape(one.text)}</text>')
    return "\n".join([*lines, "</svg>\n"])


def write_svg(functions: Sequence[FunctionShares], gpu: str, path: Path) -> None:
    """Write :func:`draw` as SVG."""
    path.write_text(svg(draw(functions, gpu)), encoding="utf-8")


def write_png(functions: Sequence[FunctionShares], gpu: str, path: Path) -> None:
    """Write :func:`draw` as PNG, twice as many pixels.

    Raises
    ------
    WarploomError
        If matplotlib is not installed.
    """
    pyplot = plotting.pyplot()
    picture, inch = draw(functions, gpu), 100
    figure = pyplot.figure(figsize=(_WIDTH / inch, picture.height / inch))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, _WIDTH), ylim=(picture.height, 0))
    axes.axis("off")
    for one in picture.rects:
        axes.add_patch(
            pyplot.Rectangle((one.x, one.y), one.width, one.height, color=one.colour, linewidth=0)
        )
    ends = {"start": "left", "middle": "center", "end": "right"}
    for one in picture.words:
        axes.text(
            one.x, one.y, one.text, color=one.colour, ha=ends[one.anchor], va="center_baseline",
            fontsize=0.72 * one.size * 0.95, fontweight="bold" if one.bold else "normal",
            parse_math=False,
        )  # fmt: skip
    figure.savefig(path, dpi=2 * inch, format="png", facecolor=_WHITE)
    pyplot.close(figure)


def _panel(made: Picture, top: float, shares: FunctionShares) -> float:
    """Add a function below ``top``; return where it ends."""
    total, bars = shares.total("time"), _bars(shares)
    sizes = ", ".join(f"{name} = {size}" for name, size in shares.sizes.items())
    title = f"{shares.name}: {number(total)} µs" + (f"  ({sizes})" if sizes else "")
    made.words.append(Words(_MARGIN, top + _TITLE / 2, title, size=_LARGE, bold=True))
    top += _TITLE - 4
    _strip(made, top, shares)
    top += _STRIP + 12
    longest = max((sum(one.time for one in kernels) for _, kernels in bars), default=0) or 1.0
    for name, kernels in bars:
        middle = top + _BAR / 2
        made.rects.append(Rect(_BEGIN, top, _END - _BEGIN, _BAR, _FAINT))
        _stack(made, _BEGIN, top, (_END - _BEGIN) / longest, _BAR, kernels)
        time = sum(one.time for one in kernels)
        colour = COLOURS[TVM] if all(one.kind == TVM for one in kernels) else _INK
        short = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"
        at_least = "≥ " if any(one.at_least for one in kernels) else ""
        calls = f"{sum(one.calls for one in kernels)} x"
        texts = short, percent(time / total if total else 0), f"{at_least}{number(time)} µs", calls
        for right, text in zip((_BEGIN - 8, *_NUMBERS), texts, strict=True):
            made.words.append(Words(right, middle, text, colour, "end"))
        top += _STEP
    return top


def _stack(
    made: Picture, x: float, y: float, scale: float, height: float, kernels: Sequence[KernelShare]
) -> None:
    """Add the times of kernels beside each other, by kind."""
    for kind in KINDS:
        width = scale * sum(one.time for one in kernels if one.kind == kind)
        if width:
            made.rects.append(Rect(x, y, width, height, COLOURS[kind]))
        x += width


def _strip(made: Picture, top: float, shares: FunctionShares) -> None:
    """One bar of the whole time, by kind, with names where they have room."""
    width, x = _WIDTH - 2 * _MARGIN, float(_MARGIN)
    total = shares.total("time") or 1.0
    _stack(made, x, top, width / total, _STRIP, shares.kernels)
    for kind in KINDS:
        part = shares.share("time", kind)
        texts = f"{_WORDS[kind]} {percent(part)}", percent(part), ""
        text = next(one for one in texts if _LETTER * len(one) + 16 <= part * width or not one)
        if text:
            made.words.append(Words(x + 8, top + _STRIP / 2, text, _WHITE))
        x += part * width


def _bars(shares: FunctionShares) -> list[tuple[str, list[KernelShare]]]:
    """A name for each bar, and its kernels; the last bar may have all the small ones."""
    shown = [(one.name, [one]) for one in shares.kernels]
    if len(shown) <= _MOST:
        return shown
    rest = list(shares.kernels[_MOST - 1 :])
    return [*shown[: _MOST - 1], (f"{len(rest)} others", rest)]
