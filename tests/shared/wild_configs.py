"""Configs with choices drawn from all their values: what a search, or a person, may ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from warploom.decide.config import Config
from warploom.errors import IllegalCombination
from warploom.tile.choices import ROWS

#: Values of the choices whose kinds do not list them.
_EXTENTS = {
    "tile_m": (8, 16, 24, 40, 64, 72, 96, 128, 192, 256),
    "tile_n": (8, 48, 64, 96, 128, 160, 192, 256), "tile_k": (32, 64, 96, 128, 192, 256),
}  # fmt: skip
_ROWS = tuple(row for row in ROWS if row.name != "stages")
#: Choices that are drawn anew, at most.
_CHANGES = 3


def wild_config(near: Sequence[Config], choose: Callable[[Sequence[Any]], Any]) -> Config:
    """A config near to one of several with up to three choices drawn anew; it may be illegal.

    Parameters
    ----------
    near : sequence of Config
    choose : callable
        Draws an element of a sequence.
    """
    while True:
        config = choose(near)
        try:
            for _ in range(choose(range(1, _CHANGES + 1))):
                row = choose(_ROWS)
                values = _EXTENTS.get(row.name) or row.draws or row.kind.all
                config = replace(config, **{row.name: choose(values or (row.default, 1, 2, 32))})
        except IllegalCombination:
            continue
        return config
