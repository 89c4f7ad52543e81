"""What a search may draw for one problem: for each choice its values, and how likely each is.

How likely a value is is the model's opinion: of the best config with that value, compared with the
best of all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from warploom.decide.candidates import LEAST_STAGES, most_stages, tiles
from warploom.decide.config import Config
from warploom.decide.machine import Machine
from warploom.decide.machines import machine_for
from warploom.decide.model import predict
from warploom.decide.problem import GemmProblem
from warploom.decide.ranking import ranked
from warploom.decide.repair import TILE, nearest_legal
from warploom.errors import IllegalCombination
from warploom.tile.choices import BY_NAME, ROWS, Choice

#: A config that is slower by this part is drawn 1/e times as often.
_TOLERANCE = 0.15
#: Every value is drawn at least this often, compared with the likeliest; and values that a rule
#: would not choose, compared with those that it chooses.
_LEAST, _BY_RULE = 0.02, 0.3
#: Tiles that a search draws from: every record has the lists of their extents.
_MOST_TILES = 96
#: CTAs of an SM that are tried with each tile.
_CTAS = BY_NAME["ctas_per_sm"].draws
#: How often a search that begins at a certain config keeps each of its choices.
_KEEP = 0.92


@dataclass(frozen=True)
class Draws:
    """Values of the choices that a search draws, with probabilities.

    Attributes
    ----------
    problem : GemmProblem
    machine : Machine
    tiles : tuple of Config
        Legal configs, whose tiles are those of the search.
    values : mapping from str to tuple of int
        By the names of choices, as :meth:`Config.values` has them.
    weights : mapping from str to tuple of float
        As many for each name, of sum 1.
    """

    problem: GemmProblem
    machine: Machine
    tiles: tuple[Config, ...]
    values: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, tuple[float, ...]]

    def around(self, config: Config) -> Draws:
        """The same values, likely those of a certain config.

        Raises
        ------
        ValueError
            If the config has a value that is not drawn; see :meth:`has`.
        """
        weights, numbers = {}, config.values()
        for name, values in self.values.items():
            kept = values.index(numbers[name])
            share = _KEEP if len(values) > 1 else 0.0
            weights[name] = tuple(
                (1 - share) * probability + share * (place == kept)
                for place, probability in enumerate(self.weights[name])
            )
        return replace(self, weights=weights)

    def has(self, config: Config) -> bool:
        """Whether a search can draw a config."""
        numbers = config.values()
        drawn = all(numbers[name] in values for name, values in self.values.items())
        rest = all(
            getattr(config, row.name) == row.default for row in ROWS if row.name not in self.values
        )
        return drawn and rest and self.legal(config) == config

    def legal(self, drawn: Config) -> Config | None:
        """The legal config that a draw stands for; None if there is none."""
        return nearest_legal(self.problem, drawn, self.tiles, self.machine)


def draws(problem: GemmProblem, machine: Machine | None = None) -> Draws:
    """What a search may draw for a problem.

    Parameters
    ----------
    problem : GemmProblem
    machine : Machine, optional
        The GPU; by default that of the current target, and without a target an H200.

    Raises
    ------
    IllegalCombination
        If no tile is legal.
    """
    return _draws(problem, machine or machine_for(), problem.finish)


@lru_cache(maxsize=64)
def _draws(problem: GemmProblem, machine: Machine, _: tuple[float, ...]) -> Draws:
    # Problems of other epilogues may be equal; the last argument tells them apart.
    times = _tiles(problem, machine)
    best = min(times.values())
    weighted: dict[str, dict[int, float]] = {name: {} for name in TILE}
    for config, time in times.items():
        numbers, weight = config.values(), _weight(time, best)
        for name in TILE:
            found = weighted[name]
            found[numbers[name]] = max(weight, found.get(numbers[name], 0.0))
    weighted = {name: dict(sorted(found.items())) for name, found in weighted.items()}
    base = min(times, key=times.__getitem__)
    for row in ROWS:
        if row.draws and row.name not in weighted:
            weighted[row.name] = {
                row.kind.number(value): _likely(problem, machine, tuple(times), base, row, value)
                for value in row.draws
            }
    return Draws(
        problem, machine, tuple(times), {name: tuple(found) for name, found in weighted.items()},
        {name: _normalised(tuple(found.values())) for name, found in weighted.items()},
    )  # fmt: skip


def starts(
    problem: GemmProblem, count: int, machine: Machine | None = None, known: Config | None = None
) -> list[Config]:
    """The configs that the model predicts the shortest times for, the best first.

    No two of them have the same tile: what a tile is combined with, the search varies itself. A
    config that is known to be good goes before all others.
    """
    machine = machine or machine_for()
    allowed, found = draws(problem, machine), {}
    likely = [config for _, config in ranked(problem, machine=machine)]
    for config in likely if known is None else (known, *likely):
        if allowed.has(config):
            found.setdefault(tuple(getattr(config, name) for name in TILE), config)
    return list(found.values())[:count]


def _tiles(problem: GemmProblem, machine: Machine) -> dict[Config, float]:
    """The best tiles, each alone on an SM or with others, and its time."""
    times: dict[Config, float] = {}
    for tile in tiles(problem, machine):
        for ctas in _CTAS:
            config = replace(tile, ctas_per_sm=ctas)
            stages = most_stages(config, problem)
            if stages < LEAST_STAGES:
                continue
            config = replace(config, stages=stages)
            if config.why_not(problem) is None:
                times[config] = predict(problem, config, machine).total
    if not times:
        raise IllegalCombination(f"There are no legal tiles for {problem}.")
    return dict(sorted(times.items(), key=lambda pair: pair[1])[:_MOST_TILES])


def _likely(
    problem: GemmProblem, machine: Machine, tiles: Sequence[Config], base: Config, row: Choice,
    value: object,
) -> float:  # fmt: skip
    """How likely a value of a choice is."""
    name = row.name
    if row.rule:
        return 1.0 if value == getattr(ranked(problem, machine=machine)[0][1], name) else _BY_RULE
    if value == row.default:
        return 1.0
    drawn = replace(base, **{name: value})
    if name == "reduce_through":
        drawn = replace(drawn, split_k=2)
    config = nearest_legal(problem, drawn, tiles, machine)
    if config is None or getattr(config, name) != value:
        return _LEAST
    usual = nearest_legal(problem, replace(drawn, **{name: row.default}), tiles, machine)
    best = predict(problem, usual or base, machine).total
    return _weight(predict(problem, config, machine).total, best)


def _weight(time: float, best: float) -> float:
    return min(1.0, max(_LEAST, math.exp((1 - time / best) / _TOLERANCE)))


def _normalised(weights: Sequence[float]) -> tuple[float, ...]:
    total = sum(weights)
    return tuple(weight / total for weight in weights)
