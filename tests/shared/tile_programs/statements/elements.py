"""Statements of elements: of tiles of one shape, of other places, of other dtypes."""

from __future__ import annotations

import numpy as np

from tests.shared.tile_programs.statements.draft import COUNTERS, Draft, Tile

_BINARY = {
    "add": ("{} + {}", np.add, lambda x, y: x + y),
    "sub": ("{} - {}", np.subtract, lambda x, y: x + y),
    "maximum": ("T.max({}, {})", np.maximum, max),
    "minimum": ("T.min({}, {})", np.minimum, max),
    "mul": ("{} * {}", np.multiply, lambda x, y: x * y),
}


def itself_or_new(draft: Draft, one: Tile) -> Tile:
    """The tile itself, or a new one of its shape and dtype, to write."""
    if draft.often(0.5):
        return one
    return draft.tile(one.shape, one.dtype, most=one.most)


def unary(draft: Draft) -> None:
    """Of one element, of its place, or of both."""
    one = draft.some()
    to, at = itself_or_new(draft, one), f"{one.name}[{one.counters}]"
    number, last = int(draft.rng.integers(-3, 4)), COUNTERS[len(one.shape) - 1]
    index = len(one.shape) - 1
    places = lambda: np.indices(one.shape)[index]  # noqa: E731
    half = max(1, one.shape[-1] // 2)
    forms = [
        (f"T.max({at}, {one.number(number)})", lambda x: np.maximum(x, number), one.most),
        (f"{one.number(0)} - {at}", lambda x: -x, one.most),
        (f"{at} + {one.number(number)}", lambda x: x + number, one.most + 3),
        (f"T.if_then_else({last} < {half}, {at}, {one.number(number)})",
         lambda x: np.where(places() < half, x, number), max(one.most, 3)),
        (f"T.if_then_else({at} > {one.number(number)}, {at}, {one.number(0)})",
         lambda x: np.where(x > number, x, 0), one.most),
        (f"{at} + T.cast({last} % 3, {one.dtype!r})",
         lambda x: x + places() % 3, one.most + 2),
        (f"{at} + T.cast(b, {one.dtype!r})", None, one.most + 3),
    ]  # fmt: skip
    value, function, most = draft.pick(*forms)
    draft.nest(one.shape, f"{to.name}[{one.counters}] = {value}")
    name = one.name
    if function is None:
        draft.assign(to, lambda t, m, b: t[name] + b)
    else:
        draft.assign(to, lambda t, m, b: function(t[name]))
    draft.written(to, most)


def binary(draft: Draft) -> None:
    """Of two tiles of one dtype, whose shapes are equal or broadcast."""
    one = draft.some()

    def fits(other: Tile) -> bool:
        aligned = zip(other.shape[::-1], one.shape[::-1], strict=False)
        return (
            other.dtype == one.dtype and len(other.shape) <= len(one.shape)
            and all(a in (1, b) for a, b in aligned)
        )  # fmt: skip

    other = draft.some(fits)
    name = draft.pick(*_BINARY)
    form, function, most = _BINARY[name]
    to = itself_or_new(draft, one)
    if draft.often(0.5):
        draft.add(f"Tx.cta.{name}({to.name}, {one.name}, {other.name})")
    else:
        counters = COUNTERS[len(one.shape) - len(other.shape) : len(one.shape)]
        places = [
            "0" if extent == 1 else counter
            for counter, extent in zip(counters, other.shape, strict=True)
        ]
        value = form.format(f"{one.name}[{one.counters}]", f"{other.name}[{', '.join(places)}]")
        draft.nest(one.shape, f"{to.name}[{one.counters}] = {value}")
    left, right = one.name, other.name
    draft.assign(to, lambda t, m, b: function(t[left], t[right]))
    draft.written(to, most(one.most, other.most))


def cast(draft: Draft) -> None:
    one = draft.some()
    to = draft.tile(one.shape, most=one.most)
    if draft.often(0.6):
        draft.add(f"Tx.cta.cast({to.name}, {one.name})")
    else:
        value = f"T.cast({one.name}[{one.counters}], {to.dtype!r})"
        draft.nest(one.shape, f"{to.name}[{one.counters}] = {value}")
    name = one.name
    draft.assign(to, lambda t, m, b: t[name])
    draft.written(to)


def elsewhere(draft: Draft) -> None:
    """Elements of other places: mirrored, transposed, shifted."""
    one = draft.some()
    counters, extents = list(COUNTERS[: len(one.shape)]), list(one.shape)
    axis = draft.pick(*range(len(extents)))
    kind = draft.pick("mirror", "shift", "swap")
    if kind == "swap":
        other = draft.pick(*range(len(extents)))
        order = list(range(len(extents)))
        order[axis], order[other] = order[other], order[axis]
        to = draft.tile(tuple(extents[a] for a in order), one.dtype, most=one.most)
        places = [counters[order.index(a)] for a in range(len(extents))]
        function = lambda x: x.transpose(order)  # noqa: E731
    else:
        to, last = draft.tile(one.shape, one.dtype, most=one.most), extents[axis] - 1
        by = int(draft.rng.integers(0, last + 1))
        places = list(counters)
        if kind == "mirror":
            places[axis] = f"{last} - {counters[axis]}"
            function = lambda x: np.flip(x, axis)  # noqa: E731
        else:
            places[axis] = f"T.min({counters[axis]} + {by}, {last})"
            taken = np.minimum(np.arange(last + 1) + by, last)
            function = lambda x: np.take(x, taken, axis)  # noqa: E731
    draft.nest(to.shape, f"{to.name}[{to.counters}] = {one.name}[{', '.join(places)}]")
    name = one.name
    draft.assign(to, lambda t, m, b: function(t[name]))
    draft.written(to)
