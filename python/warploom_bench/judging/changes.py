"""Configs of tile programs near to others: one or two changes of a family's table."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from warploom.decide.config import Config
from warploom.errors import IllegalCombination

#: A change: choices by name.
Change = Mapping[str, Any]
#: Changes of a config, at most, and attempts to draw a new config.
_CHANGES, _ATTEMPTS = 2, 200


def each(name: str, *values: Any) -> tuple[Change, ...]:
    """A change for each value of a choice."""
    return tuple({name: value} for value in values)


def tiles(*extents: tuple[int, ...]) -> tuple[Change, ...]:
    """A change for each tile: its rows, columns, K, and consumers."""
    names = ("tile_m", "tile_n", "tile_k", "consumers")
    return tuple(dict(zip(names, of, strict=True)) for of in extents)


def near_to(
    near: Sequence[Config], changes: Sequence[Change], fitted: Callable[[Config], Config | None],
    count: int, seen: set[Config], rng: random.Random,
) -> list[Config]:  # fmt: skip
    """Up to ``count`` new configs that differ from one of ``near`` by one or two changes.

    Parameters
    ----------
    near : sequence of Config
    changes : sequence of mapping
        What may change; the choices of one mapping change together.
    fitted : callable
        Gives a config the stages that fit; None if it is illegal.
    count : int
    seen : set of Config
        Configs that are not drawn; those that are drawn are added.
    rng : random.Random
    """
    drawn: list[Config] = []
    for _ in range(_ATTEMPTS):
        if len(drawn) == count:
            break
        changed: dict[str, Any] = {}
        for _ in range(rng.randint(1, _CHANGES)):
            changed |= rng.choice(changes)
        try:
            config = fitted(replace(rng.choice(near), **changed))
        except IllegalCombination:
            continue
        if config is not None and config not in seen:
            seen.add(config)
            drawn.append(config)
    return drawn
