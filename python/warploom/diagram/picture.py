"""A kernel as a picture: a box for each role, what waits for what, and the map of shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from warploom.diagram.parts import (
    FROM_START,
    Barrier,
    KernelParts,
    Role,
    SharedTile,
    grid_text,
    registers_text,
)
from warploom.pictures import Line, Picture, Rect, Words
from warploom.pictures.palette import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PINK,
    RED,
    RULE,
    SERIES,
    WHITE,
    ink_on,
    tint,
)
from warploom.pictures.shapes import LARGE, SMALL, TINY, fitted, text_width

_COLOURS = {
    "wait": RULE, "load": BLUE, "mma": RED, "compute": GREEN, "store": ORANGE, "signal": PINK,
}  # fmt: skip
_MEANS = {
    "wait": "waits", "load": "starts a load", "mma": "MMA", "compute": "works on registers",
    "store": "stores to global memory", "signal": "lets others go on",
}  # fmt: skip
#: Pixels: of the picture, its margins, between boxes; of a line of steps, of a barrier's row.
_WIDTH, _MARGIN, _GAP, _LINE, _ROW = 1200, 18, 26, 19, 30
_HEAD, _BAR = 48, 46
#: Most steps of a role that are drawn.
_MOST_STEPS = 30


def draw(parts: KernelParts) -> Picture:
    """The picture of a kernel."""
    made = Picture(_WIDTH, 0, f"{parts.name} for {parts.arch}")
    title = fitted(f"{parts.name} for {parts.arch}", _WIDTH - 2 * _MARGIN, LARGE)
    made.add(Words(_MARGIN, 24, title, size=LARGE, bold=True))
    made.add(Words(_MARGIN, 46, fitted(", ".join(parts.parameters), _WIDTH - 2 * _MARGIN), GREY))
    made.add(Words(_MARGIN, 66, _about(parts), GREY))
    top = 92.0
    if parts.roles:
        top = _roles(made, top, parts.roles)
        top = _barriers(made, top + 34, parts)
    else:
        words = "The author of this kernel has orchestrated it: no pass has parted it into roles."
        made.add(Words(_MARGIN, top, words))
        top += 30
    if parts.shared:
        top = _shared(made, top + 34, parts)
    made.height = top + 14
    return made


def _about(parts: KernelParts) -> str:
    memory = f"{parts.tensor_memory} columns of tensor memory" if parts.tensor_memory else ""
    compiled = "" if parts.registers is None else registers_text(parts)
    words = "   ·   ".join(filter(None, (grid_text(parts), compiled, memory)))
    return fitted(words, _WIDTH - 2 * _MARGIN)


# -- roles -------------------------------------------------------------------------------------


def _columns(roles: Sequence[Role]) -> list[tuple[float, float]]:
    """Left end and width of the box of each role."""
    width = (_WIDTH - 2 * _MARGIN - _GAP * (len(roles) - 1)) / len(roles)
    width = min(width, 560.0)
    return [(_MARGIN + number * (width + _GAP), width) for number in range(len(roles))]


def _roles(made: Picture, top: float, roles: Sequence[Role]) -> float:
    used = dict.fromkeys(step.kind for role in roles for step in role.steps)
    x = float(_MARGIN)
    for kind, words in _MEANS.items():
        if kind in used:
            made.add(Rect(x, top - 5, 11, 11, _COLOURS[kind]), Words(x + 17, top, words))
            x += 17 + text_width(words) + 24
    top += 22
    lines = max(min(len(role.steps), _MOST_STEPS + 1) for role in roles)
    height = _HEAD + 16 + _LINE * lines
    for role, (left, width) in zip(roles, _columns(roles), strict=True):
        made.add(Rect(left, top, width, height, WHITE, RULE))
        made.add(Rect(left, top, width, _HEAD, FAINT, RULE))
        made.add(Words(left + 12, top + 17, role.name, size=LARGE, bold=True))
        registers = "" if role.registers is None else f", {role.registers} registers a thread"
        made.add(Words(left + 12, top + 36, fitted(role.threads + registers, width - 20), GREY))
        _steps(made, role, left, top + _HEAD + 16, width)
    return top + height


def _steps(made: Picture, role: Role, left: float, top: float, width: float) -> None:
    for number, step in enumerate(role.steps[:_MOST_STEPS]):
        y = top + number * _LINE
        x = left + 14 + 20 * step.depth
        if step.kind != "loop":
            made.add(Rect(x, y - 5, 10, 10, _COLOURS[step.kind]))
            x += 17
        room = left + width - x - 6
        made.add(Words(x, y, fitted(step.text, room), bold=step.kind == "loop"))
    if len(role.steps) > _MOST_STEPS:
        rest = f"and {len(role.steps) - _MOST_STEPS} more steps"
        made.add(Words(left + 14, top + _MOST_STEPS * _LINE, rest, GREY))


# -- barriers ----------------------------------------------------------------------------------


def _barriers(made: Picture, top: float, parts: KernelParts) -> float:
    if not parts.barriers:
        made.add(Words(_MARGIN, top, "No mbarriers.", size=SMALL + 1, bold=True))
        return top + 10
    made.add(Words(_MARGIN, top, "What waits for what: an arrow for each mbarrier",
                   size=SMALL + 1, bold=True))  # fmt: skip
    top += 40
    centres = {
        role.name: left + width / 2
        for role, (left, width) in zip(parts.roles, _columns(parts.roles), strict=True)
    }
    bottom = top + _ROW * len(parts.barriers)
    for name, x in centres.items():
        made.add(Line(((x, top - 4), (x, bottom)), RULE))
        made.add(Words(x, top - 13, name, GREY, "middle"))
    for number, barrier in enumerate(parts.barriers):
        _barrier(made, top + _ROW * (number + 0.5), barrier, centres)
    return bottom


def _barrier(made: Picture, y: float, barrier: Barrier, centres: dict[str, float]) -> None:
    stages = f"{barrier.name}, one for each of {barrier.count} stages"
    text = barrier.name if barrier.count == 1 else stages
    if barrier.arrivals is not None:
        text += f"; {barrier.arrivals} arrival{'s' * (barrier.arrivals != 1)}"
    places: list[float] = []
    for source, target in product(barrier.suppliers, barrier.waiters):
        if source not in centres or target not in centres:
            continue
        begin, end = centres[source], centres[target]
        places += [begin, end]
        if source != target:
            made.add(Line(((begin, y), (end, y)), INK, 1.3, arrow=True))
    if not barrier.suppliers:
        text += f", {FROM_START}"
        places = [centres[target] - 150 for target in barrier.waiters if target in centres]
        for begin in places:
            made.add(Line(((begin, y), (begin + 150, y)), INK, 1.3, arrow=True))
    middle = (min(places) + max(places)) / 2 if places else 0.0
    room = text_width(text, TINY + 1) + 10
    middle = max(middle, _MARGIN + room / 2)
    made.add(Rect(middle - room / 2, y - 8, room, 16, WHITE))
    made.add(Words(middle, y, text, anchor="middle", size=TINY + 1))


# -- shared memory -----------------------------------------------------------------------------


def _shared(made: Picture, top: float, parts: KernelParts) -> float:
    free = max(parts.shared_limit - parts.shared_bytes, 0)
    title = f"Shared memory: {parts.shared_bytes:,} of {parts.shared_limit:,} bytes"
    made.add(Words(_MARGIN, top, f"{title}, {free:,} free", size=SMALL + 1, bold=True))
    top += 18
    scale = (_WIDTH - 2 * _MARGIN) / max(parts.shared_limit, parts.shared_bytes)
    made.add(Rect(_MARGIN, top, _WIDTH - 2 * _MARGIN, _BAR, FAINT, RULE))
    rows: list[tuple[str, str]] = []
    for number, tile in enumerate(parts.shared):
        colour = tint(SERIES[number % len(SERIES)], 0.75)
        _tile(made, tile, colour, top, scale)
        words = f"{tile.name}   {tile.text}   byte {tile.offset:,}, {tile.size:,} bytes"
        rows.append((colour, words))
    top += _BAR + 22
    half = -(-len(rows) // 2) if len(rows) > 4 else len(rows)
    for number, (colour, words) in enumerate(rows):
        x = _MARGIN + (number // half) * (_WIDTH / 2)
        y = top + (number % half) * _LINE
        made.add(Rect(x, y - 5, 11, 11, colour), Words(x + 18, y, fitted(words, _WIDTH / 2 - 40)))
    return top + half * _LINE


def _tile(made: Picture, tile: SharedTile, colour: str, top: float, scale: float) -> None:
    left, width = _MARGIN + tile.offset * scale, max(tile.size * scale, 1.5)
    tip = f"{tile.name}: {tile.text}, bytes {tile.offset:,} to {tile.offset + tile.size - 1:,}"
    made.add(Rect(left, top, width, _BAR, colour, WHITE if width > 4 else "", tip=tip))
    stages = tile.shape[0] if len(tile.shape) > 2 else 1
    for stage in range(1, stages if width / stages > 4 else 1):
        x = left + width * stage / stages
        made.add(Line(((x, top), (x, top + _BAR)), WHITE, 1.0))
    name = fitted(tile.name, width - 8)
    if name:
        made.add(Words(left + width / 2, top + _BAR / 2, name, ink_on(colour), "middle"))
