"""Files of pictures: SVG by Python alone, PNG by matplotlib."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from warploom.errors import WarploomError
from warploom.pictures.palette import INK, WHITE
from warploom.pictures.picture import Picture, svg
from warploom.pictures.shapes import Dot, Line, Rect, Shape, Words
from warploom.pictures.svg import head

#: The message where there is no PNG.
MISSING = "matplotlib is not installed: no PNG; run: pip install 'warploom[plot]'"
#: Pixels of an inch, and of a PNG for each of the picture.
_INCH, _FINER = 100, 2
#: Points of a letter for each pixel of its size; DejaVu Sans is wider than most fonts.
_POINTS = 0.72 * 0.95
_ENDS = {"start": "left", "middle": "center", "end": "right"}


def pyplot() -> Any:
    """``matplotlib.pyplot``, drawing into files.

    Raises
    ------
    WarploomError
        If matplotlib is not installed.
    """
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError as error:
        raise WarploomError(f"{MISSING}, or write an SVG.") from error
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def suffix_of(path: str | Path) -> str:
    """``".svg"`` or ``".png"``.

    Raises
    ------
    WarploomError
        If a file has another suffix; or matplotlib is not installed, for PNG.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".svg", ".png"):
        raise WarploomError(f"{path} is no picture's name; it must end with .svg or .png.")
    if suffix == ".png":
        pyplot()  # a missing library is said before minutes of work
    return suffix


def write(picture: Picture, path: str | Path) -> None:
    """Write a picture as its file's suffix says; a PNG has twice as many pixels.

    Parameters
    ----------
    picture : Picture
    path : str or Path
        ``*.svg`` or ``*.png``; its folder is made.

    Raises
    ------
    WarploomError
        As :func:`suffix_of`.
    """
    suffix, path = suffix_of(path), Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".svg":
        path.write_text(svg(picture), encoding="utf-8")
    else:
        _write_png(picture, path)


def _write_png(picture: Picture, path: Path) -> None:
    plt = pyplot()
    figure = plt.figure(figsize=(picture.width / _INCH, picture.height / _INCH))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, picture.width), ylim=(picture.height, 0))
    axes.axis("off")
    with plt.rc_context({"hatch.linewidth": 0.8}):
        for number, one in enumerate(picture.shapes):
            _draw(plt, axes, one, number + 1)
        figure.savefig(path, dpi=_FINER * _INCH, format="png", facecolor=WHITE)
    plt.close(figure)


def _draw(plt: Any, axes: Any, one: Shape, order: int) -> None:
    match one:
        case Rect():
            outline = {"edgecolor": one.edge or INK, "linewidth": 0.72 if one.edge else 0}
            axes.add_patch(plt.Rectangle(
                (one.x, one.y), one.width, one.height, facecolor=one.colour,
                hatch="////" if one.hatch else None, zorder=order, **outline,
            ))  # fmt: skip
        case Line():
            xs, ys = zip(*one.points, strict=True)
            style = (0, (4, 3)) if one.dashed else "-"
            axes.plot(xs, ys, color=one.colour, linewidth=0.72 * one.width, linestyle=style,
                      solid_capstyle="butt", zorder=order)  # fmt: skip
            if one.arrow:
                axes.fill(*zip(*head(one), strict=True), color=one.colour, linewidth=0,
                          zorder=order)  # fmt: skip
        case Dot():
            axes.add_patch(plt.Circle((one.x, one.y), one.radius, color=one.colour, linewidth=0,
                                      zorder=order))  # fmt: skip
        case Words():
            axes.text(
                one.x, one.y, one.text, color=one.colour, fontsize=_POINTS * one.size,
                ha="center" if one.upright else _ENDS[one.anchor],
                va={"start": "bottom", "middle": "center", "end": "top"}[one.anchor]
                if one.upright else "center_baseline",
                rotation=90 if one.upright else 0, fontweight="bold" if one.bold else "normal",
                family="monospace" if one.mono else None, parse_math=False, zorder=order,
            )  # fmt: skip
