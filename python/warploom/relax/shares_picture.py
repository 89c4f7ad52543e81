"""The shares of a model's kernels as a picture: a bar for each, coloured by who computes it."""

from __future__ import annotations

from collections.abc import Sequence

from warploom.pictures import Picture, Rect, Words
from warploom.pictures.palette import BLUE, FAINT, GREEN, GREY, INK, RED, WHITE
from warploom.pictures.shapes import LARGE
from warploom.relax.shares_table import number, percent
from warploom.relax.time_shares import KINDS, ROWS, TVM, WGMMA, FunctionShares, KernelShare

#: Colours of the kinds, and what legends call them.
COLOURS = {WGMMA: BLUE, ROWS: GREEN, TVM: RED}
_WORDS = {WGMMA: "tensor cores (wgmma)", ROWS: "rows and copies", TVM: "left to TVM"}
#: Kernels of a function that have bars of their own, and characters of a name.
_MOST, _LETTERS = 12, 36
#: Pixels: of the picture and its margins; where bars begin and end, and where shares, times and
#: calls end; from bar to bar, and of a bar; of a title, and of the strip of kinds below it.
_WIDTH, _MARGIN = 920, 16
_BEGIN, _END, _NUMBERS = 280, 680, (736, 838, 904)
_STEP, _BAR, _TITLE, _STRIP = 26, 18, 40, 26
#: What a letter is wide, at most.
_LETTER = 7


def draw(functions: Sequence[FunctionShares], gpu: str) -> Picture:
    """For each function a strip of the kinds, and its kernels below, the longest first.

    Parameters
    ----------
    functions : sequence of FunctionShares
    gpu : str
        The GPU that was modelled.
    """
    made, top = Picture(_WIDTH), 8.0
    for shares in functions:
        top = _panel(made, top, shares) + 12
    left = float(_MARGIN)
    for kind in KINDS:
        if any(one.total("calls", kind) for one in functions):
            made.add(Rect(left, top + 8, 12, 12, COLOURS[kind]))
            made.add(Words(left + 18, top + 14, _WORDS[kind]))
            left += 18 + _LETTER * len(_WORDS[kind]) + 24
    made.add(
        Words(_WIDTH - _MARGIN, top + 14, f"modelled on {gpu}, not measured", GREY, "end")
    )
    made.height = top + 32
    return made


def _panel(made: Picture, top: float, shares: FunctionShares) -> float:
    """Add a function below ``top``; return where it ends."""
    total, bars = shares.total("time"), _bars(shares)
    sizes = ", ".join(f"{name} = {size}" for name, size in shares.sizes.items())
    title = f"{shares.name}: {number(total)} µs" + (f"  ({sizes})" if sizes else "")
    made.add(Words(_MARGIN, top + _TITLE / 2, title, size=LARGE, bold=True))
    top += _TITLE - 4
    _strip(made, top, shares)
    top += _STRIP + 12
    longest = max((sum(one.time for one in kernels) for _, kernels in bars), default=0) or 1.0
    for name, kernels in bars:
        middle = top + _BAR / 2
        made.add(Rect(_BEGIN, top, _END - _BEGIN, _BAR, FAINT))
        _stack(made, _BEGIN, top, (_END - _BEGIN) / longest, _BAR, kernels)
        time = sum(one.time for one in kernels)
        colour = COLOURS[TVM] if all(one.kind == TVM for one in kernels) else INK
        short = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"
        at_least = "≥ " if any(one.at_least for one in kernels) else ""
        calls = f"{sum(one.calls for one in kernels)} x"
        texts = short, percent(time / total if total else 0), f"{at_least}{number(time)} µs", calls
        for right, text in zip((_BEGIN - 8, *_NUMBERS), texts, strict=True):
            made.add(Words(right, middle, text, colour, "end"))
        top += _STEP
    return top


def _stack(
    made: Picture, x: float, y: float, scale: float, height: float, kernels: Sequence[KernelShare]
) -> None:
    """Add the times of kernels beside each other, by kind."""
    for kind in KINDS:
        width = scale * sum(one.time for one in kernels if one.kind == kind)
        if width:
            made.add(Rect(x, y, width, height, COLOURS[kind]))
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
            made.add(Words(x + 8, top + _STRIP / 2, text, WHITE))
        x += part * width


def _bars(shares: FunctionShares) -> list[tuple[str, list[KernelShare]]]:
    """A name for each bar, and its kernels; the last bar may have all the small ones."""
    shown = [(one.name, [one]) for one in shares.kernels]
    if len(shown) <= _MOST:
        return shown
    rest = list(shares.kernels[_MOST - 1 :])
    return [*shown[: _MOST - 1], (f"{len(rest)} others", rest)]
