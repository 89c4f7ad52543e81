"""Configs near to others: one or two choices drawn anew, for a search by measured times."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from warploom.decide.candidates import most_stages
from warploom.decide.config import Config
from warploom.decide.model import predict
from warploom.decide.problem import GemmProblem
from warploom.decide.repair import TILE, nearest_legal
from warploom.tile.choices import ROWS

#: Choices that are drawn anew, at most.
_CHANGES = 2
#: Attempts to draw a config that is new.
_ATTEMPTS = 200
#: A config that is predicted to take so many times as long as the best is not measured.
_HOPELESS = 3.0
#: Choices that are drawn alone; those of a tile are drawn together.
_SINGLE = tuple(row for row in ROWS if row.draws and row.name not in (*TILE, "stages"))
#: How often a tile is drawn, compared with another choice.
_TILES = 4


def redrawn(config: Config, tiles: Sequence[Config], rng: random.Random) -> Config:
    """A config with one choice, or its tile, drawn anew; it need not be legal."""
    number = rng.randrange(_TILES + len(_SINGLE))
    if number < _TILES:
        tile = rng.choice(tiles)
        return replace(config, **{name: getattr(tile, name) for name in TILE})
    row = _SINGLE[number - _TILES]
    return replace(config, **{row.name: rng.choice(row.draws)})


def deepest(problem: GemmProblem, config: Config, tiles: Sequence[Config]) -> Config | None:
    """The legal config nearest to one, with as many stages as fit; None if there is none."""
    stages = max(1, most_stages(replace(config, stages=1), problem))
    return nearest_legal(problem, replace(config, stages=stages), tiles)


def neighbours(
    problem: GemmProblem, near: Sequence[Config], tiles: Sequence[Config], count: int,
    seen: set[Config], rng: random.Random,
) -> list[Config]:  # fmt: skip
    """Legal configs that differ from one of ``near`` in one or two choices.

    Parameters
    ----------
    problem : GemmProblem
    near, tiles : sequence of Config
        Configs to begin at, and configs whose tiles may be taken.
    count : int
        At most so many.
    seen : set of Config
        Configs that are not drawn; those that are drawn are added.
    rng : random.Random
    """
    tiles, drawn = [*near, *tiles], []
    limit = _HOPELESS * min(predict(problem, config).total for config in near)
    for _ in range(_ATTEMPTS * count):
        if len(drawn) == count:
            break
        config = rng.choice(near)
        for _ in range(rng.randint(1, _CHANGES)):
            config = redrawn(config, tiles, rng)
        made = deepest(problem, config, tiles)
        if made is not None and made not in seen and predict(problem, made).total <= limit:
            seen.add(made)
            drawn.append(made)
    return drawn
