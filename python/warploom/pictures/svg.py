"""Shapes as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from warploom.pictures.palette import INK, WHITE
from warploom.pictures.shapes import SMALL, Dot, Line, Rect, Shape, Words

#: Half the length of the head of an arrow, and half its width.
_HEAD = (7.0, 3.2)


def document(wide: float, high: float, title: str, shapes: Sequence[Shape]) -> str:
    """The text of an SVG file with shapes, of so many pixels."""
    width, height = f"{wide:g}", f"{high:g}"
    named = f"<title>{escape(title)}</title>" if title else ""
    hatched = (one for one in shapes if isinstance(one, Rect) and one.hatch)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="{SMALL}" fill="{INK}">{named}',
        *(_pattern(colour) for colour in dict.fromkeys(one.edge or INK for one in hatched)),
        f'<rect width="{width}" height="{height}" fill="{WHITE}"/>',
        *map(_shape, shapes),
        "</svg>\n",
    ]
    return "\n".join(lines)


def head(line: Line) -> tuple[tuple[float, float], ...]:
    """The triangle at the end of an arrow."""
    (x0, y0), (x1, y1) = line.points[-2:]
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 or 1.0
    along = ((x1 - x0) / length, (y1 - y0) / length)
    back = (x1 - _HEAD[0] * along[0], y1 - _HEAD[0] * along[1])
    side = (-_HEAD[1] * along[1], _HEAD[1] * along[0])
    left, right = ((back[0] + s * side[0], back[1] + s * side[1]) for s in (1, -1))
    return ((x1, y1), left, right)


def _hatch_id(colour: str) -> str:
    return f"hatch{colour.lstrip('#')}"


def _pattern(colour: str) -> str:
    return (
        f'<defs><pattern id="{_hatch_id(colour)}" width="6" height="6" '
        'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<path d="M0 0V6" stroke="{colour}" stroke-width="1.6"/></pattern></defs>'
    )


def _shape(one: Shape) -> str:
    match one:
        case Rect():
            return _rect(one)
        case Line():
            return _line(one)
        case Dot():
            place = f'<circle cx="{one.x:.1f}" cy="{one.y:.1f}" r="{one.radius:g}"'
            return _with_tip(f'{place} fill="{one.colour}"', "circle", one.tip)
        case Words():
            return _words(one)


def _with_tip(tag: str, name: str, tip: str) -> str:
    return f"{tag}><title>{escape(tip)}</title></{name}>" if tip else f"{tag}/>"


def _rect(one: Rect) -> str:
    size = f'width="{one.width:.1f}" height="{one.height:g}"'
    place = f'<rect x="{one.x:.1f}" y="{one.y:g}" {size}'
    edge = f' stroke="{one.edge}"' if one.edge else ""
    drawn = _with_tip(f'{place} fill="{one.colour}"{edge}', "rect", one.tip)
    if one.hatch:
        drawn += f'{place} fill="url(#{_hatch_id(one.edge or INK)})" pointer-events="none"/>'
    return drawn


def _line(one: Line) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in one.points)
    dashes = ' stroke-dasharray="4 3"' if one.dashed else ""
    drawn = (
        f'<polyline points="{points}" fill="none" stroke="{one.colour}" '
        f'stroke-width="{one.width:g}"{dashes}/>'
    )
    if one.arrow:
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in head(one))
        drawn += f'<polygon points="{corners}" fill="{one.colour}"/>'
    return drawn


def _words(one: Words) -> str:
    more = "" if one.colour == INK else f' fill="{one.colour}"'
    more += "" if one.anchor == "start" else f' text-anchor="{one.anchor}"'
    more += "" if one.size == SMALL else f' font-size="{one.size:g}"'
    more += ' font-weight="bold"' if one.bold else ""
    more += ' font-family="monospace" xml:space="preserve"' if one.mono else ""
    down = 0.35 * one.size
    x, y = (one.x + down, one.y) if one.upright else (one.x, one.y + down)
    turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if one.upright else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}{turned}>{escape(one.text)}</text>'
