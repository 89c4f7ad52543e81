"""Reductions, positions of extremes, scans and sorts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.shared.tile_programs.statements.draft import MOST_OF_ORDER, Draft
from tests.shared.tile_programs.statements.elements import itself_or_new


def reduction(draft: Draft) -> None:
    """Over any axes, kept or not, with the old value or not."""
    one = draft.some()
    rank = len(one.shape)
    axes = tuple(a for a in range(rank) if draft.often(0.5)) or (draft.pick(*range(rank)),)
    kept = draft.often(0.5) or len(axes) == rank
    shape = tuple(1 if a in axes else e for a, e in enumerate(one.shape) if kept or a not in axes)
    name = draft.pick("sum", "max", "min")
    count = int(np.prod([one.shape[a] for a in axes]))
    if name == "sum" and one.most * count > 30000:
        return
    to, accum = draft.tile(shape, one.dtype), draft.often(0.3)
    if accum:
        draft.add(f"Tx.cta.fill({to.name}, {one.number(2)})")
        draft.assign(to, lambda t, m, b: np.full(to.shape, 2.0))
    written = tuple(a - rank if draft.often(0.3) else a for a in axes)
    draft.add(f"Tx.cta.{name}({to.name}, {one.name}, axes={written}, accum={accum})")
    source = one.name
    join = {"sum": np.add, "max": np.maximum, "min": np.minimum}[name]

    def reduced(t: dict[str, np.ndarray], m: Any, b: int) -> np.ndarray:
        found = getattr(np, name)(t[source], axis=axes).reshape(to.shape)
        return join(found, t[to.name]) if accum else found

    draft.assign(to, reduced)
    draft.written(to, (one.most * count if name == "sum" else one.most) + 2)


def position(draft: Draft) -> None:
    """Where the extreme of an axis is."""
    one = draft.some()
    axis, name = draft.pick(*range(len(one.shape))), draft.pick("argmax", "argmin")
    kept = len(one.shape) == 1 or draft.often(0.5)
    shape = tuple(1 if a == axis else e for a, e in enumerate(one.shape) if kept or a != axis)
    to = draft.tile(shape, "int32", most=128)
    draft.add(f"Tx.cta.{name}({to.name}, {one.name}, axis={axis})")
    source = one.name
    draft.assign(to, lambda t, m, b: getattr(np, name)(t[source], axis=axis).reshape(shape))
    draft.written(to)


def scan(draft: Draft) -> None:
    one = draft.some(lambda tile: tile.size <= MOST_OF_ORDER)
    if one is None:
        return
    axis, reverse = draft.pick(*range(len(one.shape))), draft.often(0.5)
    name = draft.pick("cumsum", "cummax", "cummin")
    most = one.most * one.shape[axis] if name == "cumsum" else one.most
    if most > 30000:
        return
    to = itself_or_new(draft, one)
    draft.add(f"Tx.cta.{name}({to.name}, {one.name}, axis={axis}, reverse={reverse})")
    function = {"cumsum": np.cumsum, "cummax": np.maximum.accumulate,
                "cummin": np.minimum.accumulate}[name]  # fmt: skip
    source = one.name

    def scanned(t: dict[str, np.ndarray], m: Any, b: int) -> np.ndarray:
        x = np.flip(t[source], axis) if reverse else t[source]
        found = function(x, axis=axis)
        return np.flip(found, axis) if reverse else found

    draft.assign(to, scanned)
    draft.written(to, most)


def sort(draft: Draft) -> None:
    one = draft.some(lambda tile: tile.size <= MOST_OF_ORDER)
    if one is None:
        return
    axis, descending = draft.pick(*range(len(one.shape))), draft.often(0.5)
    to = itself_or_new(draft, one)
    places = draft.tile(one.shape, "int32", most=128) if draft.often(0.5) else None
    indices = f", indices={places.name}" if places else ""
    draft.add(f"Tx.cta.sort({to.name}, {one.name}, axis={axis}, descending={descending}{indices})")
    source = one.name

    def order(t: dict[str, np.ndarray]) -> np.ndarray:
        x = t[source]
        return np.argsort(-x if descending else x, axis=axis, kind="stable")

    if places:
        draft.assign(places, lambda t, m, b: order(t))
        draft.written(places)
    draft.assign(to, lambda t, m, b: np.take_along_axis(t[source], order(t), axis))
    draft.written(to)
