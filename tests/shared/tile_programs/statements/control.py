"""Branches, loops, assertions, ends and prints."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.shared.tile_programs.statements.draft import COUNTERS, Draft, Ended, Step, Tile, rounded


def _add_one(draft: Draft, one: Tile, number: int = 1) -> Step:
    """An addition in place, and its model."""
    at = f"{one.name}[{one.counters}]"
    if draft.often(0.5):
        draft.nest(one.shape, f"{at} = {at} + {one.number(number)}")
    else:
        draft.add(f"Tx.cta.add({one.name}, {one.name}, {one.number(number)})")

    def step(t: dict[str, np.ndarray], m: Any, b: int) -> None:
        t[one.name] = rounded(t[one.name] + number, one.dtype)

    return step


def branch(draft: Draft) -> None:
    """A statement that some CTAs execute, and perhaps a statement for the others."""
    one = draft.some()
    with draft.inside("if b % 2 == 0:"):
        then = _add_one(draft, one, 2)
    otherwise = None
    if draft.often(0.5):
        with draft.inside("else:"):
            otherwise = _add_one(draft, one, -1)

    def step(t: dict[str, np.ndarray], m: Any, b: int) -> None:
        if b % 2 == 0:
            then(t, m, b)
        elif otherwise:
            otherwise(t, m, b)

    draft.model.append(step)
    draft.written(one, one.most + 2)


def loop(draft: Draft) -> None:
    """A statement that a loop repeats: as often as a number, a scalar, or a condition says."""
    one = draft.some()
    kind, trips = draft.pick("serial", "memory", "while"), int(draft.rng.integers(0, 4))
    if kind == "serial":
        with draft.inside(f"for {draft.name('s')} in T.serial({max(trips, 1)}):"):
            inner = _add_one(draft, one)
        count = lambda m, b: max(trips, 1)  # noqa: E731
    else:
        memory = draft.buffer(
            "N", (draft.ctas,), "int32",
            lambda rng: rng.integers(0, 4, (draft.ctas,)).astype("int32"),
        )  # fmt: skip
        left = draft.name("left")
        draft.add(f"{left}: T.int32 = {memory}[b]")
        if kind == "memory":
            with draft.inside(f"for {draft.name('s')} in T.serial({left}):"):
                inner = _add_one(draft, one)
        else:
            with draft.inside(f"while {left} > 0:"):
                inner = _add_one(draft, one)
                draft.add(f"{left} = {left} - 1")
        count = lambda m, b: int(m[memory][b])  # noqa: E731

    def step(t: dict[str, np.ndarray], m: Any, b: int) -> None:
        for _ in range(count(m, b)):
            inner(t, m, b)

    draft.model.append(step)
    draft.written(one, one.most + 3)


def repeated(draft: Draft) -> None:
    """A nest that one of its loops repeats."""
    one = draft.some(lambda tile: len(tile.shape) < 4)
    if one is None:
        return
    steps = draft.operand((3, one.shape[-1]), one.dtype)
    loops = (3, *one.shape)
    counters = ", ".join(("s", *COUNTERS[: len(one.shape)]))
    at = f"{one.name}[{one.counters}]"
    draft.add(f"for {counters} in T.grid{loops}:",
              f"    {at} = T.max({at}, {steps}[s, {COUNTERS[len(one.shape) - 1]}])")  # fmt: skip
    name = one.name
    draft.assign(one, lambda t, m, b: np.maximum(t[name], m[steps].max(0)))
    draft.written(one)


def assertion(draft: Draft) -> None:
    """A condition that holds."""
    one = draft.some()
    at = f"{one.name}[{', '.join(str(extent - 1) for extent in one.shape)}]"
    draft.add(f"wl.device_assert({at} < {one.number(30000)}, 'element is {{}}', {at})")


def leave(draft: Draft) -> None:
    """CTAs from a number on end here."""
    first = int(draft.rng.integers(1, draft.ctas + 1))
    draft.add(f"wl.exit_if(b >= {first})")

    def step(t: Any, m: Any, b: int) -> None:
        if b >= first:
            raise Ended

    draft.model.append(step)


def print_line(draft: Draft) -> None:
    """A line of an element, or of a part of a tile."""
    one = draft.some()
    at = ", ".join(str(int(draft.rng.integers(extent))) for extent in one.shape)
    if draft.often(0.3):
        at = ", ".join(f"0:{min(extent, 3)}" for extent in one.shape)
    draft.add(f"wl.print('cta {{}} {one.name} {{}}', b, {one.name}[{at}])")
